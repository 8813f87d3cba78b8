"""What may be called an image, and what the messages say when it is none."""

import base64
import functools
import http.server
import io
import threading
import urllib.parse

import pytest
from PIL import Image

from lookback.images import load_images


@pytest.fixture
def png():
    buffer = io.BytesIO()
    Image.new("RGBA", (4, 3), (255, 0, 0, 128)).save(buffer, "PNG")
    return buffer.getvalue()


def test_paths_bytes_pictures_and_lists(tmp_path, png):
    path = tmp_path / "a.png"
    path.write_bytes(png)
    images = load_images([path, str(path), png, Image.new("L", (4, 3))])
    assert [(i.mode, i.size) for i in images] == [("RGB", (4, 3))] * 4
    assert len(load_images(path)) == 1
    assert load_images(None) == []


def test_a_url(tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        base = f"http://127.0.0.1:{server.server_port}"
        assert load_images(f"{base}/a.png")[0].size == (4, 3)
        with pytest.raises(ValueError, match=r"b\.png'.*404"):
            load_images(f"{base}/b.png")
    finally:
        server.shutdown()
        server.server_close()


def test_exif_orientation_is_applied():
    image = Image.new("RGB", (4, 3))
    exif = image.getexif()
    exif[0x0112] = 6  # turn a quarter
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", exif=exif)
    assert load_images(buffer.getvalue())[0].size == (3, 4)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no image file .*gone\.png"):
        load_images(tmp_path / "gone.png")


def test_what_is_no_image_is_named(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(ValueError, match=r"notes\.txt' is not an image"):
        load_images(text)
    noise = io.BytesIO()
    Image.effect_noise((40, 40), 50).save(noise, "JPEG")
    cut = noise.getvalue()[:-200]
    with pytest.raises(ValueError, match=r"cannot read the image <\d+ bytes>"):
        load_images(cut)
    with pytest.raises(ValueError, match=r"42 is no image"):
        load_images(42)
    with pytest.raises(ValueError, match=r"is a directory: a regular file is needed"):
        load_images(tmp_path)


def test_an_enormous_image_is_refused(monkeypatch, png):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)
    with pytest.raises(ValueError, match="too large"):
        load_images(png)


def test_data_uris(png):
    encoded = base64.b64encode(png).decode()
    for uri in (
        f"data:image/png;base64,{encoded}",
        f"data:;base64,{encoded[:20]}\n{encoded[20:]}",  # as mail programs break it
        f"data:image/png;base64,{urllib.parse.quote(encoded, safe='')}",
        f"data:image/png,{urllib.parse.quote(png)}",
    ):
        (image,) = load_images(uri)
        assert (image.mode, image.size) == ("RGB", (4, 3))
        assert image.tobytes() == load_images(png)[0].tobytes()


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("data:image/png;base64", "is no data URI: it has no comma"),
        ("data:image/png;base64,{}", "is a broken data URI"),
        ("data:image/png;base64,aGVsbG8=" + " " * 9000, "is not an image"),
        ("data:image/png;base64," + "A" * 9001, "is a broken data URI"),
        ("data:,hello", "is not an image"),
    ],
)
def test_a_broken_data_uri_is_said_in_few_words(uri, said):
    with pytest.raises(ValueError, match=said) as error:
        load_images(uri)
    assert len(str(error.value)) < 200

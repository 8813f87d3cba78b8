"""What may be called an image, and what the messages say when it is none."""

import base64
import functools
import http.server
import io
import os
import random
import socket
import threading
import urllib.parse

import pytest
from PIL import Image, ImageFile

from lookback.conversations import Conversation
from lookback.images import load_images
from lookback.limits import LimitError


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


def drawn_by_nobody(form, size, **settings):
    """A picture of one colour, which packs into few bytes."""
    buffer = io.BytesIO()
    Image.new("1" if form in ("PNG", "TIFF") else "L", size).save(buffer, form, **settings)
    return buffer.getvalue()


@pytest.fixture
def decoded(monkeypatch):
    """The sizes of the pictures that Pillow decodes."""
    sizes, load = [], ImageFile.ImageFile.load

    def counted(self):
        sizes.append(self.size)
        return load(self)

    monkeypatch.setattr(ImageFile.ImageFile, "load", counted)
    return sizes


@pytest.mark.parametrize("form", ["PNG", "GIF", "TIFF", "JPEG", "BMP", "WEBP"])
def test_an_enormous_image_is_refused_before_it_is_decoded(form, tmp_path, monkeypatch, decoded):
    monkeypatch.setenv("LOOKBACK_MAX_IMAGE_PIXELS", "5000")
    frames = [Image.new("L", (100, 51), 9)] if form in ("GIF", "WEBP", "TIFF") else []
    more = {"save_all": True, "append_images": frames} if frames else {}
    data = drawn_by_nobody(form, (100, 51), **more)
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    uri = f"data:image/any;base64,{base64.b64encode(data).decode()}"
    part = {"type": "image", "base64": base64.b64encode(data).decode()}
    part = {"role": "user", "content": [part, {"type": "text", "text": "What?"}]}
    said = r"too large: 5,100 pixels, and the limit is 5,000 pixels: LOOKBACK_MAX_IMAGE_PIXELS="
    del decoded[:]
    for given in (data, path, str(path), uri):
        with pytest.raises(LimitError, match=rf"\(100 x 51\) is {said}"):
            load_images(given)
    with pytest.raises(LimitError, match=said):
        _ = Conversation.from_messages([part]).images
    with pytest.raises(LimitError, match=said):
        load_images(Image.open(path))
    assert not decoded
    monkeypatch.setenv("LOOKBACK_MAX_IMAGE_PIXELS", "5100")
    assert load_images(uri)[0].size == (100, 51)


def test_the_limit_of_pixels_has_a_default_and_can_be_raised_beyond_pillow_s(monkeypatch, decoded):
    bomb = drawn_by_nobody("PNG", (12_000, 12_000))
    assert len(bomb) < 20_000
    with pytest.raises(LimitError, match="144,000,000 pixels, and the limit is 64,000,000"):
        load_images(bomb)
    assert not decoded
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)  # as if the picture were enormous for it
    assert load_images(drawn_by_nobody("PNG", (40, 30)))[0].size == (40, 30)
    assert Image.MAX_IMAGE_PIXELS == 5  # other users of Pillow keep their limit


def test_what_pillow_decodes_at_once_or_runs_is_not_opened(decoded):
    icon = io.BytesIO()
    Image.new("RGB", (16, 16)).save(icon, "ICO")
    for data in (icon.getvalue(), b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n"):
        with pytest.raises(ValueError, match="is not an image"):
            load_images(data)
    assert not decoded


def test_a_file_s_size_is_limited(tmp_path, monkeypatch, png):
    monkeypatch.setenv("LOOKBACK_MAX_IMAGE_MIB", "1")
    large = png + bytes(2**20)
    (tmp_path / "a.png").write_bytes(large)
    uri = f"data:image/png;base64,{base64.b64encode(large).decode()}"
    for given in (tmp_path / "a.png", large, uri):
        with pytest.raises(LimitError, match=r"1\.0 MiB.* is 1 MiB: LOOKBACK_MAX_IMAGE_MIB="):
            load_images(given)


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.png"))
    kinds = {"pipe.png": "a pipe", "link.png": "a pipe", "socket.png": "a socket"}
    for name, kind in kinds.items():
        with pytest.raises(ValueError, match=rf"{name}' is {kind}: a regular file is needed"):
            load_images(tmp_path / name)
    with pytest.raises(ValueError, match=r"'/dev/zero' is a device"):
        load_images("/dev/zero")
    with pytest.raises(ValueError, match=r"is no path: embedded null byte"):
        load_images("a\0.png")


def test_no_other_scheme_is_a_path_or_a_download(tmp_path, png):
    path = tmp_path / "a.png"
    path.write_bytes(png)
    for url in (path.as_uri(), "ftp://example.org/a.png", "gopher://a/b", "FTP://a/b"):
        with pytest.raises(ValueError, match="only http and https are"):
            load_images(url)


@pytest.mark.filterwarnings("ignore:.*:UserWarning:PIL")
@pytest.mark.parametrize("seed", range(40))
def test_broken_bytes_are_one_line(seed):
    """Whatever a decoder raises on changed bytes, it is one error of ours, or a picture."""
    rng = random.Random(seed)
    form = rng.choice(["PNG", "GIF", "TIFF", "JPEG", "BMP", "WEBP", "PPM", "TGA", "PCX", "DDS"])
    buffer = io.BytesIO()
    Image.effect_noise((20, 20), 80).convert("RGB").save(buffer, form)
    data = bytearray(buffer.getvalue())
    for _ in range(rng.randint(1, 40)):
        data[rng.randrange(min(len(data), rng.choice([60, 10_000])))] = rng.randrange(256)
    said = ""
    try:
        assert load_images(bytes(data[: rng.randint(4, len(data))]))[0].mode == "RGB"
    except ValueError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 400


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

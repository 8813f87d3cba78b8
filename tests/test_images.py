"""What may be called an image, and what the messages say when it is none."""

import base64
import functools
import http.server
import io
import os
import random
import re
import socket
import struct
import threading
import urllib.parse
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from timeouts import HANG_SECONDS

from lookback.conversations import Conversation
from lookback.io.images import SCANS, SERVED, SIDE, SLOW_PIXELS, load_images, stored_image
from lookback.io.limits import IMAGE_ASPECT, LimitError


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


PIXELS = np.arange(4 * 5 * 4, dtype=np.uint8).reshape(4, 5, 4)


@pytest.mark.parametrize("channels", [3, 4, None])
def test_arrays_and_tensors_of_bytes_are_images(channels):
    pixels = PIXELS[..., 0] if channels is None else PIXELS[..., :channels]
    expected = Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB")
    for given in (pixels, torch.tensor(pixels), np.asfortranarray(pixels)):
        (found,) = load_images(given)
        assert (found.mode, found.size) == ("RGB", (5, 4))
        assert found.tobytes() == expected.tobytes()
    assert [one.size for one in load_images([pixels, torch.tensor(pixels)])] == [(5, 4)] * 2


def test_an_image_is_not_changed_with_the_array_that_it_was():
    pixels = np.zeros((4, 5, 3), np.uint8)
    (image,) = load_images(pixels)
    pixels[:] = 255
    assert image.getextrema() == ((0, 0),) * 3


@pytest.mark.parametrize(
    ("shape", "dtype", "way_out"),
    [
        ((3, 40, 50), "uint8", r"transpose\(1, 2, 0\)"),
        ((1, 40, 50), "uint8", r"transpose\(1, 2, 0\)"),
        ((40, 50, 3), "float32", r"0\.\.255"),
        ((3, 40, 50), "float64", r"0\.\.255.*transpose"),
        ((2, 40, 50, 3), "uint8", "list"),
        ((40, 50, 2), "uint8", "shape"),
        ((40, 50, 1), "uint8", "shape"),
        ((40,), "uint8", "shape"),
        ((), "uint8", "shape"),
        ((40, 50, 3), "int64", "uint8"),
        ((40, 50, 3), "bool", "uint8"),
    ],
)
def test_an_array_of_anything_else_is_named_by_type_dtype_and_shape(shape, dtype, way_out):
    pixels = np.zeros(shape, dtype)
    for given in (pixels, torch.tensor(pixels)):
        with pytest.raises(ValueError, match=way_out) as error:
            load_images(given)
        said = str(error.value)
        assert {type(given).__name__, dtype, str(shape)} <= set(re.findall(r"\w+|\(.*?\)", said))
        assert "0, 0" not in said  # nothing of what is in it
        assert len(said) < 400
    with pytest.raises(ValueError, match="bfloat16"):
        load_images(torch.zeros(4, 5, 3, dtype=torch.bfloat16))


@pytest.mark.parametrize("kind", ["meta", "sparse"])
def test_a_tensor_without_readable_pixels_is_named_by_type_and_shape(kind):
    pixels = torch.zeros(4, 5, 3, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"Tensor of uint8, shape \(4, 5, 3\)"):
        load_images(pixels.to("meta") if kind == "meta" else pixels.to_sparse())


@pytest.mark.parametrize("size", [(0, 0), (0, 5), (5, 0)])
def test_an_image_without_pixels_is_none(size):
    for given in (Image.new("RGB", size), np.zeros((*size[::-1], 3), np.uint8)):
        with pytest.raises(ValueError, match=rf"\({size[0]} x {size[1]}\) is no image"):
            load_images(given)


def test_an_image_that_is_nearly_a_line_is_refused_unless_it_is_allowed(monkeypatch):
    line = drawn_by_nobody("PNG", (402, 2))
    for given in (line, Image.new("L", (2, 402)), np.zeros((2, 402), np.uint8)):
        with pytest.raises(LimitError, match=r"201 to 1.*LOOKBACK_MAX_IMAGE_ASPECT="):
            load_images(given)
    assert load_images(drawn_by_nobody("PNG", (400, 2)))[0].size == (400, 2)
    monkeypatch.setenv("LOOKBACK_MAX_IMAGE_ASPECT", "201")
    assert load_images(line)[0].size == (402, 2)


@pytest.mark.parametrize("kind", ["<u2", ">u2"])
def test_sixteen_bits_of_grey_are_read_as_those_of_colours_are(kind):
    """By their higher byte; Pillow alone makes white of all above 255."""
    image = Image.fromarray(np.array([[0, 255, 256, 40_000, 65_535]], kind))
    stored = io.BytesIO()
    image.save(stored, "TIFF" if kind == ">u2" else "PNG")
    for given in (image, stored.getvalue()):
        (found,) = load_images(given)
        assert np.asarray(found)[0, :, 0].tolist() == [0, 0, 1, 156, 255]


@pytest.mark.parametrize("kind", ["float32", "int32"])
@pytest.mark.parametrize("value", [0.5, float("nan"), 40_000])
def test_pixels_without_a_range_are_refused(kind, value):
    with np.errstate(invalid="ignore"):
        image = Image.fromarray(np.full((4, 5), value).astype(kind))
    stored = io.BytesIO()
    image.save(stored, "TIFF")
    for given in (image, stored.getvalue()):
        with pytest.raises(ValueError, match=f"mode '{image.mode}'"):
            load_images(given)


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
    for given in ([Image.new("L", (4, 3))], {"bytes": b"x"}, bytearray(b"x"), memoryview(b"x")):
        with pytest.raises(ValueError, match=f"<{type(given).__name__}> is no image"):
            load_images([given])
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


def chunk(kind, data=b""):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def segment(marker, data):
    return b"\xff" + marker + struct.pack(">H", len(data) + 2) + data


def saved(image, form, **settings):
    buffer = io.BytesIO()
    image.save(buffer, form, **settings)
    return buffer.getvalue()


def with_chunks(before=b"", behind=b""):
    """A PNG with chunks before and behind its pixels."""
    whole = saved(Image.new("L", (4, 3)), "PNG")
    pixels, end = whole.index(b"IDAT") - 4, whole.index(b"IEND") - 4
    return whole[:pixels] + before + whole[pixels:end] + behind + whole[end:]


def with_strips(count):
    """A TIFF of 4 x 3 pixels with a table of so many strips."""
    sizes = [(256, 4), (257, 3), (258, 8), (259, 1), (262, 1), (277, 1), (278, 1)]
    tags = [(tag, 4, 1, value) for tag, value in sizes]
    table = 8 + 2 + 12 * (len(tags) + 1) + 4
    tags.insert(5, (273, 4, count, table))
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return head + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4) + bytes(4) * count


MANY = 40_000
ORIENTATIONS = b"II*\0" + struct.pack("<IHHHIII", 8, 1, 0x0112, 5, MANY, 26, 0) + b"\1" * 8 * MANY
"""Exif data whose orientation is a list of fractions."""
SLOW = {
    "JPEG of padding": b"\xff\xd8" + b"\xff" * MANY,
    "JPEG of empty segments": b"\xff\xd8" + segment(b"\xe5", b"") * MANY,
    "PPM of one comment": b"P6\n#" + b"x" * MANY + b"\n4 3\n255\n" + bytes(36),
    "PPM of comments": b"P6\n" + b"#\n" * MANY + b"4 3\n255\n" + bytes(36),
    "PNG with chunks before its pixels": with_chunks(before=chunk(b"abCd") * MANY),
    "PNG with chunks behind its pixels": with_chunks(behind=chunk(b"abCd") * MANY),
    "PNG with much Exif data before its pixels": with_chunks(before=chunk(b"eXIf", ORIENTATIONS)),
    "PNG with much Exif data behind its pixels": with_chunks(behind=chunk(b"eXIf", ORIENTATIONS)),
    "JPEG with much Exif data": b"\xff\xd8"
    + b"".join(
        segment(b"\xe1", b"Exif\0\0" + ORIENTATIONS[at : at + 65_000])
        for at in range(0, len(ORIENTATIONS), 65_000)
    )
    + saved(Image.new("L", (4, 3)), "JPEG")[2:],
    "GIF of comments": b"GIF89a" + struct.pack("<HHBBB", 4, 3, 0, 0, 0) + b"!\xfe\x01a\0" * MANY,
    "IM of comments": b"Image type: L\r\n" + b"Comment: x\r\n" * MANY,
    "PSD of empty resources": b"8BPS\0\1"
    + bytes(6)
    + struct.pack(">HIIHHII", 3, 3, 4, 8, 3, 0, 12 * MANY)
    + (b"8BIM\0\1" + bytes(6)) * MANY,
    "JPEG 2000 of empty boxes": b"\0\0\0\x0cjP  \r\n\x87\n"
    + struct.pack(">I4s", 8, b"abcd") * MANY,
    "TIFF of many strips": with_strips(2 * MANY),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_picture_that_takes_too_many_reads_is_refused(name):
    with pytest.raises(LimitError, match="bytes> takes too long to read"):
        load_images(SLOW[name])


def test_large_metadata_and_many_pieces_of_pixels_are_read():
    photo = Image.effect_noise((40, 30), 50).convert("RGB")
    profile, depth = bytes(600_000), segment(b"\xe1", b"x" * 65_000) * 40
    jpeg = saved(photo, "JPEG", icc_profile=profile)
    assert load_images(jpeg[:2] + depth + jpeg[2:])[0].size == (40, 30)
    assert load_images(with_chunks(before=chunk(b"abCd", bytes(3_000_000))))[0].size == (4, 3)
    pixels = zlib.compress(
        b"".join(b"\0" + random.Random(0).randbytes(2000) for _ in range(1000)), 0
    )
    pieces = [chunk(b"IDAT", pixels[at : at + 1024]) for at in range(0, len(pixels), 1024)]
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2000, 1000, 8, 0, 0, 0, 0))
    png = b"\x89PNG\r\n\x1a\n" + header + b"".join(pieces) + chunk(b"IEND")
    assert load_images(png)[0].size == (2000, 1000)
    for compression in (None, "tiff_lzw", "tiff_deflate"):
        tiff = saved(Image.effect_noise((900, 700), 50), "TIFF", compression=compression)
        assert load_images(tiff)[0].size == (900, 700)


def test_a_jpeg_of_many_scans_is_refused(decoded):
    jpeg = saved(Image.new("L", (16, 16), 9), "JPEG", progressive=True)
    scan, end = jpeg.rindex(b"\xff\xda"), jpeg.rindex(b"\xff\xd9")
    few, many = (jpeg[:end] + jpeg[scan:end] * count + jpeg[end:] for count in (SCANS // 2, SCANS))
    assert load_images(few + b"\xff\xda" * SCANS)[0].size == (16, 16)  # a film behind the photo
    del decoded[:]
    with pytest.raises(LimitError, match="scans"):
        load_images(many)
    assert not decoded


def test_pictures_that_are_decoded_in_python_have_few_pixels(decoded):
    width = SLOW_PIXELS // 1000 + 1
    for head in (b"P3\n%d 1000\n255\n", b"P6\n%d 1000\n100\n", b"P1\n%d 1000\n"):
        with pytest.raises(LimitError, match="1001 x 1000"):
            load_images(head % width)
    assert not decoded
    assert load_images(b"P3\n2 1\n255\n1 2 3 4 5 6\n")[0].tobytes() == bytes([1, 2, 3, 4, 5, 6])
    noise = Image.effect_noise((120, 120), 80).convert("RGB")
    assert load_images(saved(noise, "QOI"))[0].tobytes() == noise.tobytes()


def test_a_side_has_a_longest_length(decoded, monkeypatch):
    monkeypatch.setenv(IMAGE_ASPECT.variable, str(10**9))
    long = drawn_by_nobody("PNG", (1, SIDE + 1))
    for given in (long, Image.new("1", (SIDE + 1, 1))):
        with pytest.raises(LimitError, match=f"{SIDE + 1}"):
            load_images(given)
    assert not decoded
    assert load_images(drawn_by_nobody("PNG", (1, SIDE)))[0].size == (1, SIDE)


def test_two_threads_open_pictures_at_once(monkeypatch, png):
    Image.init()
    factory, accept = Image.OPEN["PNG"]
    both = threading.Barrier(2, timeout=HANG_SECONDS)

    def opened(source, name):
        both.wait()
        return factory(source, name)

    monkeypatch.setitem(Image.OPEN, "PNG", (opened, accept))
    other = threading.Thread(target=load_images, args=(png,))
    other.start()
    try:
        assert load_images(png)[0].size == (4, 3)
    finally:
        other.join()


def test_a_server_reads_fewer_formats(png):
    def uri(data):
        return f"data:image/any;base64,{base64.b64encode(data).decode()}"

    photo = Image.effect_noise((40, 30), 50).convert("RGB")
    for form in SERVED:
        data = saved(photo, form)
        assert stored_image(uri(data)) == data
    for form in ("JPEG2000", "PPM", "TGA", "QOI"):
        with pytest.raises(ValueError, match="is not an image"):
            stored_image(uri(saved(photo, form)))
    with pytest.raises(ValueError, match="neither a data URI nor a URL"):
        stored_image("a.png")


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
        ("data:image/png," + "%41" * 100_001, "give it as plain base64"),
    ],
)
def test_a_broken_data_uri_is_said_in_few_words(uri, said):
    with pytest.raises(ValueError, match=said) as error:
        load_images(uri)
    assert len(str(error.value)) < 200

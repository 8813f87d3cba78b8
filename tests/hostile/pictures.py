"""Pictures: cut, flipped, with heads that lie, of odd modes and sizes, in data URIs, or none."""

import base64
import io
import json
import struct
import zlib

from hostile.case import FAST, Case
from hostile.values import damage

FORMATS = (
    "PNG",
    "JPEG",
    "GIF",
    "BMP",
    "WEBP",
    "TIFF",
    "PPM",
    "JPEG2000",
    "TGA",
    "PCX",
    "ICO",
    "EPS",
)
MODES = ("RGB", "L", "1", "P", "RGBA", "LA", "CMYK", "I", "F", "I;16", "YCbCr")
SIZES = ((1, 1), (1, 1), (1, 400), (400, 1), (16, 16), (33, 57), (3, 1))


def make(rng, place):
    """One picture that is asked about, by name, by URI, or in a file of data."""
    about, data, suffix = rng.choice(WAYS)(rng)
    name = f"picture{suffix}"
    (place.folder / name).write_bytes(data)
    given = name
    if rng.random() < 0.2 and len(data) < 90_000:
        given = data_uri(rng, data)
    if rng.random() < 0.2:
        line = {"question": "What is it?", "image": given, "answers": "cup"}
        (place.folder / "own.jsonl").write_text(json.dumps(line))
        argv = ["run", "--data", "own.jsonl", "--out", "out", "-n", "2", "--max-new-tokens", "4"]
        return Case((*argv, *FAST), f"{about} in own data", own=("out",))
    argv = ["ask", given, "What is it?", "-n", "2", "--max-new-tokens", "4"]
    argv += [] if rng.random() < 0.15 else FAST
    return Case(tuple(argv), about)


def encoded(rng):
    """A sound picture of some mode and format; PNG where the format does not take the mode."""
    from PIL import Image

    mode, kind, size = rng.choice(MODES), rng.choice(FORMATS), rng.choice(SIZES)
    image = Image.new(mode, size)
    out = io.BytesIO()
    try:
        image.save(out, kind)
    except (OSError, KeyError, ValueError):
        out, kind = io.BytesIO(), "PNG"
        Image.new("RGB", size).save(out, kind)
    return f"{mode} {kind} {size}", out.getvalue(), f".{kind.lower()}"


def odd(rng):
    return encoded(rng)


def damaged(rng):
    about, data, suffix = encoded(rng)
    way, data = damage(rng, data)
    return f"{way} of {about}", data, suffix


def animated(rng):
    from PIL import Image

    kind = rng.choice(("GIF", "WEBP", "PNG", "TIFF"))
    frames = [Image.new("P", (20, 20), n) for n in range(rng.choice((2, 30)))]
    out = io.BytesIO()
    frames[0].save(out, kind, save_all=True, append_images=frames[1:])
    way, data = damage(rng, out.getvalue()) if rng.random() < 0.5 else ("whole", out.getvalue())
    return f"{way} animated {kind}", data, f".{kind.lower()}"


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def giant_head(width, height, depth=8, colour=2, interlaced=0):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))


def giant(rng):
    """A PNG of a few bytes whose head says that it is huge, or nothing."""
    side = rng.choice((0, 1, 8001, 12_000, 65_535, 2**31 - 1, 2**32 - 1))
    other = rng.choice((0, 1, side))
    depth, colour = rng.choice(((8, 2), (1, 0), (16, 6), (8, 3), (7, 9)))
    head = giant_head(side, other, depth, colour, rng.choice((0, 1)))
    body = zlib.compress(bytes(rng.choice((0, 10, 2_000_000))))
    parts = [head, chunk(b"IDAT", body), chunk(b"IEND", b"")]
    if rng.random() < 0.3:  # texts that unpack to much
        parts.insert(1, chunk(b"zTXt", b"k\x00\x00" + zlib.compress(bytes(50_000_000))))
    if rng.random() < 0.2:
        rng.shuffle(parts)
    return f"PNG of {side} x {other}", b"\x89PNG\r\n\x1a\n" + b"".join(parts), ".png"


def other(rng):
    """No picture at all."""
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
    data = rng.choice(
        [
            *(b"", b"\x00", b"text", svg, b"%PDF-1.7\n", b"PK\x03\x04", b"GIF89a", b"\xff\xd8\xff"),
            *(
                b"\x89PNG\r\n\x1a\n",
                b"BM" + bytes(60),
                b"RIFF\xff\xff\xff\xffWEBPVP8 ",
                bytes(4096),
            ),
            *(
                b"P6 99999 99999 255\n",
                b"P6 -1 -1 255\n",
                b"P3 9" + b"9" * 5000,
                b"II*\x00" + bytes(8),
            ),
            rng.randbytes(rng.randrange(1, 3000)),
        ]
    )
    suffix = rng.choice((".png", ".jpg", ".svg", ".mp4", ".gif", ".avi", "", ".PNG", ".tif"))
    return f"{data[:12]!r} as {suffix}", data, suffix


def data_uri(rng, data):
    kind = rng.choice(("image/png", "image/svg+xml", "", "text/html", "image/png;charset=x"))
    coded = base64.b64encode(data).decode()
    text = rng.choice(
        (coded, coded[:-3], coded[: len(coded) // 2], "%%%", "", coded + "é", data.hex())
    )
    return f"data:{kind}{rng.choice((';base64', ';base64', '', ';base32'))},{text}"


WAYS = (odd, damaged, damaged, damaged, animated, giant, other)

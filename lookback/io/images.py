"""What users call an image, as RGB Pillow images.

A path, a URL, a data URI (`data:image/png;base64,...`), bytes, a Pillow image, a NumPy array or a
tensor of bytes (height x width x 3), or a list of these.
What a picture costs is limited before it is decoded (`limits`); `fetch` gets what a URL names.
"""

from __future__ import annotations

import base64
import io
import math
import os
import re
import string
import struct
import urllib.parse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.errors import one_line
from lookback.io.fetch import fetch, get_policy, is_url, show_url
from lookback.io.files import read_bytes
from lookback.io.limits import IMAGE_ASPECT, IMAGE_MIB, IMAGE_PIXELS, LimitError
from lookback.io.storage import is_remote, to_path

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile
    from torch import Tensor

    from lookback.io.fetch import Policy

    ImageLike = str | os.PathLike[str] | bytes | Image | NDArray[np.uint8] | Tensor

__all__ = ["ImageLike", "fetch", "load_image", "load_images", "stored_image"]

SHOWN = 40
"""Characters of a data URI that messages show."""
SERVED = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "AVIF")
"""Formats that a server reads: their decoders let other threads run. OpenJPEG's does not."""
FORMATS = (
    *SERVED,
    *("JPEG2000", "PPM", "TGA", "PCX", "SGI", "SUN", "QOI", "DDS", "PSD", "XBM", "IM"),
)
"""Formats that have their size in their head, and that Pillow decodes alone.

An icon is decoded when it is opened, before its size is known, and EPS is a program to be run.
"""
ESCAPES = 100_000
"""Percent-encoded characters of a data URI: each takes 400 bytes of memory to decode."""
SIDE = 65_535
"""Pixels of the longer side, as of a JPEG: resizing one of millions stops all other threads."""
READS = 10_000
BYTES_PER_READ = 256
"""A decoder may read a picture READS times, and once more for so many of its bytes.

Photographs take a few hundred reads. A JPEG of 0xFF bytes, comments in a PPM's head and empty
chunks of a PNG take one for each byte or chunk: seconds of computing.
"""
TIFF_HEAD = 2**18
"""Bytes of a TIFF's tags, and of Exif data, which are such tags.

A table of five million strips takes half a minute and a gigabyte. Cameras write 64 KiB of Exif at
most; two million fractions for the orientation take four seconds.
"""
SLOW_PIXELS = 1_000_000
"""Pixels of a picture that Pillow decodes in Python, at some microseconds each."""
SCANS = 100
"""Scans of a JPEG: encoders write about ten, and each passes over all pixels again."""
_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])")  # of a JPEG; not those without a length


def load_images(
    image: ImageLike | Sequence[ImageLike] | None, policy: Policy | None = None
) -> list[Image]:
    """Return the image or images as a list of RGB Pillow images; None is the empty list.

    Args:
        image: one, or several.
        policy: which addresses a URL may reach, see `lookback.io.fetch`.

    Raises:
        ValueError: what is given is no image, or a broken or an enormous one; it names which.
        FileNotFoundError: there is no such file.
    """
    return [load_image(item, policy) for item in list_images(image)]


def list_images(image: Any) -> list[Any]:
    """Return one image, or several, or None, as a list, without reading any."""
    if image is None:
        return []
    single = isinstance(image, (str, bytes, bytearray, memoryview))
    return list(image) if isinstance(image, Sequence) and not single else [image]


def load_image(image: ImageLike, policy: Policy | None = None) -> Image:
    """Return an image as RGB, upright if its EXIF data say how; of several frames the first."""
    from PIL import ImageOps

    name = _name(image)
    pillow = to_pillow(image)
    opened = _open(_stored(image, policy), name) if pillow is None else pillow
    _check_size(*opened.size, name)
    try:
        if pillow is not None:  # it stays as it is
            return _to_rgb(ImageOps.exif_transpose(pillow))
        opened.load()  # a PNG may have its Exif data behind its pixels
        _check_exif(opened, name)
        ImageOps.exif_transpose(opened, in_place=True)  # without a copy: it may be a large one
        return _to_rgb(opened)
    except LimitError:
        raise
    except Exception as error:  # whatever a decoder says of bytes that anybody may have made
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: Exception) -> ValueError:
    return ValueError(f"cannot read the image {name}: {one_line(error)}")


def to_pillow(image: Any) -> Image | None:
    """Return a Pillow image as it is, an array or tensor of pixels as one, and None for all else.

    Raises:
        ValueError: the array is not bytes of height x width, or of these x 3 or x 4, or has none.
    """
    from PIL import Image

    if isinstance(image, Image.Image):
        return image
    if not hasattr(image, "__array__"):
        return None
    shape = tuple(image.shape)
    channels = shape[2:] if len(shape) > 1 else None
    if _dtype(image) != "uint8" or channels not in ((), (3,), (4,)):
        raise ValueError(
            f"{_name(image)} is no image: must be uint8 of shape (height, width, 3) for RGB, "
            f"(height, width, 4) for RGBA or (height, width) for grey{_way_out(image)}"
        )
    _check_size(shape[1], shape[0], _name(image))
    try:
        return Image.fromarray(np.asarray(image.cpu() if hasattr(image, "cpu") else image))
    except (TypeError, NotImplementedError) as error:  # a tensor that is sparse, or without data
        raise ValueError(f"{_name(image)} is no image: {one_line(error)}") from None


def _way_out(array: Any) -> str:
    """Return what to do with an array that is not one of pixels, if that is known."""
    shape, ways = tuple(array.shape), []
    if _dtype(array).startswith(("float", "bfloat")):
        ways.append("scale it to 0..255, round it and convert it to uint8")
    if len(shape) == 4:
        ways.append("give several images as a list")
    elif len(shape) == 3 and shape[0] in (1, 3, 4) and shape[2] not in (3, 4):
        ways.append("put the channels last, transpose(1, 2, 0) or permute(1, 2, 0)")
    return "".join(f"; {way}" for way in ways)


def _dtype(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def _check_size(width: int, height: int, name: str) -> None:
    """Raise ValueError for an image without pixels, LimitError for too many, before decoding it."""
    shown = f"{name} ({width} x {height})"
    if not (width and height):
        raise ValueError(f"{shown} is no image: it has no pixels")
    IMAGE_PIXELS.check(width * height, shown)
    ratio = max(width, height) // min(width, height)
    if ratio > IMAGE_ASPECT.most:
        raise IMAGE_ASPECT.error(f"{shown} is too narrow: {ratio:,} to 1")
    if max(width, height) > SIDE:
        raise LimitError(
            f"{shown} is too long: at most {SIDE:,} pixels a side are read; cut it, or make it "
            "smaller"
        )


def _to_rgb(image: Image) -> Image:
    """Convert to RGB; Pillow alone would make 16 bits white, and shares of 1 black."""
    from PIL import Image

    if image.mode.startswith("I;16"):  # the higher byte, as Pillow reads 16 bits of colours
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("F", "I"):
        raise ValueError(
            f"what is black and what is white is not known in mode {image.mode!r}: scale it to "
            "0..255 and convert it to mode 'L'"
        )
    return image.convert("RGB")


def stored_image(address: str, policy: Policy | None = None) -> bytes:
    """Return the bytes at a data URI or a URL, for a server: not decoded, but fit to be.

    Raises:
        ValueError: it is no picture, one of another format than `SERVED`, or one of too many bytes
            or pixels.
    """
    name = _name(address)
    if not (address.startswith("data:") or is_url(address)):
        raise ValueError(f"{name} is neither a data URI nor a URL")
    data = _stored(address, policy)
    _check_size(*_open(data, name, SERVED).size, name)
    return data


def _stored(image: Any, policy: Policy | None) -> bytes:
    if isinstance(image, str) and image.startswith("data:"):
        image = _decode(image)
    elif is_remote(image) and get_policy(policy) == "open":
        return read_bytes(to_path(image), IMAGE_MIB)
    elif is_url(image):
        return fetch(image, policy)
    if isinstance(image, bytes):
        IMAGE_MIB.check(len(image), _name(image))
        return image
    if not isinstance(image, (str, os.PathLike)):
        raise ValueError(
            f"{_name(image)} is no image: give a path, a URL, a data URI, bytes, a PIL image, an "
            "array, or a list"
        )
    try:
        return read_bytes(image, IMAGE_MIB)
    except FileNotFoundError:
        raise FileNotFoundError(f"no image file {_name(image)}") from None
    except OSError as error:
        raise _unreadable(_name(image), error) from error


class _Source(io.BytesIO):
    """The bytes of a picture, of which a decoder may read only so often and, for now, so much."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self._name = name
        self.reads: float = READS + len(data) // BYTES_PER_READ
        self.head = math.inf

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._count(len(data))
        return data

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        self._count(len(line))
        return line

    def _count(self, size: int) -> None:
        self.reads -= 1
        self.head -= size
        if self.reads < 0 or self.head < 0:
            raise LimitError(
                f"{self._name} takes too long to read: it has too much before its pixels, or is in "
                "too many pieces; save it again as a PNG or JPEG without metadata"
            )


def _open(data: bytes, name: str, formats: Sequence[str] = FORMATS) -> ImageFile:
    """Return an image of which only the head is read.

    Not by `Image.open`: it has a limit of its own, one for all threads, that may be lower.
    """
    from PIL import Image

    Image.init()
    source = _Source(data, name)
    for kind in formats:
        if kind not in Image.OPEN:  # Pillow is built without it
            continue
        factory, accept = Image.OPEN[kind]
        try:
            accepted = accept is None or accept(data[:16])
            if not accepted or isinstance(accepted, str):  # it says why not
                continue
            source.seek(0)
            source.head = TIFF_HEAD if kind == "TIFF" else math.inf
            opened = factory(source, "")
        except (SyntaxError, IndexError, TypeError, struct.error):  # it is of another format
            continue
        except LimitError:
            raise
        except Exception as error:  # as above
            raise _unreadable(name, error) from error
        source.head = math.inf
        _check_decoding(opened, source, name)
        return opened
    raise ValueError(f"{name} is not an image (or of a format that is not read here)")


def _check_decoding(image: ImageFile, source: _Source, name: str) -> None:
    """Raise LimitError for an image that takes far longer to decode than others of its size."""
    from PIL.Image import DECODERS

    if any(tile[0] in DECODERS for tile in image.tile):  # those that are written in Python
        width, height = image.size
        if width * height > SLOW_PIXELS:
            raise LimitError(
                f"{name} ({width} x {height}) takes too long to decode: of its kind of "
                f"{image.format}, at most {SLOW_PIXELS:,} pixels are read; save it as a PNG or JPEG"
            )
        source.reads = math.inf
    if image.format in ("JPEG", "MPO") and _count_scans(source.getvalue()) > SCANS:
        raise LimitError(
            f"{name} takes too long to decode: it has more than {SCANS} scans; save it again"
        )


def _check_exif(image: Image, name: str) -> None:
    """Raise LimitError for an image with more Exif data than are parsed in a moment."""
    size = len(image.info.get("exif") or b"")
    size = max(size, len(image.info.get("Raw profile type exif") or "") // 2)  # in hexadecimal
    if size > TIFF_HEAD:
        raise LimitError(
            f"{name} takes too long to read: it has {size:,} bytes of Exif data, and at most "
            f"{TIFF_HEAD:,} are read; save it again without metadata"
        )


def _count_scans(data: bytes) -> int:
    """Return how many scans a JPEG has; infinitely many if it is in too many pieces."""
    at = scans = 0
    for _ in range(READS):
        marker = _MARKER.search(data, at)
        if marker is None or marker[1] == b"\xd9":  # its end
            return scans
        scans += marker[1] == b"\xda"
        at = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2])
    return READS


def _decode(uri: str) -> bytes:
    """Return what a data URI holds: base64, or else percent-encoded bytes."""
    IMAGE_MIB.check(len(uri) * 3 // 4, _name(uri))  # base64 has four letters for three bytes
    about, comma, text = uri.partition(",")
    if not comma:
        raise ValueError(f"{_name(uri)} is no data URI: it has no comma before the data")
    if text.count("%") > ESCAPES:
        raise LimitError(
            f"{_name(uri)} has more than {ESCAPES:,} characters that are percent-encoded: give it "
            "as plain base64"
        )
    data = urllib.parse.unquote_to_bytes(text)
    if not about.endswith(";base64"):
        return data
    try:
        return base64.b64decode(data.translate(None, string.whitespace.encode()), validate=True)
    except ValueError as error:
        raise ValueError(f"{_name(uri)} is a broken data URI: {error}") from None


def _name(image: Any) -> str:
    """Return what messages call an image: never what is in it."""
    if isinstance(image, str) and image.startswith("data:") and len(image) > SHOWN:
        return f"{image[:SHOWN] + '...'!r} ({len(image)} characters)"
    if isinstance(image, bytes):
        return f"<{len(image)} bytes>"
    if isinstance(image, str) and is_url(image):
        return show_url(image)
    if isinstance(image, (str, os.PathLike)):
        return repr(os.fspath(image))
    if isinstance(image, (int, float)):
        return repr(image)
    kind = f"{type(image).__module__}.{type(image).__qualname__}".removeprefix("builtins.")
    if hasattr(image, "__array__") and hasattr(image, "shape"):
        return f"<{kind} of {_dtype(image)}, shape {tuple(image.shape)}>"
    return f"<{kind}>"

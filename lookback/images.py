"""What users call an image, as RGB Pillow images.

A path, a URL, a data URI (`data:image/png;base64,...`), bytes, a Pillow image, or a list of these.
What a picture costs is limited before it is decoded (`limits`); `fetching` gets what a URL names.
"""

from __future__ import annotations

import base64
import io
import os
import threading
import urllib.parse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lookback.connecting import get_policy, show_url
from lookback.fetching import fetch, is_url
from lookback.limits import IMAGE_MIB, IMAGE_PIXELS, one_line
from lookback.reading import check_file, read_bytes
from lookback.storage import is_remote, to_path

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.connecting import Policy

    ImageLike = str | os.PathLike[str] | bytes | Image

__all__ = ["ImageLike", "fetch", "load_image", "load_images", "stored_image"]

SHOWN = 40
"""Characters of a data URI that messages show."""
FORMATS = (
    *("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "DIB", "TIFF", "AVIF", "JPEG2000"),
    *("PPM", "TGA", "PCX", "SGI", "SUN", "QOI", "DDS", "PSD", "XBM", "IM"),
)
"""Those whose size stands in their head, and that Pillow decodes alone.

An icon is decoded when it is opened, before its size is known, and EPS is a program to be run.
"""
_OPENING = threading.Lock()


def load_images(
    image: ImageLike | Sequence[ImageLike] | None, policy: Policy | None = None
) -> list[Image]:
    """The image or images as a list of RGB Pillow images; None is the empty list.

    Args:
        image: one, or several.
        policy: whom a URL may reach, see `fetching`.

    Raises:
        ValueError: what is given is no image, or a broken or an enormous one; it names which.
        FileNotFoundError: there is no such file.
    """
    if image is None:
        return []
    if isinstance(image, Sequence) and not isinstance(image, (str, bytes)):
        return [load_image(one, policy) for one in image]
    return [load_image(image, policy)]


def load_image(image: ImageLike, policy: Policy | None = None) -> Image:
    """One image as RGB, turned upright if its EXIF data say so; of several frames the first."""
    from PIL import Image, ImageOps

    name = _name(image)
    given = image if isinstance(image, Image.Image) else None
    opened = _open(_stored(image, policy), name) if given is None else given
    width, height = opened.size
    IMAGE_PIXELS.check(width * height, f"{name} ({width} x {height})")
    try:
        if given is not None:  # it stays as it is
            return ImageOps.exif_transpose(given).convert("RGB")
        ImageOps.exif_transpose(opened, in_place=True)  # without a copy: it may be a large one
        return opened.convert("RGB")
    except Exception as error:  # whatever a decoder says of bytes that anybody may have made
        raise ValueError(
            f"cannot read the image {name}: {one_line(error) or type(error).__name__}"
        ) from error


def stored_image(address: str, policy: Policy | None = None) -> bytes:
    """The bytes of a picture at a data URI or a URL, once its head was read; not decoded yet.

    Raises:
        ValueError: it is no picture, or one of too many bytes or pixels.
    """
    name, found = _name(address), _stored(address, policy)
    if not isinstance(found, bytes):
        raise ValueError(f"{name} is neither a data URI nor a URL")
    width, height = _open(found, name).size
    IMAGE_PIXELS.check(width * height, f"{name} ({width} x {height})")
    return found


def _stored(image: Any, policy: Policy | None) -> bytes | str | os.PathLike[str]:
    """An image as it is stored: its bytes, or the path of a file that may be opened."""
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
            f"{_name(image)} is no image: give a path, a URL, a data URI, bytes, a PIL image, or "
            "a list"
        )
    try:
        check_file(image, IMAGE_MIB)
    except FileNotFoundError:
        raise FileNotFoundError(f"no image file {_name(image)}") from None
    except OSError as error:
        raise ValueError(
            f"cannot read the image {_name(image)}: {one_line(error) or type(error).__name__}"
        ) from error
    return image


def _open(stored: bytes | str | os.PathLike[str], name: str) -> Image:
    """An image of which only the head is read.

    Pillow's own limit is put aside for that moment, as it may be lower than ours.
    """
    from PIL import Image, UnidentifiedImageError

    Image.init()
    formats = [one for one in FORMATS if one in Image.OPEN]
    source = io.BytesIO(stored) if isinstance(stored, bytes) else stored
    with _OPENING:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(source, formats=formats)
        except UnidentifiedImageError:
            raise ValueError(
                f"{name} is not an image (or of a format that is not read here)"
            ) from None
        except Exception as error:  # as above
            raise ValueError(
                f"cannot read the image {name}: {one_line(error) or type(error).__name__}"
            ) from error
        finally:
            Image.MAX_IMAGE_PIXELS = before


def _decode(uri: str) -> bytes:
    """What a data URI holds: base64, or else percent-encoded bytes."""
    IMAGE_MIB.check(len(uri) * 3 // 4, _name(uri))  # base64 has four letters for three bytes
    about, comma, text = uri.partition(",")
    if not comma:
        raise ValueError(f"{_name(uri)} is no data URI: it has no comma before the data")
    data = urllib.parse.unquote_to_bytes(text)
    if not about.endswith(";base64"):
        return data
    try:
        return base64.b64decode(b"".join(data.split()), validate=True)
    except ValueError as error:
        raise ValueError(f"{_name(uri)} is a broken data URI: {error}") from None


def _name(image: object) -> str:
    if isinstance(image, str) and image.startswith("data:") and len(image) > SHOWN:
        return f"{image[:SHOWN] + '...'!r} ({len(image)} characters)"
    if isinstance(image, bytes):
        return f"<{len(image)} bytes>"
    if isinstance(image, str) and is_url(image):
        return show_url(image)
    return repr(os.fspath(image)) if isinstance(image, (str, os.PathLike)) else f"{image!r:.200}"

"""What users call an image, as RGB Pillow images.

A path, a URL, a data URI (`data:image/png;base64,...`), bytes, a Pillow image, or a list of these.
"""

from __future__ import annotations

import base64
import io
import os
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

    ImageLike = str | os.PathLike[str] | bytes | Image

URL_TIMEOUT = 30.0
URL_MAX_BYTES = 100 * 2**20
SHOWN = 40
"""Characters of a data URI that messages show."""


def load_images(image: ImageLike | Sequence[ImageLike] | None) -> list[Image]:
    """The image or images as a list of RGB Pillow images; None is the empty list.

    Raises:
        ValueError: what is given is no image, or a broken or an enormous one; it names which.
        FileNotFoundError: there is no such file.
    """
    if image is None:
        return []
    if isinstance(image, Sequence) and not isinstance(image, (str, bytes)):
        return [load_image(one) for one in image]
    return [load_image(image)]


def load_image(image: ImageLike) -> Image:
    """One image as RGB, turned upright if its EXIF data say so."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    name = _name(image)
    try:
        if isinstance(image, Image.Image):
            opened = image
        elif isinstance(image, bytes):
            opened = Image.open(io.BytesIO(image))
        elif isinstance(image, str) and image.startswith(("http://", "https://")):
            opened = Image.open(io.BytesIO(_download(image)))
        elif isinstance(image, str) and image.startswith("data:"):
            opened = Image.open(io.BytesIO(_decode(image)))
        elif isinstance(image, (str, os.PathLike)):
            opened = Image.open(image)
        else:
            raise ValueError(
                f"{name} is no image: give a path, a URL, a data URI, bytes, a PIL image, or a list"
            )
        return ImageOps.exif_transpose(opened).convert("RGB")
    except FileNotFoundError:
        raise FileNotFoundError(f"no image file {name}") from None
    except UnidentifiedImageError:
        raise ValueError(f"{name} is not an image (or of a format Pillow does not know)") from None
    except Image.DecompressionBombError as error:
        raise ValueError(f"{name} is too large: {error}") from None
    except (OSError, SyntaxError) as error:  # Pillow's words for a truncated or broken file
        raise ValueError(f"cannot read the image {name}: {error}") from error


def _download(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "lookback"})
    with urllib.request.urlopen(request, timeout=URL_TIMEOUT) as reply:
        data: bytes = reply.read(URL_MAX_BYTES + 1)
    if len(data) > URL_MAX_BYTES:
        raise ValueError(f"{url} is larger than {URL_MAX_BYTES // 2**20} MiB")
    return data


def _decode(uri: str) -> bytes:
    """What a data URI holds: base64, or else percent-encoded bytes."""
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
    return repr(os.fspath(image)) if isinstance(image, (str, os.PathLike)) else repr(image)

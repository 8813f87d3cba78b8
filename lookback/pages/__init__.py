"""The one home of pages: templates, escaping, and pictures that travel inside a page.

A page is one file that needs no network. Its texts come from models and from anybody's files, so
the templates (Jinja2, in templates/) escape every value; only `Markup` goes in as it is. Scripts
and styles that several pages use are in templates/common/; a page lists those that it needs.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lookback.io.json_values import whole_text

if TYPE_CHECKING:
    from PIL.Image import Image

UNBROKEN = 500
"""Characters without a blank that a page has in a row: the time in which browsers find line breaks
grows with the square of their number."""
_RUN = re.compile(rf"\S{{{UNBROKEN}}}(?=\S)")
LOSSLESS = 128
"""Pixels: up to this size an image is stored as PNG; a small drawing should keep them all."""
_CONTROLS = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - {*map(ord, "\t\n\r")}, "\ufffd")


def render(template: str, **values: Any) -> str:
    """Render a template by its path below templates/; a value that it names must be there."""
    return ENVIRONMENT.get_template(template).render(values)


def check_writable(target: Path) -> None:
    """Check that a file can be written, before the work for it begins.

    Raises:
        FileNotFoundError: its folder is not there.
        IsADirectoryError: it is a folder.
        PermissionError: one may not write there.
    """
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a folder: name a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {str(target.parent)!r}: make it first")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise PermissionError(f"cannot write {str(target)!r}: name another file")


def clean(text: object) -> str:
    """Return text that a page can hold.

    Lone surrogates, which no encoding can carry, become U+FFFD, and so do control characters,
    which HTML does not allow. Templates do this to every value.
    """
    return whole_text(str(text)).translate(_CONTROLS)


def data_uri(kind: str, data: bytes) -> str:
    """Return a file as it stands inside a page; `kind` is its MIME type."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def image_uri(image: Image, largest: int = 512) -> str:
    """Return an image as it stands inside a page: as PNG if it is small, else as WebP.

    Args:
        image: of any mode; transparency is lost.
        largest: pixels that its longer side has at most; a larger one is made smaller.
    """
    picture = image.convert("RGB")
    picture.thumbnail((largest, largest))
    form = "png" if max(picture.size) <= LOSSLESS else "webp"
    return data_uri(f"image/{form}", encoded(picture, form, quality=85))


def encoded(image: Image, form: str = "png", **settings: Any) -> bytes:
    """Return an image as the bytes of a file; as PNG, without loss."""
    buffer = io.BytesIO()
    image.save(buffer, form, **settings)
    return buffer.getvalue()


def _finalize(value: object) -> object:
    """Clean every value that a template shows, before it is escaped."""
    return value if isinstance(value, Markup) else clean(value)


def _source(*paths: str) -> Markup:
    """Return stylesheets or scripts of ours, to stand inside a page as they are."""
    loader = ENVIRONMENT.loader
    assert loader is not None
    return Markup("").join(Markup(loader.get_source(ENVIRONMENT, path)[0]) for path in paths)


def _prose(text: str) -> Markup:
    """Return a sentence with `code` as code."""
    safe = str(escape(clean(text)))  # as str: of Markup, the tags would be escaped as they come in
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", safe))


def _breakable(text: str) -> Markup:
    """Add a place to break a line after every `UNBROKEN` characters without a blank."""
    shown, pieces, done = clean(text), [], 0
    for run in _RUN.finditer(shown):
        pieces.append(shown[done : run.end()])
        done = run.end()
    return Markup("<wbr>").join([*pieces, shown[done:]])


def _number(value: float | None, digits: int) -> str:
    """Return a number with a true minus sign; a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}f}".replace("-", "−")


def _digest(text: str) -> str:
    """Return the name that a Content-Security-Policy has for an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


ENVIRONMENT = Environment(
    loader=PackageLoader("lookback.pages", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalize,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
ENVIRONMENT.globals["source"] = _source
ENVIRONMENT.filters |= {
    "prose": _prose,
    "breakable": _breakable,
    "number": _number,
    "digest": _digest,
    "image_uri": image_uri,
}
# As `tojson` writes data: ASCII, so that lone surrogates still arrive, and "<" never as itself, so
# that no text can end the script element that holds it.
ENVIRONMENT.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}

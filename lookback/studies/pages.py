"""Small HTML pages that need no other file, and the items' images for them."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from lookback.benchmarks.base import get_benchmark
from lookback.runs import Run

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST = 512
"""Pixels: a larger image is made smaller for a page."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #111827; }
section { border-top: 1px solid #e5e7eb; padding: 1rem 0; }
img { width: 14rem; border: 1px solid #e5e7eb; }
h2 { font-size: 1rem; }
.muted { color: #6b7280; }
"""


def images(run: Run) -> Callable[[int], Image | str]:
    """Gives the image of the item at a position of the split, or says why there is none."""
    try:
        items = get_benchmark(run.benchmark, run.manifest.data).items(str(run.settings["split"]))
    except (OSError, ValueError, ImportError) as error:
        reason = str(error)
        return lambda place: reason

    ids = dict(zip(run.items["item"].to_pylist(), run.items["id"].to_pylist(), strict=True))

    def image(place: int) -> Image | str:
        try:
            item = items[place]
            if item.id != ids[place]:
                return f"the benchmark has {item.id} where the run has {ids[place]}"
            return item.image or "this question is asked without an image"
        except (OSError, ValueError, IndexError) as error:
            return str(error)

    return image


def tag(image: Image | str) -> str:
    """An image as an element with its pixels in it; without one, words in its place."""
    if isinstance(image, str):
        return '<p class="muted">(There is no image here.)</p>'
    small = image.convert("RGB")
    small.thumbnail((LARGEST, LARGEST))
    data = io.BytesIO()
    small.save(data, "JPEG", quality=90)
    return f'<img alt="" src="{uri("image/jpeg", data.getvalue())}">'


def page(title: str, body: str, style: str = "", script: str = "") -> str:
    """A whole page; `body` is HTML, its texts escaped."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n"
        f"<body>\n<h1>{escaped(title)}</h1>\n{body}\n"
        + (f"<script>{script}</script>\n" if script else "")
        + "</body>\n</html>\n"
    )


def escaped(text: object) -> str:
    """Text for HTML; lone surrogates, which no encoding can carry, become U+FFFD."""
    clean = str(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return html.escape(clean)


def uri(kind: str, data: bytes) -> str:
    """A file inside a page."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"

"""The images of items, small enough to travel inside a page."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from lookback.runs import Run
from lookback.studies.pages import images, uri

if TYPE_CHECKING:
    from PIL.Image import Image

LONG_SIDE = 384
"""Pixels that an image has at most."""
LOSSLESS_SIDE = 128
"""Up to this size an image is stored as PNG: a drawing of few pixels should keep them all."""


class Pictures:
    """Data URIs of images, each once, whichever runs show it."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self._found: dict[tuple[str, str, str], int] = {}

    def of(self, run: Run) -> Callable[[int, str], tuple[int | None, str]]:
        """From an item's position in the split and its id to the position among `uris` of its image
        and ""; or to None and why there is none.
        """
        image_at = images(run)

        def find(place: int, name: str) -> tuple[int | None, str]:
            key = (run.benchmark, str(run.settings["split"]), name)
            if key not in self._found:
                image = image_at(place)
                if isinstance(image, str):
                    return None, image
                self.uris.append(data_uri(image))
                self._found[key] = len(self.uris) - 1
            return self._found[key], ""

        return find


def data_uri(image: Image) -> str:
    """An image as PNG if it is small, else as WebP of at most `LONG_SIDE` pixels."""
    picture = image.convert("RGB")
    picture.thumbnail((LONG_SIDE, LONG_SIDE))
    form = "png" if max(picture.size) <= LOSSLESS_SIDE else "webp"
    buffer = io.BytesIO()
    picture.save(buffer, form, quality=80)
    return uri(f"image/{form}", buffer.getvalue())

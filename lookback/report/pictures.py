"""The images of items, small enough to travel inside a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lookback.benchmarks import Item, get_benchmark
from lookback.runs import Run

if TYPE_CHECKING:
    from PIL.Image import Image

LONG_SIDE = 384
"""Pixels that an image has at most."""
LOSSLESS_SIDE = 128
"""Up to this size an image is stored as PNG: a drawing of few pixels should keep them all."""


class Pictures:
    """The pictures of items as data URIs, each once."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self._splits: dict[tuple[str, str], Sequence[Item] | Exception] = {}
        self._found: dict[tuple[str, str, int], tuple[int | None, str]] = {}

    def find(self, run: Run, place: int, name: str) -> tuple[int | None, str]:
        """The position among `uris` of an item's image and ""; or None and why there is none."""
        split = str(run.what["split"])
        key = (run.benchmark, split, place)
        if key not in self._found:
            try:
                item = self._split(run.benchmark, split)[place]
                if item.id != name:
                    raise ValueError(f"item {place} of these files is {item.id!r}, not {name!r}")
                self.uris.append(data_uri(item.image))
                self._found[key] = len(self.uris) - 1, ""
            # A page without pictures still serves, and it says what it lacks.
            except (OSError, ValueError, LookupError, ImportError) as error:
                self._found[key] = None, str(error) or type(error).__name__
        return self._found[key]

    def _split(self, benchmark: str, split: str) -> Sequence[Item]:
        """A split's items; what failed once is not tried again for every item."""
        if (benchmark, split) not in self._splits:
            try:
                self._splits[benchmark, split] = get_benchmark(benchmark).items(split)
            except (OSError, ValueError, LookupError, ImportError) as error:
                self._splits[benchmark, split] = error
        found = self._splits[benchmark, split]
        if isinstance(found, Exception):
            raise found
        return found


def data_uri(image: Image) -> str:
    """An image as PNG if it is small, else as WebP of at most `LONG_SIDE` pixels."""
    picture = image.convert("RGB")
    picture.thumbnail((LONG_SIDE, LONG_SIDE))
    form = "png" if max(picture.size) <= LOSSLESS_SIDE else "webp"
    buffer = io.BytesIO()
    picture.save(buffer, form, quality=80)
    return f"data:image/{form};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"

"""The pictures of a page, each once, whichever runs and items show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lookback.pages import image_uri
from lookback.runs import Run
from lookback.runs.items import item_images

LARGEST = 384
"""Pixels that an image of an item has at most."""


class Pictures:
    """Data URIs of images, each once."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self._found: dict[tuple[Any, ...], int] = {}

    @property
    def size(self) -> int:
        """Characters that they take in the page."""
        return sum(map(len, self.uris))

    def of(self, run: Run) -> Callable[[int, str], tuple[int | None, str]]:
        """From an item's position in the split and its id to the position among `uris` of its image
        and ""; or to None and why there is none.
        """
        image_at = item_images(run)

        def find(place: int, name: str) -> tuple[int | None, str]:
            key = (run.benchmark, run.settings["split"], run.settings.get("items"), name)
            if key not in self._found:
                image = image_at(place)
                if isinstance(image, str):
                    return None, image
                self.uris.append(image_uri(image, LARGEST))
                self._found[key] = len(self.uris) - 1
            return self._found[key], ""

        return find

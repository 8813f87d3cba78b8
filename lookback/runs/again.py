"""A run's items from the benchmark once more: a run keeps names and hashes of images alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lookback.benchmarks.base import Item, get_benchmark
from lookback.runs.run import Run

if TYPE_CHECKING:
    from PIL.Image import Image


class Again:
    """Finds them by their position in the split.

    Attributes:
        reason: why there are none; empty if there are.
    """

    def __init__(self, run: Run) -> None:
        self.reason = ""
        self._items: Sequence[Item] = ()
        self._names: dict[int, str] = {}
        try:
            benchmark = get_benchmark(run.benchmark, run.manifest.data)
            self._items = benchmark.items(str(run.settings["split"]))
        except (OSError, ValueError, ImportError) as error:
            self.reason = str(error)
            return
        places, names = (run.items[column].to_pylist() for column in ("item", "id"))
        self._names = dict(zip(places, names, strict=True))

    def item(self, place: int) -> Item:
        """The item at a position.

        Raises:
            ValueError: there are none, or the benchmark has another one there.
            IndexError: the split is shorter.
            OSError: it cannot be read.
        """
        if self.reason:
            raise ValueError(self.reason)
        item, name = self._items[place], self._names[place]
        if item.id != name:
            raise ValueError(f"the benchmark has {item.id} where the run has {name}")
        return item


def item_images(run: Run) -> Callable[[int], Image | str]:
    """Gives the image of the item at a position of the split, or says why there is none."""
    again = Again(run)

    def image(place: int) -> Image | str:
        try:
            return again.item(place).image or "this question is asked without an image"
        except (OSError, ValueError, IndexError) as error:
            return str(error)

    return image

"""The items of a run's benchmark: what is asked about each, and where to find them again."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lookback.benchmarks.base import Item, get_benchmark
from lookback.conversations import NO_SOURCE, Conversation
from lookback.runs.layout import RunError

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.runs.plan import Plan
    from lookback.runs.run import Run


@dataclass(frozen=True)
class Question:
    """What the model is shown and asked about an item."""

    item: Item
    place: int  # the item's position in the split
    conversation: Conversation
    source: str | None  # what A_t is measured on
    image: str | None  # the id of the item that the images belong to


class Questions:
    """What is asked about each item, and with which image."""

    def __init__(self, plan: Plan, items: Sequence[Item], places: Sequence[int]) -> None:
        self.mode, self.seed, self.source = plan.image, plan.seed, plan.source
        self.items, self.places = items, places

    def of(self, place: int) -> Question:
        """Return the question about the item at a position of the split.

        A random image is that of another of the items in `places` (an item that failed may have an
        image that cannot be read); one that looks the same, as when two questions are about one
        picture, is drawn again.
        """
        item = self.items[place]
        if self.mode == "none" and item.messages is None:  # its image need not be readable
            return self._question(place, Conversation.of(None, item.question), None)
        own = item.conversation
        if self.mode == "none":
            own = own.with_images(None)
        if not own.parts("image") and not own.parts("video"):
            return self._question(place, own, None)
        if self.mode == "own":
            return self._question(place, own, item.id)
        images, other = self._random(item)
        return self._question(place, own.with_images(images), other)

    def _question(self, place: int, conversation: Conversation, image: str | None) -> Question:
        # Without image and marked text there is nothing to look at, and that is known.
        blind = image is None and not any(part.source for part in conversation.parts("text"))
        source = NO_SOURCE if blind else self.source
        return Question(self.items[place], place, conversation, source, image)

    def _random(self, item: Item) -> tuple[list[Image], str]:
        """Return the images of another item, and its id."""
        own = item.conversation.images
        rng = np.random.default_rng([self.seed, zlib.crc32(item.id.encode())])
        for _ in range(100):
            other = self.items[self.places[int(rng.integers(len(self.places)))]]
            images = other.conversation.images if other.id != item.id else []
            if images and not _same(own[0], images[0]):
                return images, other.id
        raise RunError("100 random images were all the item's own: are there others?")


def _same(first: Image, second: Image) -> bool:
    return first.size == second.size and first.tobytes() == second.tobytes()


class ItemLookup:
    """The items of a run, read again from its benchmark: a run keeps names of images alone."""

    def __init__(self, run: Run) -> None:
        self.reason = ""  # why they cannot be read
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
        """Return the item at a position of the split.

        Raises:
            ValueError: there are none, or the benchmark has another one there.
            IndexError: the split is shorter.
            OSError: it cannot be read.
        """
        if self.reason:
            raise RunError(self.reason)
        item, name = self._items[place], self._names[place]
        if item.id != name:
            raise RunError(f"the benchmark has {item.id} where the run has {name}")
        return item


def item_images(run: Run) -> Callable[[int], Image | str]:
    """Return a function from an item's position to its image, or to why there is none."""
    lookup = ItemLookup(run)

    def image(place: int) -> Image | str:
        try:
            return lookup.item(place).image or "this question is asked without an image"
        except (OSError, ValueError, IndexError) as error:
            return str(error)

    return image

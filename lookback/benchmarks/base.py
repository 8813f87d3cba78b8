"""What every benchmark offers: items to ask about, a score for one response, a summary of many.

A benchmark knows nothing of models: it hands out images and questions and judges text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, overload

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Item:
    """One question about one image.

    Attributes:
        id: unique within the benchmark; names split and position.
        question: the whole prompt text beside the image.
        truth: what `Benchmark.score` needs, as JSON-able data.
        load: makes the image; called at every access to `image`.
    """

    id: str
    question: str
    truth: dict[str, Any]
    load: Callable[[], Image]

    @property
    def image(self) -> Image:
        """The image, read or drawn now."""
        return self.load()


class Items(Sequence[Item]):
    """Items made on access, so that a long split costs nothing until it is read.

    Args:
        indices: which positions of the split these are.
        make: the item at a position; must be pure.
    """

    def __init__(self, indices: range, make: Callable[[int], Item]) -> None:
        self._indices = indices
        self._make = make

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Items: ...

    def __getitem__(self, index: int | slice) -> Item | Items:
        if isinstance(index, slice):
            return Items(self._indices[index], self._make)
        return self._make(self._indices[index])


class Benchmark(Protocol):
    """Items, a prompt and a metric.

    Attributes:
        name: as `get_benchmark` takes it.
        primary: the key of `aggregate`'s result that a table shows; the mean of `score`.
    """

    name: str
    primary: str

    def items(self, split: str = "test", limit: int | None = None) -> Sequence[Item]:
        """The first `limit` items of a split (all if None), made on access."""

    def score(self, item: Item, response: str) -> float:
        """The quality of one response, in [0, 1]; higher is better."""

    def aggregate(self, items: Sequence[Item], responses: Sequence[str]) -> dict[str, float]:
        """Metrics over one response an item, in per cent; 100 times the mean `score` is one."""


_WHERE = {
    "scenes-vqa": "lookback.benchmarks.scenes.vqa:ScenesVQA",
    "scenes-caption": "lookback.benchmarks.scenes.caption:ScenesCaption",
    "scenes-amber": "lookback.benchmarks.scenes.amber:ScenesAmber",
    "scenes-pairs": "lookback.benchmarks.scenes.pairs:ScenesPairs",
}
BENCHMARKS: tuple[str, ...] = tuple(_WHERE)


def get_benchmark(name: str) -> Benchmark:
    """The benchmark of that name, its module loaded only now.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in _WHERE:
        raise ValueError(f"no benchmark named {name!r}; there are: {', '.join(BENCHMARKS)}")
    module, _, attribute = _WHERE[name].partition(":")
    benchmark: Benchmark = getattr(import_module(module), attribute)()
    return benchmark

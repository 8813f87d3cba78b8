"""What every benchmark offers: items to ask about, a score for one response, a summary of many.

A benchmark knows nothing of models: it hands out images and questions and judges text.
"""

from __future__ import annotations

import inspect
import os
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
        load: makes the image; called at every access to `image`. None if it is asked without one.
        aliases: other ids that a file of responses may use for it.
    """

    id: str
    question: str
    truth: dict[str, Any]
    load: Callable[[], Image] | None
    aliases: tuple[str, ...] = ()

    @property
    def image(self) -> Image | None:
        """The image, read or drawn now; None for an item that has none."""
        return None if self.load is None else self.load()


class Items(Sequence[Item]):
    """Items made on access, so that a long split costs nothing until it is read.

    Args:
        indices: which positions of the split these are.
        make: the item at a position; must be pure.
    """

    def __init__(self, indices: Sequence[int], make: Callable[[int], Item]) -> None:
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
        source: where its items come from, in words.
        default_split: the split that responses are scored on, unless another is asked for.
        notes: what a reader of its numbers should know about how this instance computes them.
    """

    name: str
    primary: str
    source: str
    default_split: str
    notes: list[str]

    def items(self, split: str = "test", limit: int | None = None) -> Sequence[Item]:
        """The first `limit` items of a split (all if None), made on access."""

    def score(self, item: Item, response: str) -> float:
        """The quality of one response, in [0, 1]; higher is better."""

    def scores(self, item: Item, responses: Sequence[str]) -> list[float]:
        """The quality of several responses to one item."""

    def aggregate(self, items: Sequence[Item], responses: Sequence[str]) -> dict[str, float]:
        """Metrics over one response an item, in per cent; 100 times the mean `score` is one."""


_WHERE = {
    "vqav2": "lookback.benchmarks.vqav2:VQAv2",
    "chair": "lookback.benchmarks.chair:Chair",
    "amber": "lookback.benchmarks.amber:Amber",
    "hallusionbench": "lookback.benchmarks.hallusionbench:HallusionBench",
    "scenes-vqa": "lookback.benchmarks.scenes.vqa:ScenesVQA",
    "scenes-caption": "lookback.benchmarks.scenes.caption:ScenesCaption",
    "scenes-amber": "lookback.benchmarks.scenes.amber:ScenesAmber",
    "scenes-pairs": "lookback.benchmarks.scenes.pairs:ScenesPairs",
}
BENCHMARKS: tuple[str, ...] = tuple(_WHERE)
GENERATED: tuple[str, ...] = tuple(name for name in _WHERE if name.startswith("scenes-"))


def get_benchmark(
    name: str, data: str | os.PathLike[str] | None = None, **settings: Any
) -> Benchmark:
    """The benchmark of that name, its module loaded only now.

    Args:
        name: one of `BENCHMARKS`.
        data: the folder of its files, or one that has a folder of its name; None for the
            environment variable LOOKBACK_DATA. Generated benchmarks need none.
        settings: what this benchmark alone takes, e.g. HallusionBench's `judge`.

    Raises:
        ValueError: there is no such benchmark, or it takes no such setting; the message lists
            those there are.
    """
    if name not in _WHERE:
        raise ValueError(f"no benchmark named {name!r}; there are: {', '.join(BENCHMARKS)}")
    module, _, attribute = _WHERE[name].partition(":")
    make = getattr(import_module(module), attribute)
    takes = inspect.signature(make).parameters
    unknown = sorted(settings.keys() - takes)
    if unknown:
        raise ValueError(f"{name} has no setting {', '.join(unknown)}")
    benchmark: Benchmark = make(data, **settings) if "data" in takes else make()
    return benchmark

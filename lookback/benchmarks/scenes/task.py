"""What the four tasks share: items from seeds, and the mean score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from lookback.benchmarks.base import Item, Items
from lookback.benchmarks.scenes.chance import TASK, generator
from lookback.benchmarks.scenes.render import render
from lookback.benchmarks.scenes.scene import Scene
from lookback.benchmarks.scenes.splits import scene_seed, split_size


class ScenesTask(ABC):
    """A `Benchmark` over generated scenes."""

    name: str
    primary: str
    per_seed = 1  # how many items share one seed

    @abstractmethod
    def compose(
        self, seed: int, index: int, rng: np.random.Generator
    ) -> tuple[Scene, str, dict[str, Any]]:
        """Scene, question and truth of the item at `index`; `rng` is the same for all of a seed."""

    @abstractmethod
    def score(self, item: Item, response: str) -> float:
        """The quality of one response, in [0, 1]."""

    def items(self, split: str = "test", limit: int | None = None) -> Sequence[Item]:
        """The first `limit` items of a split (all if None), made on access."""
        if limit is not None and limit < 0:
            raise ValueError(f"limit = {limit}: give a number of items, or None for all")
        size = split_size(split)
        return Items(range(size if limit is None else min(limit, size)), partial(self._item, split))

    def _item(self, split: str, index: int) -> Item:
        seed = scene_seed(split, self.name, index // self.per_seed)
        scene, question, truth = self.compose(seed, index, generator(seed, TASK))
        return Item(f"{self.name}/{split}/{index}", question, truth, partial(render, scene))

    def aggregate(self, items: Sequence[Item], responses: Sequence[str]) -> dict[str, float]:
        """The mean score and what else the task reports, in per cent."""
        scores = [self.score(i, r) for i, r in zip(items, responses, strict=True)]
        if not scores:
            raise ValueError("no items to aggregate")
        return {self.primary: mean_percent(scores)} | self.details(items, responses, scores)

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        """Further metrics in per cent; none unless a task has some."""
        return {}


def mean_percent(values: Sequence[float]) -> float:
    """The mean, in per cent; 0 for no values."""
    return 100 * sum(values) / len(values) if values else 0.0


def f1(precision: float, recall: float) -> float:
    """The harmonic mean; 0 if both are."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def share(part: int, whole: int) -> float:
    """part / whole, and 0 for an empty whole, as the paper says it for CHAIR."""
    return part / whole if whole else 0.0

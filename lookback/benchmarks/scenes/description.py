"""What the two tasks that ask for a description share: F1 of what is told and what is there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.benchmarks.base import Item, Mentioning
from lookback.benchmarks.metrics import f1, mean_percent
from lookback.benchmarks.scenes.lexicon import origins
from lookback.benchmarks.scenes.parse import parse
from lookback.benchmarks.scenes.scene import Scene, sample_scene
from lookback.benchmarks.scenes.task import ScenesTask

Pairs = Sequence[tuple[Item, str]]


class DescriptionTask(ScenesTask, Mentioning):
    """One prompt for all scenes; F1 as the primary metric."""

    primary = "f1"
    prompt: str

    @abstractmethod
    def truth(self, scene: Scene) -> dict[str, Any]:
        """What the metric needs to know of a scene."""

    @abstractmethod
    def there(self, item: Item) -> set[str]:
        """The categories of which there is a thing."""

    @abstractmethod
    def precision_recall(self, item: Item, response: str) -> tuple[float, float]:
        """See the task's own definitions."""

    @abstractmethod
    def hallucinations(self, pairs: Pairs) -> dict[str, float]:
        """The task's numbers that are better when lower, in per cent."""

    def compose(
        self, seed: int, index: int, rng: np.random.Generator
    ) -> tuple[Scene, str, dict[str, Any]]:
        """A scene and what is in it."""
        scene = sample_scene(seed, rng)
        return scene, self.prompt, self.truth(scene)

    def score(self, item: Item, response: str) -> float:
        """F1 of one response."""
        return f1(*self.precision_recall(item, response))

    def mentions(self, item: Item, response: str) -> list[tuple[int, int, bool]]:
        """Where the response names things as there, and whether they are: (start, end, right)."""
        at, there = origins(response), self.there(item)
        return [
            (at[m.at[0]], at[m.at[1] - 1] + 1, m.category in there)
            for m in parse(response).mentions
            if m.category and not m.negated
        ]

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        """Mean precision and recall, and the task's own further numbers."""
        pairs = list(zip(items, responses, strict=True))
        both = [self.precision_recall(*pair) for pair in pairs]
        return {
            "precision": mean_percent([p for p, _ in both]),
            "recall": mean_percent([r for _, r in both]),
        } | self.hallucinations(pairs)

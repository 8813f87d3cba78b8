"""Arithmetic that several benchmarks share: means in per cent, and what an empty whole counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

from lookback.benchmarks.base import Item


def mean_percent(values: Sequence[float]) -> float:
    """The mean, in per cent; 0 for no values."""
    return 100 * sum(values) / len(values) if values else 0.0


def f1(precision: float, recall: float) -> float:
    """The harmonic mean; 0 if both are."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def share(part: int, whole: int) -> float:
    """part / whole, and 0 for an empty whole, as the paper says it for CHAIR."""
    return part / whole if whole else 0.0


def all_right(groups: Sequence[Hashable], scores: Sequence[float]) -> float:
    """The share of groups in which every score is 1, in per cent.

    Args:
        groups: the group of each score; those of one group need not be neighbours.
        scores: as many scores.
    """
    worst: dict[Hashable, float] = {}
    for group, score in zip(groups, scores, strict=True):
        worst[group] = min(score, worst.get(group, 1.0))
    return mean_percent([score == 1 for score in worst.values()])


class MeanOfScores(ABC):
    """A benchmark whose main metric is the mean of its responses' scores."""

    primary: str

    @abstractmethod
    def score(self, item: Item, response: str) -> float:
        """The quality of one response, in [0, 1]; higher is better."""

    def scores(self, item: Item, responses: Sequence[str]) -> list[float]:
        """The quality of several responses to one item."""
        return [self.score(item, response) for response in responses]

    def aggregate(self, items: Sequence[Item], responses: Sequence[str]) -> dict[str, float]:
        """The mean score and what else the benchmark reports, in per cent."""
        scores = [self.score(i, r) for i, r in zip(items, responses, strict=True)]
        if not scores:
            raise ValueError("no items to aggregate")
        return {self.primary: mean_percent(scores)} | self.details(items, responses, scores)

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        """Further metrics in per cent; none unless a benchmark has some."""
        return {}

"""Two scorers' scores of the same candidates as one: by ranks, or as a weighted sum."""

from __future__ import annotations

import numpy as np

from lookback.runs import Run
from lookback.scores.formula import Array
from lookback.studies.shared.halves import choose_on_other_half
from lookback.studies.shared.selection import quality_of_picks

WEIGHTS = np.linspace(0, 1, 11).round(1)
"""Of the first scorer in a mix; the second has the rest."""


def ranks_within(scores: Array) -> Array:
    """(items, n): the rank of each candidate among its item's, from 1 for the lowest.

    Equal ones share the mean of their ranks; what has no score has no rank.
    """
    below = (scores[:, None, :] < scores[:, :, None]).sum(2)
    equal = (scores[:, None, :] == scores[:, :, None]).sum(2)
    return np.where(np.isnan(scores), np.nan, below + (equal + 1) / 2)


def standardised(scores: Array) -> Array:
    """(items, n): less the item's mean, over its standard deviation; 0 where all are equal."""
    known = np.isfinite(scores)
    count = np.maximum(known.sum(1, keepdims=True), 1)
    mean = np.where(known, scores, 0.0).sum(1, keepdims=True) / count
    apart = np.where(known, scores - mean, 0.0)
    spread = np.sqrt((apart**2).sum(1, keepdims=True) / count)
    even = spread <= 1e-12 * np.maximum(1.0, np.abs(mean))
    found = np.where(even, 0.0, apart / np.where(even, 1.0, spread))
    return np.where(known, found, np.nan)


def mixed_outcomes(first: Array, second: Array, quality: Array) -> Array:
    """(items, weights): the quality of what each mix of two scorers picks.

    At the ends it is what each of them picks by itself, ties and all.
    """
    a, b = standardised(first), standardised(second)
    mixes = [second, *(w * a + (1 - w) * b for w in WEIGHTS[1:-1]), first]
    return np.stack([quality_of_picks(mix, quality) for mix in mixes], 1)


class Combination:
    """What two scorers are worth together, in per cent, an item each.

    Attributes:
        alone: (items, 2), each by itself.
        better: (items,), the better of the two on the other half of the items.
        ranks: (items,), by the mean of their ranks.
        grid: (items, weights), by each mix.
        mix: (items,), by the mix that is best on the other half.
        weight: the first scorer's mean weight in it.
    """

    def __init__(self, run: Run, n: int, first: str, second: str, splits: int, seed: int) -> None:
        self.run, self.n, self.names = run, n, (first, second)
        scores = [run.scores(name, n) for name in self.names]
        quality = 100 * run.quality(n)
        self.alone = np.stack([quality_of_picks(one, quality) for one in scores], 1)
        ranks = ranks_within(scores[0]) + ranks_within(scores[1])
        self.ranks = quality_of_picks(ranks, quality)
        self.grid = mixed_outcomes(scores[0], scores[1], quality)
        self.better, _ = choose_on_other_half(self.alone, splits, seed)
        self.mix, counts = choose_on_other_half(self.grid, splits, seed)
        self.weight = float(counts @ WEIGHTS / counts.sum())

    def gain(self, name: str) -> Array:
        """(items,), in points over the better of the two alone."""
        return np.asarray(getattr(self, name) - self.better)

"""Two samples held against each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lookback.scores.formula import Array
from lookback.studies.shared.selection import item_counts

BINS = 50


def histograms(first: Array, second: Array) -> tuple[Array, Array, Array]:
    """The edges of bins of equal width over both, and the share of each sample in each bin."""
    edges = np.histogram_bin_edges(np.concatenate([first, second]), BINS)
    a, b = (np.histogram(values, edges)[0] / len(values) for values in (first, second))
    return edges, a, b


def overlap(first: Array, second: Array) -> float:
    """The area that the two histograms share: 1 if they are the same, 0 if they are apart."""
    _, a, b = histograms(first, second)
    return float(np.minimum(a, b).sum())


def ks_distance(first: Array, second: Array) -> float:
    """The Kolmogorov-Smirnov distance: the largest difference of the cumulative distributions."""
    everything = np.concatenate([first, second])
    a, b = (
        np.searchsorted(np.sort(values), everything, side="right") / len(values)
        for values in (first, second)
    )
    return float(np.abs(a - b).max())


def auc(values: Array, right: NDArray[np.bool_]) -> float:
    """The probability that a right one has the higher value than a wrong one; a tie counts half.

    NaN if there are no right ones or no wrong ones.
    """
    n_right = int(right.sum())
    n_wrong = len(right) - n_right
    if not n_right or not n_wrong:
        return float("nan")
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # from 1; equal values share their mean rank
    above = ranks[which][right].sum() - n_right * (n_right + 1) / 2
    return float(above / (n_right * n_wrong))


def bootstrap_aucs(
    values: Array, right: NDArray[np.bool_], items: NDArray[np.intp], count: int
) -> Array:
    """(draws,): the `auc` in bootstrap samples of items; samples that have none are left out.

    Args:
        values, right: as for `auc`.
        items: of which item each value is.
        count: how many items there are.
    """
    counts = item_counts(count)
    wins = np.zeros((count, count))  # of the right ones of an item over the wrong ones of another
    for item in np.unique(items[~right]):
        wrong = np.sort(values[~right & (items == item)])
        below = [np.searchsorted(wrong, values[right], side) for side in ("left", "right")]
        wins[:, item] = np.bincount(items[right], np.mean(below, axis=0), count)
    pairs = np.prod([counts @ np.bincount(items[w], minlength=count) for w in (right, ~right)], 0)
    won = ((counts @ wins) * counts).sum(axis=1)
    return np.asarray(won[pairs > 0] / pairs[pairs > 0])

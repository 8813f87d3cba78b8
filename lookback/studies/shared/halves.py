"""A choice held out: each half of the items chooses for the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lookback.scores.formula import Array
from lookback.studies.shared.base import StudyError


def choose_on_other_half(values: Array, splits: int, seed: int) -> tuple[Array, NDArray[np.intp]]:
    """What the best choice of one half of the items is worth on the other half.

    The items are halved by lot `splits` times; each half chooses for the other.

    Args:
        values: (items, choices), what each choice is worth for each item; of equal ones the first
            is chosen.
        splits: how often the items are halved.
        seed: of the lot.

    Returns:
        (items,), the mean over splits of what the other half's choice is worth; and (choices,), how
        often each was chosen.

    Raises:
        StudyError: there are not two items, or no split.
    """
    shares, counts = choices_of_other_half(values, splits, seed)
    return np.asarray((shares * values).sum(axis=1)), counts


def choices_of_other_half(values: Array, splits: int, seed: int) -> tuple[Array, NDArray[np.intp]]:
    """As `choose_on_other_half`, but (items, choices): how often, of all splits, an item had each.

    So that what a choice costs can be told beside what it is worth.
    """
    items, choices = values.shape
    if items < 2 or splits < 1:
        raise StudyError(f"{items} items and {splits} splits: there must be 2 items, and 1 split")
    rng = np.random.default_rng(seed)
    given, counts = np.zeros((items, choices)), np.zeros(choices, dtype=np.intp)
    for _ in range(splits):
        order = rng.permutation(items)
        halves = order[: items // 2], order[items // 2 :]
        for tuned, tested in (halves, halves[::-1]):
            best = int(values[tuned].mean(axis=0).round(9).argmax())
            given[tested, best] += 1
            counts[best] += 1
    return given / splits, counts

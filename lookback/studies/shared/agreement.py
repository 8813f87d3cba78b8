"""How far raters agree: coefficients of counts, and a sign test. Pure functions.

Counts are (cases, categories): how many raters put a case into a category. A coefficient is 1 for
perfect agreement and 0 for what chance would give; it is NaN where it is not defined: if no case
has two votes, or if all votes are in one category.
"""

from __future__ import annotations

from math import comb

import numpy as np

from lookback.scores.formula import Array
from lookback.studies.shared.selection import interval, item_counts


def fleiss_kappa(counts: Array, weights: Array | None = None) -> Array:
    """Fleiss' kappa (1971): every case has the same number of votes, not of the same raters.

    Args:
        counts: (cases, categories).
        weights: (draws, cases), how often each case counts; by default each once.

    Returns:
        (draws,), or without weights a number.

    Raises:
        ValueError: cases have different numbers of votes.
    """
    raters = counts.sum(axis=1)
    if len(set(raters.tolist())) > 1:
        few, many = raters.min(), raters.max()
        raise ValueError(f"Fleiss' kappa: cases have from {few:g} to {many:g} votes")
    used = np.ones(len(counts)) if weights is None else weights
    with np.errstate(divide="ignore", invalid="ignore"):
        same = (counts * (counts - 1)).sum(axis=1) / (raters * (raters - 1))  # P_i
        observed = used @ same / used.sum(axis=-1)
        shares = used @ counts / (used @ raters)[..., None]  # p_j
        return _above_chance(observed, (shares**2).sum(axis=-1))


def krippendorff_alpha(counts: Array, weights: Array | None = None) -> Array:
    """Krippendorff's alpha for categories without an order; cases may lack votes.

    Cases with fewer than two votes take no part. Arguments and result as for `fleiss_kappa`.
    """
    raters = counts.sum(axis=1)
    paired = np.where((raters >= 2)[:, None], counts, 0.0)
    # Pairs of votes on a case that agree, each pair counted 1 / (m - 1) times: coincidences o_cc.
    agree = (paired * (paired - 1)).sum(axis=1) / np.maximum(raters - 1, 1)
    used = np.ones(len(counts)) if weights is None else weights
    with np.errstate(divide="ignore", invalid="ignore"):
        values = used @ paired  # n_c
        total = values.sum(axis=-1)
        chance = (values * (values - 1)).sum(axis=-1) / (total * (total - 1))
        return _above_chance(used @ agree / total, chance)


def _above_chance(observed: Array, expected: Array) -> Array:
    found = (observed - expected) / (1 - expected)
    return np.asarray(np.where(1 - expected < 1e-12, np.nan, found))


def kappa_interval(counts: Array) -> tuple[float, float]:
    """The middle 95 % of Fleiss' kappa in bootstrap samples of cases."""
    return _interval(fleiss_kappa(counts, item_counts(len(counts))))


def alpha_interval(counts: Array) -> tuple[float, float]:
    """The middle 95 % of Krippendorff's alpha in bootstrap samples of cases."""
    return _interval(krippendorff_alpha(counts, item_counts(len(counts))))


def _interval(draws: Array) -> tuple[float, float]:
    """Of the samples in which the coefficient is defined; NaN if in half of them it is not."""
    defined = draws[~np.isnan(draws)]
    return (np.nan, np.nan) if 2 * len(defined) < len(draws) else interval(defined)


def sign_test(first: int, second: int) -> float:
    """The two-sided exact p of so many wins on either side, were both equally likely."""
    wins, total = max(first, second), first + second
    tail = sum(comb(total, k) for k in range(wins, total + 1))
    return min(1.0, float(2 * tail / 2**total))

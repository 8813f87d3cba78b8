"""Minimum Bayes risk over the candidates' texts: the response that agrees most with the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lookback.families import GENERIC
from lookback.scores.base import scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import Array, lookback_scores
from lookback.scores.overlap import pairwise_f1, words_of

WEIGHTS: dict[str, Callable[[SignalBatch, float, float], Array]] = {
    "lookback": lambda batch, alpha, lam: lookback_scores(
        batch.log_prob, batch.visual_lookback, batch.lengths, alpha, lam
    ),
    "self_certainty": lambda batch, alpha, lam: batch.mean(batch.self_certainty),
    "mean_log_prob": lambda batch, alpha, lam: batch.mean(batch.log_prob),
}
"""By whose ranks the others may count."""


@scorer("consensus", needs="texts", joint=True, title="Consensus", color="#0891b2")
def consensus(
    batch: SignalBatch,
    weights: str | None = None,
    beta: float = 0.0,
    alpha: float = GENERIC.alpha,
    lam: float = GENERIC.lam,
) -> Array:
    """Mean word-F1 with the other candidates.

    Minimum Bayes risk with the F1 of words as the gain. Candidates that say the same count as
    others; one that is alone agrees with all there are, 1. `weights` ("lookback",
    "self_certainty", "mean_log_prob") lets each other count by its rank among all, from 1 for the
    best down to 1/N. `beta` times the mean log p is added. `alpha` and `lam` are LookBack's, for
    its weights.
    """
    if weights is not None and weights not in WEIGHTS:
        raise ValueError(f"weights = {weights!r:.60}: must be None or one of {', '.join(WEIGHTS)}")
    judged = None if weights is None else WEIGHTS[weights](batch, alpha, lam)
    scores = np.empty(len(batch.lengths))
    for part in batch.questions():
        count = None if judged is None else rank_shares(judged[part])
        scores[part] = mean_agreement(batch.texts[part], count)
    return scores + beta * batch.mean(batch.log_prob) if beta else scores


def mean_agreement(texts: tuple[str, ...], weights: Array | None = None) -> Array:
    """(n,): the mean word-F1 of each text with the others, which count by their weights (n,).

    Texts of the same words, in whatever order, are one row: they are worth exactly the same.
    """
    bags = [tuple(sorted(words_of(text))) for text in texts]
    distinct = sorted(set(bags))  # so that the order of the candidates does not matter
    number = {bag: i for i, bag in enumerate(distinct)}
    which = np.array([number[bag] for bag in bags], dtype=np.intp)
    own = np.ones(len(texts)) if weights is None else weights
    held = np.bincount(which, own, len(distinct))
    others = held.sum() - own
    # Each agrees with itself, F1 = 1: that is taken out again.
    agreed = (pairwise_f1(distinct) @ held)[which] - own
    return np.where(len(texts) > 1, agreed / np.where(others > 0, others, 1.0), 1.0)


def rank_shares(values: Array) -> Array:
    """(n,): from 1/n for the lowest to 1 for the highest; equal ones share their ranks' mean."""
    below = (values[None] < values[:, None]).sum(1)
    equal = (values[None] == values[:, None]).sum(1)
    return np.asarray((below + (equal + 1) / 2) / max(1, len(values)))

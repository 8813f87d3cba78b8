"""Minimum Bayes risk over the candidates' texts: the response that agrees most with the others."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from lookback.families import GENERIC
from lookback.scores.base import scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import Array, lookback_scores

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


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@lru_cache(maxsize=2**14)
def words_of(text: str) -> tuple[str, ...]:
    """As SQuAD's own evaluation has them: lower case, without ASCII punctuation and articles."""
    return tuple(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def word_f1(first: Sequence[str], second: Sequence[str]) -> float:
    """The F1 of two lists of words, each word as often as it is said; 1 if both are empty."""
    if not first or not second:
        return float(list(first) == list(second))
    common = (Counter(first) & Counter(second)).total()
    return 2 * common / (len(first) + len(second))


def pairwise_f1(bags: Sequence[Sequence[str]]) -> Array:
    """(n, n): `word_f1` of each with each, by one product of matrices."""
    columns: dict[tuple[str, int], int] = {}
    rows, places = [], []
    for row, words in enumerate(bags):
        said: Counter[str] = Counter()
        for word in words:  # the second "cup" of a text is another column than the first
            said[word] += 1
            rows.append(row)
            places.append(columns.setdefault((word, said[word]), len(columns)))
    has = np.zeros((len(bags), max(1, len(columns))))
    has[rows, places] = 1
    lengths = has.sum(1)
    both = lengths[:, None] + lengths
    return np.where(both > 0, 2 * (has @ has.T) / np.maximum(both, 1), 1.0)

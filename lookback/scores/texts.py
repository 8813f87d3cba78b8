"""Scores of the candidates' texts: agreement and votes, and the floor and ceiling of selection."""

from __future__ import annotations

import re
import string
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lookback.errors import check_whole
from lookback.families import GENERIC
from lookback.scores.base import best_first, scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import Array, lookback_scores
from lookback.scores.likelihood import check_coefficients

WEIGHTS: dict[str, Callable[[SignalBatch, float, float], Array]] = {
    "lookback": lambda batch, alpha, lam: lookback_scores(
        batch.log_prob, batch.visual_lookback, batch.lengths, alpha, lam
    ),
    "self_certainty": lambda batch, alpha, lam: batch.mean(batch.self_certainty),
    "mean_log_prob": lambda batch, alpha, lam: batch.mean(batch.log_prob),
}
"""Scores by whose ranks `consensus` can weight the other candidates."""
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def _check_consensus(weights: str | None, alpha: float, lam: float, **_: Any) -> None:
    if weights is not None and weights not in WEIGHTS:
        raise ValueError(f"weights = {weights!r:.60}: must be None or one of {', '.join(WEIGHTS)}")
    check_coefficients(alpha, lam)


@scorer(
    "consensus",
    needs="texts",
    joint=True,
    title="Consensus",
    color="#0891b2",
    validate=_check_consensus,
)
def consensus(
    batch: SignalBatch,
    weights: str | None = None,
    beta: float = 0.0,
    alpha: float = GENERIC.alpha,
    lam: float = GENERIC.lam,
) -> Array:
    """Mean word-F1 with the other candidates.

    Minimum Bayes risk with the F1 of words as the gain. Candidates with the same text count as
    others; a single candidate gets 1. `weights` ("lookback", "self_certainty", "mean_log_prob")
    weights each other candidate by its rank, from 1 for the best down to 1/N. `beta` times the mean
    log p is added. `alpha` and `lam` are LookBack's, for its weights.
    """
    judged = None if weights is None else WEIGHTS[weights](batch, alpha, lam)
    scores = np.empty(len(batch.lengths))
    for part in batch.questions():
        shares = None if judged is None else rank_shares(judged[part])
        scores[part] = mean_agreement(batch.texts[part], shares)
    return scores + beta * batch.mean(batch.log_prob) if beta else scores


def mean_agreement(texts: tuple[str, ...], weights: Array | None = None) -> Array:
    """Return (n,): the mean word-F1 of each text with the others, weighted by `weights` (n,).

    Texts of the same words, in whatever order, are one row: they get exactly the same value.
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
    """Return (n,): from 1/n for the lowest to 1 for the highest; ties share their mean rank."""
    below = (values[None] < values[:, None]).sum(1)
    equal = (values[None] == values[:, None]).sum(1)
    return np.asarray((below + (equal + 1) / 2) / max(1, len(values)))


@lru_cache(maxsize=2**14)
def words_of(text: str) -> tuple[str, ...]:
    """Split as SQuAD's evaluation does: lower case, without ASCII punctuation and articles."""
    return tuple(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def word_f1(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the F1 of two lists of words, with repetitions; 1 if both are empty."""
    if not first or not second:
        return float(list(first) == list(second))
    common = (Counter(first) & Counter(second)).total()
    return 2 * common / (len(first) + len(second))


def pairwise_f1(bags: Sequence[Sequence[str]]) -> Array:
    """Return (n, n): `word_f1` of each with each, by one matrix product."""
    columns: dict[tuple[str, int], int] = {}
    rows, places = [], []
    for row, words in enumerate(bags):
        counts: Counter[str] = Counter()
        for word in words:  # the second "cup" of a text is another column than the first
            counts[word] += 1
            rows.append(row)
            places.append(columns.setdefault((word, counts[word]), len(columns)))
    has = np.zeros((len(bags), max(1, len(columns))))
    has[rows, places] = 1
    lengths = has.sum(1)
    both = lengths[:, None] + lengths
    return np.where(both > 0, 2 * (has @ has.T) / np.maximum(both, 1), 1.0)


@lru_cache(maxsize=2**16)
def normalised(text: str) -> str:
    """Return an answer without case, punctuation, articles and needless blanks.

    "The cup.", "a cup" and "cup" are one answer. Punctuation inside a number stays ("3.5"), and a
    text of nothing else keeps it.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = re.sub(r"(?<!\d)[^\w\s]|[^\w\s](?!\d)", " ", folded)
    return " ".join(_ARTICLES.sub(" ", words).split()) or " ".join(folded.split())


def same_answers(texts: Sequence[str]) -> list[int]:
    """Return the number of each text's answer: equal numbers, equal answers."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(normalised(text), len(numbers)) for text in texts]


@scorer("majority", needs="texts", joint=True, title="Majority", validate=check_coefficients)
def majority(batch: SignalBatch, alpha: float = GENERIC.alpha, lam: float = GENERIC.lam) -> Array:
    """Votes for the same answer; ties by LookBack.

    The whole part of a score is the number of votes, the rest the place by LookBack.
    """
    ties = lookback_scores(batch.log_prob, batch.visual_lookback, batch.lengths, alpha, lam)
    scores = np.empty(len(batch.lengths))
    for part in batch.questions():
        answers = np.array(same_answers(batch.texts[part]), dtype=np.intp)
        n = len(answers)
        places = np.empty(n)
        places[best_first(ties[part])] = np.arange(n, 0, -1)
        scores[part] = np.bincount(answers)[answers] + places / (n + 1) if n else 0
    return scores


@scorer("self_certainty_borda", needs="texts", joint=True, title="SC + Borda")
def self_certainty_borda(batch: SignalBatch, p: float = 0.5) -> Array:
    """Self-Certainty as Borda votes for equal answers.

    Rank r of N gives (N - r + 1)^p votes to its answer. p = 0 is a majority vote; 0.5 is the
    default of the method's own script.
    """
    certainty = batch.mean(batch.self_certainty)
    scores = np.empty(len(batch.lengths))
    for part in batch.questions():
        answers = np.array(same_answers(batch.texts[part]), dtype=np.intp)
        n = len(answers)
        votes = np.empty(n)
        votes[best_first(certainty[part])] = np.arange(n, 0, -1, dtype=np.float64) ** p
        scores[part] = np.bincount(answers, votes)[answers] if n else 0
    return scores


def _check_seed(seed: int) -> None:
    check_whole("seed", seed, 0)


@scorer(
    "random",
    needs="texts",
    joint=True,
    title="Random",
    color="#94a3b8",
    expected="uniform",
    paper=1,
    validate=_check_seed,
)
def random(batch: SignalBatch, seed: int = 0) -> Array:
    """The floor: random selection.

    Fixed by the seed and the responses.
    """
    scores = np.empty(len(batch.lengths))
    for part in batch.questions():
        texts = "\0".join(batch.texts[part]).encode("utf-8", "surrogatepass")
        scores[part] = np.random.default_rng([seed, zlib.crc32(texts)]).random(len(scores[part]))
    return scores


@scorer("oracle", needs="truth", title="Oracle", color="#111827")
def oracle(batch: SignalBatch) -> Array:
    """The ceiling: the true quality.

    Give the benchmark's own metric as quality=[...], a number per response.
    """
    return np.asarray(batch.quality)

"""Scores by votes: candidates that give the same answer count together."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from lookback.families import GENERIC
from lookback.scores.base import best_first, scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import Array, lookback_scores

_ARTICLES = re.compile(r"\b(a|an|the)\b")


@lru_cache(maxsize=2**16)
def normalised(text: str) -> str:
    """The answer without case, punctuation, articles and needless blanks.

    "The cup.", "a cup" and "cup" are one answer. Punctuation inside a number stays ("3.5"), and a
    text of nothing else keeps it.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = re.sub(r"(?<!\d)[^\w\s]|[^\w\s](?!\d)", " ", folded)
    return " ".join(_ARTICLES.sub(" ", words).split()) or " ".join(folded.split())


def same_answers(texts: Sequence[str]) -> list[int]:
    """For each text the number of its answer: equal numbers, equal answers."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(normalised(text), len(numbers)) for text in texts]


@scorer("majority", needs="texts", joint=True, title="Majority")
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

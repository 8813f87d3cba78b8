"""Self-consistency: the answer that most candidates give."""

from __future__ import annotations

import numpy as np

from lookback.families import GENERIC
from lookback.scores.answers import same_answers
from lookback.scores.formula import Array, lookback_scores
from lookback.scores.registry import SignalBatch, best_first, scorer


@scorer("majority", needs="texts", together=True)
def majority(batch: SignalBatch, alpha: float = GENERIC.alpha, lam: float = GENERIC.lam) -> Array:
    """Votes for the same answer; ties by LookBack.

    The whole part of a score is the number of votes, the rest the place by LookBack.
    """
    ties = lookback_scores(batch.log_prob, batch.lookback, batch.lengths, alpha, lam)
    scores = np.empty(len(batch.lengths))
    for part in batch.questions():
        answers = np.array(same_answers(batch.texts[part]), dtype=np.intp)
        n = len(answers)
        places = np.empty(n)
        places[best_first(ties[part])] = np.arange(n, 0, -1)
        scores[part] = np.bincount(answers)[answers] + places / (n + 1) if n else 0
    return scores

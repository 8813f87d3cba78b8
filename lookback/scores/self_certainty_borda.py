"""Self-Certainty with Borda votes over equal answers."""

from __future__ import annotations

import numpy as np

from lookback.scores.answers import same_answers
from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, best_first, scorer


@scorer("self_certainty_borda", needs="texts", together=True)
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

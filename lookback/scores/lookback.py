"""LookBack, the paper's score."""

from __future__ import annotations

from lookback.families import GENERIC
from lookback.scores.formula import Array, lookback_scores
from lookback.scores.registry import SignalBatch, scorer


@scorer("lookback", image=True)
def lookback(batch: SignalBatch, alpha: float = GENERIC.alpha, lam: float = GENERIC.lam) -> Array:
    """LookBack (Eq. 8): log p and A_t, weighted by A_t."""
    return lookback_scores(batch.log_prob, batch.lookback, batch.lengths, alpha, lam)

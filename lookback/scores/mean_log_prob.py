"""Mean log-probability of the tokens."""

from __future__ import annotations

from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, scorer


@scorer("mean_log_prob")
def mean_log_prob(batch: SignalBatch) -> Array:
    """Mean log p_t: LookBack at alpha = lam = 0."""
    return batch.mean(batch.log_prob)

"""Log-probability of the whole response."""

from __future__ import annotations

from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, scorer


@scorer("sum_log_prob")
def sum_log_prob(batch: SignalBatch) -> Array:
    """Log-probability of the whole; favours the short."""
    return batch.sum(batch.log_prob)

"""Mean token entropy."""

from __future__ import annotations

from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, scorer


@scorer("entropy")
def entropy(batch: SignalBatch) -> Array:
    """Mean token entropy, negated."""
    return -batch.mean(batch.entropy)

"""Self-Certainty."""

from __future__ import annotations

from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, scorer


@scorer("self_certainty")
def self_certainty(batch: SignalBatch) -> Array:
    """Self-Certainty: mean KL(U || p_t)."""
    return batch.mean(batch.self_certainty)

"""Visual lookback alone."""

from __future__ import annotations

from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, scorer


@scorer("visual_lookback", image=True)
def visual_lookback(batch: SignalBatch) -> Array:
    """Visual lookback alone: mean A_t."""
    return batch.mean(batch.lookback)

"""Visual lookback alone."""

from __future__ import annotations

from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, scorer


@scorer("visual_lookback", image=True)
def visual_lookback(batch: SignalBatch) -> Array:
    """Visual lookback alone: mean share of attention paid to the vision tokens."""
    return batch.mean(batch.lookback)

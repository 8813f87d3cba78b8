"""The ceiling: the best response there is."""

from __future__ import annotations

import numpy as np

from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, scorer


@scorer("oracle", needs="truth")
def oracle(batch: SignalBatch) -> Array:
    """Oracle: the benchmark's own metric, given as quality=[...]; what choosing could reach."""
    return np.asarray(batch.quality)

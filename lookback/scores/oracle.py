"""The ceiling: the best response there is."""

from __future__ import annotations

import numpy as np

from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, scorer


@scorer("oracle", needs="truth")
def oracle(batch: SignalBatch) -> Array:
    """The ceiling: the true quality.

    Give the benchmark's own metric as quality=[...], a number a response.
    """
    return np.asarray(batch.quality)

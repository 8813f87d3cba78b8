"""Perplexity."""

from __future__ import annotations

import numpy as np

from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, scorer


@scorer("perplexity")
def perplexity(batch: SignalBatch) -> Array:
    """Perplexity, negated: ranks as mean_log_prob."""
    return -np.exp(-batch.mean(batch.log_prob))

"""The floor: any response."""

from __future__ import annotations

import zlib

import numpy as np

from lookback.scores.formula import Array
from lookback.scores.registry import SignalBatch, scorer


@scorer("random", needs="texts", together=True)
def random(batch: SignalBatch, seed: int = 0) -> Array:
    """The floor: random selection.

    Fixed by the seed and the responses.
    """
    scores = np.empty(len(batch.lengths))
    for part in batch.questions():
        texts = "\0".join(batch.texts[part]).encode("utf-8", "surrogatepass")
        scores[part] = np.random.default_rng([seed, zlib.crc32(texts)]).random(len(scores[part]))
    return scores

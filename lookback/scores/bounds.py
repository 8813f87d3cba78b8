"""The floor and the ceiling of every selection."""

from __future__ import annotations

import zlib

import numpy as np

from lookback.scores.base import scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import Array


@scorer(
    "random",
    needs="texts",
    joint=True,
    title="Random",
    color="#94a3b8",
    expected="uniform",
    paper=1,
)
def random(batch: SignalBatch, seed: int = 0) -> Array:
    """The floor: random selection.

    Fixed by the seed and the responses.
    """
    scores = np.empty(len(batch.lengths))
    for part in batch.questions():
        texts = "\0".join(batch.texts[part]).encode("utf-8", "surrogatepass")
        scores[part] = np.random.default_rng([seed, zlib.crc32(texts)]).random(len(scores[part]))
    return scores


@scorer("oracle", needs="truth", title="Oracle", color="#111827")
def oracle(batch: SignalBatch) -> Array:
    """The ceiling: the true quality.

    Give the benchmark's own metric as quality=[...], a number per response.
    """
    return np.asarray(batch.quality)

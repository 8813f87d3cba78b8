"""VAUQ: how much the uncertainty grows when the response loses what it looks at."""

from __future__ import annotations

import numpy as np

from lookback.scores.formula import Array
from lookback.scores.registry import scorer
from lookback.signals import Candidates


@scorer("vauq", needs="model", image=True)
def vauq(
    candidates: Candidates,
    alpha: float = 1.0,
    layers: tuple[int, int] | None = None,
    k: float | None = None,
) -> Array:
    """VAUQ: entropy, and what hiding the core adds.

    The score is -(H - alpha (H_masked - H)), H the mean token entropy. The k most looked-at share
    of the vision tokens is hidden; `layers` (end exclusive) tell what is looked at. Both are the
    model family's by default. What is hidden is hidden from the rows that predict the response, so
    that the prompt is computed once for all; the method's own script hides it from the question's
    rows too.
    """
    assert candidates.asked is not None
    engine, image = candidates.asked.engine, candidates.asked.image
    masked = engine.knockout(image, candidates.question, list(candidates), layers=layers, share=k)
    h, h_masked = (_mean_entropy(c) for c in (candidates, masked))
    return np.asarray(-(h - alpha * (h_masked - h)))


def _mean_entropy(candidates: Candidates) -> Array:
    batch = candidates.batch()
    return batch.mean(batch.entropy)

"""CLIPScore: how well a dual encoder thinks that response and image match."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookback.scores.formula import Array
from lookback.scores.registry import scorer
from lookback.signals import Candidates

WEIGHT = 2.5


@scorer("clipscore", needs="clip", image=True)
def clipscore(candidates: Candidates, clip: Any = None, prefix: str | None = None) -> Array:
    """CLIPScore: 2.5 cos(image, text), not below 0.

    `clip` is a hub id, a folder or a loaded `DualEncoder`; by default the model family's.
    `prefix` stands before each text, by default the published "A photo depicts ".
    """
    from lookback.engines.transformers.clip import DualEncoder

    assert candidates.asked is not None
    name = candidates.asked.engine.family.clip if clip is None else clip
    encoder = name if isinstance(name, DualEncoder) else DualEncoder.load(name)
    picture = encoder.image(candidates.asked.image)
    texts = encoder.texts([c.text for c in candidates], prefix)
    return np.asarray(WEIGHT * np.clip(texts @ picture, 0, None), dtype=np.float64)

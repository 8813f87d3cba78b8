"""Scores that look at the image again: with a dual encoder, without it, with part of it hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.conversations import NO_SOURCE
from lookback.errors import check_share
from lookback.scores.base import scorer
from lookback.scores.formula import Array
from lookback.signals import Candidates

if TYPE_CHECKING:
    from lookback.engines import Rows

CLIP_WEIGHT = 2.5


@scorer("clipscore", needs="clip", title="CLIPScore", color="#16a34a", paper=4)
def clipscore(candidates: Candidates, clip: Any = None, prefix: str | None = None) -> Array:
    """CLIPScore: 2.5 cos(image, text), not below 0.

    `clip` is a hub id, a folder or a loaded `DualEncoder`; by default the model family's.
    `prefix` stands before each text, by default the published "A photo depicts ".
    """
    assert candidates.asked is not None
    encoder = clip if hasattr(clip, "texts") else candidates.asked.engine.dual_encoder(clip)
    picture = encoder.image(candidates.asked.conversation.images)
    texts = encoder.texts([c.text for c in candidates], prefix)
    return np.asarray(CLIP_WEIGHT * np.clip(texts @ picture, 0, None), dtype=np.float64)


@scorer("visual_gain", needs="model", uses=("score",), title="Visual gain", color="#65a30d")
def visual_gain(candidates: Candidates, beta: float = 1.0) -> Array:
    """Mean log p less beta times that without the image.

    The same tokens are scored after the same question with no image: one cheap pass. beta = 1 is
    what the image adds to each token's log p, on average; beta = 0 is mean log p.
    """
    asked = candidates.asked
    assert asked is not None
    conversation = asked.conversation
    if not conversation.parts("image") and not conversation.parts("video"):
        raise ValueError("visual_gain needs an image: there is none in what was asked")
    blind = asked.engine.score(
        messages=conversation.with_images(None).messages(),
        responses=list(candidates),
        source=NO_SOURCE,
    )
    seen, unseen = (_mean_log_prob(c) for c in (candidates, blind))
    return gain(seen, unseen, beta)


def gain(seen: Array, unseen: Array, beta: float = 1.0) -> Array:
    """Mean log p with the image less beta times that without."""
    return np.asarray(seen - beta * unseen)


@scorer(
    "vauq",
    needs="model",
    uses=("knockout",),
    title="VAUQ",
    color="#db2777",
    paper=5,
    before={"rows": "response"},
)
def vauq(
    candidates: Candidates,
    alpha: float = 1.0,
    layers: tuple[int, int] | None = None,
    k: float | None = None,
    rows: Rows = "all",
) -> Array:
    """VAUQ: entropy, and what hiding the core adds.

    The score is -(H - alpha (H_masked - H)), H the mean token entropy. The k most looked-at share
    of the vision tokens is hidden; `layers` (end exclusive) tell what is looked at. Both are the
    model family's by default. With rows="all" nothing sees what is hidden, the question and the
    other vision tokens neither, as in the method's own script: one pass of the prompt per
    candidate. rows="response" hides it from the rows that predict the response alone, so that the
    prompt is computed once for all.
    """
    asked = candidates.asked
    assert asked is not None
    if k is not None:
        check_share("k", k)
    masked = asked.engine.knockout(
        messages=asked.conversation.messages(),
        responses=list(candidates),
        source=candidates.source,
        layers=layers,
        share=k,
        rows=rows,
    )
    h, h_masked = (_mean_entropy(c) for c in (candidates, masked))
    return np.asarray(-(h - alpha * (h_masked - h)))


def _mean_log_prob(candidates: Candidates) -> Array:
    batch = candidates.batch()
    return batch.mean(batch.log_prob)


def _mean_entropy(candidates: Candidates) -> Array:
    batch = candidates.batch()
    return batch.mean(batch.entropy)

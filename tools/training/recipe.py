"""The numbers of the training: sizes, steps, learning rates. One place for all of them."""

from __future__ import annotations

from dataclasses import dataclass

from lookback.scenes.world import IMAGE_SIZE

PATCH = 8
VISION_TOKENS = (IMAGE_SIZE // PATCH) ** 2


@dataclass(frozen=True)
class Stage:
    """One stage of the training.

    Attributes:
        steps: how many updates; each process works on its own batch in every one.
        batch: images (or texts) a batch.
        lr: the peak learning rate, reached after `warmup` steps and left along a cosine.
        vision_lr: that of the vision tower, as a share of `lr`.
        warmup: steps of linear increase.
        described: of so many pictures one has a description, beside the questions about it.
    """

    steps: int
    batch: int
    lr: float
    vision_lr: float = 1.0
    warmup: int = 80
    described: int = 2


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what comes out."""

    seed: int = 0
    vocabulary: int = 640
    width: int = 128
    layers: int = 6
    heads: int = 4
    inner: int = 352
    vision_width: int = 128
    vision_layers: int = 4
    vision_heads: int = 4
    clip_layers: int = 3
    questions: int = 9  # packed for an image
    verdict: float = 4.0  # how much the "yes" or "no" counts that follows from what was said
    logic_questions: int = 16  # packed in the stage about such answers alone
    logic_verdict: float = 40.0  # what it counts there
    muon: float = 3.0  # the learning rate of matrices, as a multiple of that of the rest
    blind: float = 0.05  # share of joint steps without images, which keep the priors alive
    vision: Stage = Stage(steps=1000, batch=32, lr=1.2e-3)
    language: Stage = Stage(steps=250, batch=16, lr=2e-3)
    projector: Stage = Stage(steps=60, batch=16, lr=2e-3, warmup=20)
    sight: Stage = Stage(steps=400, batch=12, lr=2e-3, vision_lr=0.3)
    logic: Stage = Stage(steps=400, batch=8, lr=1e-3, warmup=30)
    joint: Stage = Stage(steps=1000, batch=12, lr=2e-3, vision_lr=0.3, described=4)
    clip: Stage = Stage(steps=180, batch=64, lr=1e-3, vision_lr=0.3)


FULL = Recipe()
TINY = Recipe(
    vocabulary=400,
    width=32,
    layers=2,
    heads=2,
    inner=64,
    vision_width=32,
    vision_layers=1,
    vision_heads=2,
    clip_layers=1,
    questions=2,
    vision=Stage(steps=4, batch=4, lr=3e-3, warmup=1),
    language=Stage(steps=4, batch=4, lr=3e-3, warmup=1),
    projector=Stage(steps=2, batch=4, lr=3e-3, warmup=1),
    sight=Stage(steps=2, batch=4, lr=3e-3, warmup=1),
    logic=Stage(steps=2, batch=4, lr=3e-3, warmup=1),
    joint=Stage(steps=6, batch=4, lr=3e-3, warmup=1),
    clip=Stage(steps=4, batch=8, lr=3e-3, warmup=1),
)
"""Seconds on one core: for tests, not for use."""

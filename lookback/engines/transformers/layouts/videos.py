"""Frames of a video: which tokens each has, and where they lie on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lookback.engines.transformers.layouts.grids import NoMapError, Tokens
from lookback.engines.transformers.layouts.patches import patch_tokens
from lookback.engines.transformers.layouts.probe import locate
from lookback.engines.transformers.layouts.settings import (
    entry,
    has_class_token,
    pair,
    patch_size,
    setting,
)
from lookback.engines.transformers.layouts.views import Probes, Shape, Size, place_view
from lookback.families import Layout


@dataclass(frozen=True)
class Step:
    """One step in time: the tokens of one frame, or of the frames that are merged into one.

    Attributes:
        frame: the number of its first frame.
        tokens: their grid; some more may follow that lie nowhere.
    """

    frame: int
    tokens: Tokens


def patch_steps(
    layout: Layout, config: Any, inputs: Mapping[str, Any], number: int, frames: int, count: int
) -> list[Step]:
    """The steps of a video that is taken in patches of space and time.

    Args:
        layout, config, inputs: the model's.
        number: which of the videos.
        frames: how many frames were given.
        count: how many tokens the video has.
    """
    tokens = patch_tokens(layout, config, inputs, "video")[number]
    steps = count // tokens.count
    together = _merged_frames(config)
    if steps * tokens.count != count or steps != math.ceil(frames / together):
        raise NoMapError(
            f"of {frames} frames it has {steps} steps, not one per {together}: "
            "its processor may have left some out"
        )
    return [Step(k * together, tokens) for k in range(steps)]


def _merged_frames(config: Any) -> int:
    """How many frames become one step in time."""
    for name in ("temporal_merge_size", "temporal_patch_size"):
        value = setting(config, f"vision_config.{name}")
        if value is not None:
            return pair(value)[0]
    return 1


def view_steps(
    layout: Layout, config: Any, probes: Probes, number: int, sizes: Sequence[Size], count: int
) -> list[Step]:
    """The steps of a video whose frames are views; `sizes` are those of the frames."""
    three = [torch.as_tensor(entry(one, "pixel_values_videos"))[number].double() for one in probes]
    black, white, slope = (one.numpy() for one in three)
    if len(black) != len(sizes):
        raise NoMapError(f"of {len(sizes)} frames its processor shows it {len(black)}")
    shape, behind = _frame_shape(layout, config, black.shape[-2:])
    before = (count - behind) // len(black) - shape.count
    if (shape.count + before) * len(black) + behind != count or before not in (
        0,
        int(has_class_token(config)),
    ):
        raise NoMapError(f"its video has {count} tokens, and {len(black)} frames of {shape.count}")
    steps = []
    for k, (view, size) in enumerate(
        zip(zip(black, white, slope, strict=True), sizes, strict=True)
    ):
        grid = place_view(locate(*view, size), shape, before)
        steps.append(Step(k, Tokens(shape.count + before, (grid,))))
    last = steps[-1].tokens
    steps[-1] = replace(steps[-1], tokens=replace(last, count=last.count + behind))
    return steps


def _frame_shape(layout: Layout, config: Any, view: Size) -> tuple[Shape, int]:
    """Cells of a frame, and how many tokens follow the last frame."""
    if layout.frames == "half":
        patch = patch_size(config)
        rows, columns = (math.ceil(size // one / 2) for size, one in zip(view, patch, strict=True))
        used = [size // one * one for size, one in zip(view, patch, strict=True)]
        return Shape(view, (used[0] / rows, used[1] / columns), (rows, columns)), 1
    layout = replace(layout, merge=layout.frames or layout.merge)
    return Shape.of(config, layout, view), 0

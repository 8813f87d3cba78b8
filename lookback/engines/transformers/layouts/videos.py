"""Frames of a video: which tokens each has, and where they lie on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lookback.engines.transformers.layouts.grids import (
    NoMapError,
    Tokens,
    entry,
    has_class_token,
    patch_size,
    patch_tokens,
)
from lookback.engines.transformers.layouts.probe import Probe, frame_numbers, locate
from lookback.engines.transformers.layouts.views import Shape, Size, place_view, to_array
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
    layout: Layout,
    config: Any,
    inputs: Mapping[str, Any],
    probe: Probe,
    number: int,
    frames: int,
    count: int,
) -> list[Step]:
    """The steps of a video that is taken in patches of space and time.

    Args:
        layout, config, inputs: the model's.
        probe: what the processor makes of frames with known colours.
        number: which of the videos.
        frames: how many frames were given.
        count: how many tokens the video has.
    """
    tokens = patch_tokens(layout, config, inputs, "video")[number]
    steps = count // tokens.count
    grids = torch.as_tensor(entry(inputs, "video_grid_thw"))
    patches = grids.prod(-1).tolist()
    if steps * tokens.count != count or int(grids[number, 0]) % steps:
        raise NoMapError(
            f"its video has {count} tokens, by its layout {tokens.count} for each of "
            f"{int(grids[number, 0])} steps in time"
        )
    mine = slice(sum(patches[:number]), sum(patches[: number + 1]))
    black, white, numbers = (
        to_array(entry(one, "pixel_values_videos"))[mine].reshape(steps, -1)
        for one in (probe.black, probe.white, probe.numbers)
    )
    return [Step(k, tokens) for k in frame_numbers(black, white, numbers, frames)]


def view_steps(
    layout: Layout, config: Any, probe: Probe, number: int, sizes: Sequence[Size], count: int
) -> list[Step]:
    """The steps of a video whose frames are views; `sizes` are those of the frames."""
    black, white, slope, numbers = (
        to_array(entry(one, "pixel_values_videos")[number])
        for one in (*probe.places, probe.numbers)
    )
    shape, behind = _frame_shape(layout, config, black.shape[-2:])
    before = (count - behind) // len(black) - shape.count
    if (shape.count + before) * len(black) + behind != count or before not in (
        0,
        int(has_class_token(config)),
    ):
        raise NoMapError(f"its video has {count} tokens, and {len(black)} frames of {shape.count}")
    steps = []
    for k, frame in enumerate(frame_numbers(black, white, numbers, len(sizes))):
        view = locate(black[k], white[k], slope[k], sizes[frame])
        grid = place_view(view, shape, before)
        steps.append(Step(frame, Tokens(shape.count + before, (grid,))))
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

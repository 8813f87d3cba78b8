"""Models that see views: squares of pixels with the picture, tiles of it, or frames of a video.

Each view becomes rows of tokens, one view after another. Which part of the picture a view shows is
measured (`probe`); how many tokens it becomes is in the config. A *mosaic* (LLaVA's anyres) is an
overview, then all tiles as one picture with a token after each of its rows: the processor pads a
picture to whole tiles; the model puts the tiles' tokens together, cuts off those of the padding
and, if there are still too many, scales them down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookback.engines.common.compat import select_best_resolution
from lookback.engines.transformers.layouts.grids import (
    Edges,
    Grid,
    NoMapError,
    Tokens,
    cell_size,
    count_up,
    entry,
    has_class_token,
    pair,
    patch_size,
    patch_tokens,
    setting,
    tile_edges,
    tile_places,
)
from lookback.engines.transformers.layouts.probe import (
    Line,
    Pixels,
    Probe,
    fit,
    frame_numbers,
    join,
    locate,
)
from lookback.families import Layout

Size = tuple[int, int]

TOO_SMALL = "which part of the picture its processor shows the model cannot be measured"


@dataclass(frozen=True)
class Shape:
    """The shape of a view, each as height and width."""

    view: Size  # in pixels
    cell: tuple[float, float]  # what one token sees, in pixels
    cells: Size  # rows and columns of tokens

    @classmethod
    def of(cls, config: Any, layout: Layout, view: Size) -> Shape:
        """Return the shape with as many whole cells as fit."""
        cell = cell_size(config, layout, view)
        return cls(view, cell, (view[0] // cell[0], view[1] // cell[1]))

    @property
    def count(self) -> int:
        """How many tokens the view has."""
        return self.cells[0] * self.cells[1]


def read_views(inputs: Mapping[str, Any], config: Any) -> list[NDArray[np.float64]]:
    """Return the pixels of every view of the images, each (3, height, width), in order."""
    pixels = to_array(entry(inputs, "pixel_values", "pixel_values_images"))
    if "spatial_shapes" in inputs:
        return [
            _unfold(patches, shape, patch_size(config))
            for patches, shape in zip(pixels, inputs["spatial_shapes"].tolist(), strict=True)
        ]
    if pixels.ndim not in (4, 5):
        raise NoMapError(f"its pixels come in {pixels.ndim} dimensions")
    views = list(pixels.reshape(-1, *pixels.shape[-3:]))
    if "image_sizes" in inputs and len(inputs["image_sizes"]) == len(views):  # the rest is padding
        sizes = torch.as_tensor(inputs["image_sizes"]).tolist()
        return [
            view[:, :rows, :columns] for view, (rows, columns) in zip(views, sizes, strict=True)
        ]
    return views


def to_array(pixels: Any) -> NDArray[np.float64]:
    array: NDArray[np.float64] = torch.as_tensor(pixels).double().numpy()
    return array


def _unfold(patches: NDArray[np.float64], grid: Sequence[int], patch: Size) -> NDArray[np.float64]:
    """Return a view from rows of patches, each (height, width, colour), with padding behind."""
    rows, columns = grid
    whole = patches[: rows * columns].reshape(rows, columns, *patch, -1)
    return whole.transpose(4, 0, 2, 1, 3).reshape(-1, rows * patch[0], columns * patch[1])


def view_tokens(
    layout: Layout, config: Any, probe: Probe, sizes: Sequence[Size], counts: list[int] | None
) -> list[Tokens | NoMapError]:
    """Return the tokens of every image.

    Args:
        layout, config: the model's.
        probe: what the processor makes of pictures with known colours.
        sizes: width and height of the pictures.
        counts: how many tokens each image has, if known.
    """
    black, white, slope = (read_views(inputs, config) for inputs in probe.places)
    shapes = [Shape.of(config, layout, view.shape[-2:]) for view in black]
    before = _class_tokens(config, shapes, counts)
    found: list[Tokens | NoMapError] = []
    start = 0
    for size, number in zip(sizes, _shares(shapes, before, counts, len(sizes)), strict=True):
        mine = slice(start, start + number)
        start += number
        views = [
            locate(*three, size)
            for three in zip(black[mine], white[mine], slope[mine], strict=True)
        ]
        try:
            found.append(_place(layout, views, shapes[mine], before))
        except NoMapError as error:
            found.append(error)
    return found


def _class_tokens(config: Any, shapes: Sequence[Shape], counts: list[int] | None) -> int:
    """Return how many tokens precede those of each view: 1 if the tower's class token is kept."""
    missing = 0 if counts is None else sum(counts) - sum(shape.count for shape in shapes)
    return 1 if missing == len(shapes) and has_class_token(config) else 0


def _shares(
    shapes: Sequence[Shape], before: int, counts: list[int] | None, images: int
) -> list[int]:
    """Return how many of the views each image has."""
    if counts is None:
        if len(shapes) != images:
            raise NoMapError("its images cannot be told apart")
        return [1] * images
    numbers, left = [], iter(shapes)
    for count in counts:
        number = 0
        while count > 0:
            shape = next(left, None)
            count -= (shape.count if shape else count + 1) + before
            number += 1
        if count < 0:
            raise NoMapError(f"its images have {counts} tokens, which no whole views add up to")
        numbers.append(number)
    if next(left, None) is not None:
        raise NoMapError(f"its images have {counts} tokens, and it is shown {len(shapes)} views")
    return numbers


def _place(layout: Layout, views: Sequence[Pixels], shapes: Sequence[Shape], before: int) -> Tokens:
    """Return one image's tokens: all its tiles as one grid, and its overview as another."""
    starts = [int(k) for k in np.cumsum([0, *(shape.count + before for shape in shapes)])]
    *starts, count = starts
    starts = [start + before for start in starts]
    whole = 0 if layout.overview == "first" else len(views) - 1
    tiles = [k for k in range(len(views)) if k != whole]
    grids = _tiles(
        [views[k] for k in tiles], [shapes[k] for k in tiles], [starts[k] for k in tiles]
    )
    return Tokens(count, (*grids, place_view(views[whole], shapes[whole], starts[whole])))


def place_view(view: Pixels, shape: Shape, start: int) -> Grid:
    """Return one view as a grid whose tokens begin at `start`."""
    return _grid(fit(view), shape, (1, 1), [start])


def _tiles(
    views: Sequence[Pixels], shapes: Sequence[Shape], starts: Sequence[int]
) -> tuple[Grid, ...]:
    """Return tiles in the rows and columns in which they make one picture; else one by one."""
    if len(set(shapes)) == 1:
        for rows in range(1, len(views) + 1):
            if len(views) % rows == 0:
                lines = fit(join(views, rows, len(views) // rows))
                if lines is not None:
                    return (_grid(lines, shapes[0], (rows, len(views) // rows), starts),)
    return tuple(map(place_view, views, shapes, starts))


def _grid(
    lines: tuple[Line, Line] | None, shape: Shape, tiles: Size, starts: Sequence[int]
) -> Grid:
    if lines is None:
        raise NoMapError(TOO_SMALL)
    (height, width), (rows, columns) = shape.view, shape.cells
    x = lines[0].at(tile_edges(tiles[1], width, columns, shape.cell[1]))
    y = lines[1].at(tile_edges(tiles[0], height, rows, shape.cell[0]))
    return Grid(tile_places(*tiles, shape.cells, starts), x, y)


def mosaic_tokens(
    layout: Layout, config: Any, inputs: Mapping[str, Any], probe: Probe, sizes: Sequence[Size]
) -> list[Tokens | NoMapError]:
    """Return the tokens of every image; arguments as for `view_tokens`."""
    black, white, slope = (to_array(entry(one, "pixel_values")) for one in probe.places)
    shape = Shape.of(config, layout, black.shape[-2:])
    tiled = _is_tiled(inputs, len(sizes))
    found: list[Tokens | NoMapError] = []
    for i, size in enumerate(sizes):
        tiles = _tile_rows(config, shape, size) if tiled else (0, 0)
        views = [
            locate(black[i, k], white[i, k], slope[i, k], size)
            for k in range(1 + tiles[0] * tiles[1])
        ]
        try:
            overview = place_view(views[0], shape, 0)
            if not tiled:
                found.append(Tokens(shape.count + 1, (overview,)))
                continue
            starts = [k * shape.count for k in range(len(views) - 1)]
            mosaic = _grid(fit(join(views[1:], *tiles)), shape, tiles, starts)
            mosaic = _trim(config, mosaic, shape, size)
            rows, columns = mosaic.places.shape
            count = shape.count + rows * (columns + 1)
            # Of a tiny picture the model may cut off all but the ends of rows.
            found.append(Tokens(count, (mosaic, overview) if rows * columns else (overview,)))
        except NoMapError as error:
            found.append(error)
    return found


def _is_tiled(inputs: Mapping[str, Any], images: int) -> bool:
    """Whether images are tiled: LLaVA-OneVision does not, if there are several in a prompt."""
    return "batch_num_images" not in inputs or images == 1


def _tile_rows(config: Any, shape: Shape, size: Size) -> Size:
    """Return rows and columns of tiles, as the model itself finds them from the picture's size."""
    width, height = size
    best = select_best_resolution((height, width), config.image_grid_pinpoints)
    side = pair(setting(config, "vision_config.image_size"))
    if side != shape.view:
        raise NoMapError(f"its tiles are of {shape.view} pixels, its config says {side}")
    return best[0] // side[0], best[1] // side[1]


def _trim(config: Any, grid: Grid, shape: Shape, size: Size) -> Grid:
    """Return the grid without the rows or columns that the model takes for padding, rescaled."""
    width, height = size
    rows, columns = grid.places.shape
    x, y = grid.x, grid.y
    if width / height > columns / rows:
        padding = (rows - int(round(height * (columns / width), 7))) // 2
        y = y[padding : rows - padding]
    else:
        padding = (columns - int(round(width * (rows / height), 7))) // 2
        x = x[padding : columns - padding]
    most = str(getattr(config, "vision_aspect_ratio", ""))
    if most:
        ratio = math.sqrt(
            len(y) * len(x) / (int(most.removeprefix("anyres_max_")) * shape.cells[0] ** 2)
        )
        if ratio > 1.1:
            x, y = (_rescale(edges, int(len(edges) // ratio)) for edges in (x, y))
    return Grid(count_up(len(y), len(x), shape.count, len(x) + 1), x, y)


def _rescale(edges: Edges, count: int) -> Edges:
    """Return the edges of `count` cells over the same length."""
    cuts = np.arange(count + 1) * (len(edges) / count)
    first = np.minimum(np.floor(cuts[:-1]).astype(int), len(edges) - 1)
    last = np.minimum(np.ceil(cuts[1:] - 1e-9).astype(int), len(edges)) - 1
    length = edges[:, 1] - edges[:, 0]
    begin = edges[first, 0] + (cuts[:-1] - first) * length[first]
    return np.stack([begin, edges[last, 0] + (cuts[1:] - last) * length[last]], axis=1)


@dataclass(frozen=True)
class Step:
    """One step in time of a video: a frame, or frames that are merged into one.

    Attributes:
        frame: the number of its first frame.
        tokens: their grid; more may follow that have no place.
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
    """Return the steps of a video that is split into patches of space and time.

    Args:
        layout, config, inputs: the model's.
        probe: what the processor makes of frames with known colours.
        number: which of the videos.
        frames: how many frames it has.
        count: how many tokens it has.
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
    """Return the steps of a video whose frames are views; `sizes` are those of the frames."""
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
    """Return the shape of a frame, and how many tokens follow the last frame."""
    if layout.frames == "half":
        patch = patch_size(config)
        rows, columns = (math.ceil(size // one / 2) for size, one in zip(view, patch, strict=True))
        used = [size // one * one for size, one in zip(view, patch, strict=True)]
        return Shape(view, (used[0] / rows, used[1] / columns), (rows, columns)), 1
    layout = replace(layout, merge=layout.frames or layout.merge)
    return Shape.of(config, layout, view), 0

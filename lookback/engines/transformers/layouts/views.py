"""Models that are shown views: squares of pixels with the picture, or tiles of it and an overview.

Each view becomes rows of tokens, one view after another. Which part of the picture a view shows is
measured (`probe`); how many tokens it becomes is in the config.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookback.engines.transformers.layouts.grids import (
    Grid,
    NoMapError,
    Tokens,
    cell_size,
    entry,
    has_class_token,
    patch_size,
    tile_edges,
    tile_places,
)
from lookback.engines.transformers.layouts.probe import Line, Pixels, Probe, fit, join, locate
from lookback.families import Layout

Size = tuple[int, int]

TOO_SMALL = "which part of the picture its processor shows the model cannot be measured"


@dataclass(frozen=True)
class Shape:
    """Height and width of a view and of a token's cell in it, in pixels, and how many cells it has.

    Attributes:
        view: of the view.
        cell: of a cell.
        cells: rows and columns of them.
    """

    view: Size
    cell: tuple[float, float]
    cells: Size

    @classmethod
    def of(cls, config: Any, layout: Layout, view: Size) -> Shape:
        """With as many whole cells as there is room for."""
        cell = cell_size(config, layout, view)
        return cls(view, cell, (view[0] // cell[0], view[1] // cell[1]))

    @property
    def count(self) -> int:
        """Tokens of the view."""
        return self.cells[0] * self.cells[1]


def read_views(inputs: Mapping[str, Any], config: Any) -> list[NDArray[np.float64]]:
    """The pixels of every view that images are shown in, each (3, height, width), in order."""
    pixels = to_array(entry(inputs, "pixel_values", "pixel_values_images"))
    if "spatial_shapes" in inputs:
        return [
            _unfold(one, shape, patch_size(config))
            for one, shape in zip(pixels, inputs["spatial_shapes"].tolist(), strict=True)
        ]
    if pixels.ndim not in (4, 5):
        raise NoMapError(f"its pixels come in {pixels.ndim} dimensions")
    views = list(pixels.reshape(-1, *pixels.shape[-3:]))
    if "image_sizes" in inputs and len(inputs["image_sizes"]) == len(views):  # the rest is padding
        sizes = torch.as_tensor(inputs["image_sizes"]).tolist()
        return [one[:, :height, :width] for one, (height, width) in zip(views, sizes, strict=True)]
    return views


def to_array(pixels: Any) -> NDArray[np.float64]:
    """Pixels, whatever they come in."""
    found: NDArray[np.float64] = torch.as_tensor(pixels).double().numpy()
    return found


def _unfold(patches: NDArray[np.float64], grid: Sequence[int], patch: Size) -> NDArray[np.float64]:
    """A view whose patches, each (height, width, colour), come in rows, and padding behind them."""
    rows, columns = grid
    whole = patches[: rows * columns].reshape(rows, columns, *patch, -1)
    return whole.transpose(4, 0, 2, 1, 3).reshape(-1, rows * patch[0], columns * patch[1])


def view_tokens(
    layout: Layout, config: Any, probe: Probe, sizes: Sequence[Size], counts: list[int] | None
) -> list[Tokens | NoMapError]:
    """The tokens of every image.

    Args:
        layout: the model's.
        config: the model's.
        probe: what the processor makes of pictures with known colours.
        sizes: width and height of the pictures.
        counts: how many tokens each image has; None if that is not known.
    """
    black, white, slope = (read_views(one, config) for one in probe.places)
    shapes = [Shape.of(config, layout, one.shape[-2:]) for one in black]
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
    """How many tokens stand before those of each view: one if the tower's class token is kept."""
    missing = 0 if counts is None else sum(counts) - sum(shape.count for shape in shapes)
    return 1 if missing == len(shapes) and has_class_token(config) else 0


def _shares(
    shapes: Sequence[Shape], before: int, counts: list[int] | None, images: int
) -> list[int]:
    """How many of the views each image has."""
    if counts is None:
        if len(shapes) != images:
            raise NoMapError("its images cannot be told apart")
        return [1] * images
    found, left = [], iter(shapes)
    for count in counts:
        number = 0
        while count > 0:
            shape = next(left, None)
            count -= (shape.count if shape else count + 1) + before
            number += 1
        if count < 0:
            raise NoMapError(f"its images have {counts} tokens, which no whole views add up to")
        found.append(number)
    if next(left, None) is not None:
        raise NoMapError(f"its images have {counts} tokens, and it is shown {len(shapes)} views")
    return found


def _place(layout: Layout, views: Sequence[Pixels], shapes: Sequence[Shape], before: int) -> Tokens:
    """One image's tokens: all its tiles as one grid, and its overview as another."""
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
    """One view as a grid; its tokens begin at `start`."""
    return _grid(fit(view), shape, (1, 1), [start])


def _tiles(
    views: Sequence[Pixels], shapes: Sequence[Shape], starts: Sequence[int]
) -> tuple[Grid, ...]:
    """Tiles in the rows and columns in which they make one picture; else each by itself."""
    if len(set(shapes)) == 1:
        for rows in range(1, len(views) + 1):
            if len(views) % rows == 0:
                lines = fit(join(views, rows, len(views) // rows))
                if lines is not None:
                    return (_grid(lines, shapes[0], (rows, len(views) // rows), starts),)
    return tuple(place_view(*three) for three in zip(views, shapes, starts, strict=True))


def place_tiles(views: Sequence[Pixels], shape: Shape, tiles: Size) -> Grid:
    """Tiles in known rows and columns, tile after tile."""
    starts = [k * shape.count for k in range(len(views))]
    return _grid(fit(join(views, *tiles)), shape, tiles, starts)


def _grid(
    lines: tuple[Line, Line] | None, shape: Shape, tiles: Size, starts: Sequence[int]
) -> Grid:
    if lines is None:
        raise NoMapError(TOO_SMALL)
    (height, width), (rows, columns) = shape.view, shape.cells
    x = lines[0].at(tile_edges(tiles[1], width, columns, shape.cell[1]))
    y = lines[1].at(tile_edges(tiles[0], height, rows, shape.cell[0]))
    return Grid(tile_places(*tiles, shape.cells, starts), x, y)

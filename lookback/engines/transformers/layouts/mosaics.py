"""LLaVA's anyres: an overview, then all tiles as one picture, a token after each of its rows.

The processor pads a picture to whole tiles. The model puts the tiles' tokens together, cuts off
those of the padding and, if there are still too many, scales them down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lookback.engines.common.compat import select_best_resolution
from lookback.engines.transformers.layouts.grids import (
    Edges,
    Grid,
    NoMapError,
    Tokens,
    count_up,
    entry,
    pair,
    setting,
)
from lookback.engines.transformers.layouts.probe import Probe, locate
from lookback.engines.transformers.layouts.views import (
    Shape,
    Size,
    place_tiles,
    place_view,
    to_array,
)
from lookback.families import Layout


def mosaic_tokens(
    layout: Layout, config: Any, inputs: Mapping[str, Any], probe: Probe, sizes: Sequence[Size]
) -> list[Tokens | NoMapError]:
    """The tokens of every image; arguments as for `views.view_tokens`."""
    black, white, slope = (to_array(entry(one, "pixel_values")) for one in probe.places)
    shape = Shape.of(config, layout, black.shape[-2:])
    alone = _alone(inputs, len(sizes))
    found: list[Tokens | NoMapError] = []
    for i, size in enumerate(sizes):
        tiles = _tiles(config, shape, size) if alone else (0, 0)
        views = [
            locate(black[i, k], white[i, k], slope[i, k], size)
            for k in range(1 + tiles[0] * tiles[1])
        ]
        try:
            overview = place_view(views[0], shape, 0)
            if not alone:
                found.append(Tokens(shape.count + 1, (overview,)))
                continue
            mosaic = _cut(config, place_tiles(views[1:], shape, tiles), shape, size)
            rows, columns = mosaic.places.shape
            count = shape.count + rows * (columns + 1)
            # Of a tiny picture the model may cut off all but the ends of rows.
            found.append(Tokens(count, (mosaic, overview) if rows * columns else (overview,)))
        except NoMapError as error:
            found.append(error)
    return found


def _alone(inputs: Mapping[str, Any], images: int) -> bool:
    """Whether images are tiled: LLaVA-OneVision does not, if there are several in a prompt."""
    return "batch_num_images" not in inputs or images == 1


def _tiles(config: Any, shape: Shape, size: Size) -> Size:
    """Rows and columns of tiles, as the model itself finds them from the picture's size."""
    width, height = size
    best = select_best_resolution((height, width), config.image_grid_pinpoints)
    side = pair(setting(config, "vision_config.image_size"))
    if side != shape.view:
        raise NoMapError(f"its tiles are of {shape.view} pixels, its config says {side}")
    return best[0] // side[0], best[1] // side[1]


def _cut(config: Any, grid: Grid, shape: Shape, size: Size) -> Grid:
    """The grid without the rows or columns that the model takes for padding, and scaled down."""
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
            x, y = (_scaled(edges, int(len(edges) // ratio)) for edges in (x, y))
    return Grid(count_up(len(y), len(x), shape.count, len(x) + 1), x, y)


def _scaled(edges: Edges, count: int) -> Edges:
    """So many cells in the place of what is there."""
    cuts = np.arange(count + 1) * (len(edges) / count)
    first = np.minimum(np.floor(cuts[:-1]).astype(int), len(edges) - 1)
    last = np.minimum(np.ceil(cuts[1:] - 1e-9).astype(int), len(edges)) - 1
    length = edges[:, 1] - edges[:, 0]
    begin = edges[first, 0] + (cuts[:-1] - first) * length[first]
    return np.stack([begin, edges[last, 0] + (cuts[1:] - last) * length[last]], axis=1)

"""Grids of vision tokens: rows, columns, and the bounding box of each token in its picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookback.families import Layout
from lookback.looks.look import Floats, Places

_HAIR = 1e-6  # of a picture's side: less is rounding

Edges = NDArray[np.float64]  # (N, 2): where each of N rows or columns begins and ends


class NoMapError(ValueError):
    """The places of a model's vision tokens are not known; the message says why."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Tokens in rows and columns over a part of the picture.

    Attributes:
        places: (rows, columns), which of the image's tokens is there.
        x, y: the edges of the columns and of the rows.
    """

    places: Places
    x: Edges
    y: Edges


@dataclass(frozen=True, eq=False)
class Tokens:
    """All tokens of one image: how many there are, and the grids that most of them are in."""

    count: int
    grids: tuple[Grid, ...]

    def boxes(self) -> Floats:
        """Return left, top, right, bottom of each token, (count, 4); NaN if it has no place."""
        boxes = np.full((self.count, 4), np.nan, dtype=np.float32)
        for grid in self.grids:
            (x0, x1), (y0, y1) = grid.x.clip(0, 1).T, grid.y.clip(0, 1).T
            seen = (y1 - y0 > _HAIR)[:, None] & (x1 - x0 > _HAIR)[None, :]
            rows, columns = np.nonzero(seen & (grid.places >= 0))
            boxes[grid.places[rows, columns]] = np.stack(
                [x0[columns], y0[rows], x1[columns], y1[rows]], axis=1
            )
        return boxes


def count_up(rows: int, columns: int, start: int = 0, step: int | None = None) -> Places:
    """Return places in reading order; `step` from row to row, if there are tokens between rows."""
    step = columns if step is None else step
    return start + step * np.arange(rows)[:, None] + np.arange(columns)[None, :]


def even_edges(count: int) -> Edges:
    """Return the edges of `count` equal parts of the whole picture."""
    cuts = np.arange(count + 1) / count
    return np.stack([cuts[:-1], cuts[1:]], axis=1)


def tile_edges(tiles: int, size: float, cells: int, cell: float) -> Edges:
    """Return the edges of the cells of tiles side by side, in pixels.

    Cells begin at the tile's edge; no token sees the rest at its end, less than a cell.
    """
    starts = (np.arange(tiles)[:, None] * size + np.arange(cells)[None, :] * cell).ravel()
    return np.stack([starts, starts + cell], axis=1)


def tile_places(rows: int, columns: int, cells: tuple[int, int], starts: Sequence[int]) -> Places:
    """Return the tokens of tiles that follow one another, as one grid.

    Args:
        rows, columns: of tiles.
        cells: rows and columns of tokens in each.
        starts: the place of each tile's first token, tiles in reading order.
    """
    inside = count_up(*cells)
    whole = np.asarray(starts).reshape(rows, 1, columns, 1) + inside[None, :, None, :]
    return whole.reshape(rows * cells[0], columns * cells[1])


def patch_tokens(layout: Layout, config: Any, inputs: Mapping[str, Any], kind: str) -> list[Tokens]:
    """Return the tokens of every image, or those of one step in time of every video."""
    tokens = []
    for number, (height, width) in enumerate(_patches(inputs, kind)):
        merge = merge_size(config, layout.merge)
        own = inputs.get(f"{kind}_merge_sizes")  # VideoLLaMA 3 says it with each picture
        merge = merge if own is None else int(own[number])
        tokens.append(whole_grid(height // merge, width // merge, layout.row_end))
    return tokens


def whole_grid(rows: int, columns: int, row_end: bool = False) -> Tokens:
    """Return rows of tokens over the whole picture; with `row_end`, one more after each row, and
    one before and one after all of them."""
    edge = int(row_end)
    places = count_up(rows, columns, start=edge, step=columns + edge)
    grid = Grid(places, even_edges(columns), even_edges(rows))
    return Tokens(rows * (columns + edge) + 2 * edge, (grid,))


def _patches(inputs: Mapping[str, Any], kind: str) -> list[tuple[int, int]]:
    """Return rows and columns of patches of every image or video."""
    if "image_position_ids" in inputs and kind == "image":  # Gemma 4: x and y of each patch
        ids = torch.as_tensor(inputs["image_position_ids"])
        return [(int(xy[:, 1].max()) + 1, int(xy[:, 0].max()) + 1) for xy in ids]
    grids = torch.as_tensor(entry(inputs, f"{kind}_grid_thw")).tolist()
    return [(height, width) for _, height, width in grids]


def setting(config: Any, path: str) -> Any:
    """Return a setting of the config by its dotted path; None if there is none."""
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def pair(value: Any) -> tuple[int, int]:
    """Return height and width of what may be given as one number."""
    height, width = (value, value) if isinstance(value, int) else (int(side) for side in value)
    return height, width


def patch_size(config: Any) -> tuple[int, int]:
    """Return height and width of the vision tower's patches, in pixels."""
    value = setting(config, "vision_config.patch_size")
    if value is None:
        raise NoMapError("the config of its vision tower has no patch_size")
    return pair(value)


def merge_size(config: Any, path: str) -> int:
    """Return how many patches side by side are merged into one token."""
    value = setting(config, path) if path else 1
    if not isinstance(value, (int, float)) or value <= 0:
        raise NoMapError(f"its config has {path} = {value!r}")
    return round(value if value >= 1 else 1 / value)


def cell_size(config: Any, layout: Layout, shape: tuple[int, int]) -> tuple[int, int]:
    """Return height and width of what one token of a view sees, in pixels; `shape`: the view's."""
    patch = patch_size(config)
    if not layout.side:
        merge = merge_size(config, layout.merge)
        return merge * patch[0], merge * patch[1]
    tokens = setting(config, layout.side)
    if not isinstance(tokens, int) or tokens < 1:
        raise NoMapError(f"its config has {layout.side} = {tokens!r}")
    pooled = [
        max(1, size // one // math.isqrt(tokens)) for size, one in zip(shape, patch, strict=True)
    ]
    return pooled[0] * patch[0], pooled[1] * patch[1]


def has_class_token(config: Any) -> bool:
    """Whether the tower's first token may be a class token, which stands for no patch."""
    return setting(config, "vision_config.model_type") in ("clip_vision_model", "internvl_vision")


def entry(inputs: Mapping[str, Any], *names: str) -> Any:
    """Return the first of some model inputs that is there."""
    for name in names:
        if inputs.get(name) is not None:
            return inputs[name]
    raise NoMapError(f"its processor gives no {' or '.join(names)}")

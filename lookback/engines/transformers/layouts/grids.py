"""Rows and columns of vision tokens, and the box that each has in its picture.

Nothing here knows a model. Edges are shares of the picture's width and height, and may reach beyond
it where the processor put padding around the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookback.look import Floats, Places

_HAIR = 1e-6  # of a picture's side: less is rounding

Edges = NDArray[np.float64]  # (N, 2): where each of N rows or columns begins and ends


class NoMapError(ValueError):
    """It cannot be said where a model's vision tokens lie, and why."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Tokens in rows and columns over a part of the picture.

    Attributes:
        places: (rows, columns), which of the image's tokens stands there.
        x, y: the edges of the columns and of the rows.
    """

    places: Places
    x: Edges
    y: Edges


@dataclass(frozen=True, eq=False)
class Tokens:
    """All tokens of one image, in order: how many there are, and the grids that most are in."""

    count: int
    grids: tuple[Grid, ...]

    def boxes(self) -> Floats:
        """(count, 4), left, top, right, bottom of each token; NaN for one without a place."""
        found = np.full((self.count, 4), np.nan, dtype=np.float32)
        for grid in self.grids:
            (x0, x1), (y0, y1) = grid.x.clip(0, 1).T, grid.y.clip(0, 1).T
            seen = (y1 - y0 > _HAIR)[:, None] & (x1 - x0 > _HAIR)[None, :]
            rows, columns = np.nonzero(seen & (grid.places >= 0))
            found[grid.places[rows, columns]] = np.stack(
                [x0[columns], y0[rows], x1[columns], y1[rows]], axis=1
            )
        return found


def count_up(rows: int, columns: int, start: int = 0, step: int | None = None) -> Places:
    """Places in reading order; `step` from row to row, if there are tokens between rows."""
    step = columns if step is None else step
    return start + step * np.arange(rows)[:, None] + np.arange(columns)[None, :]


def even_edges(count: int) -> Edges:
    """Edges of so many equal parts of the whole picture."""
    cuts = np.arange(count + 1) / count
    return np.stack([cuts[:-1], cuts[1:]], axis=1)


def tile_edges(tiles: int, size: float, cells: int, cell: float) -> Edges:
    """Edges of the cells of tiles side by side, in pixels.

    Cells begin at the tile's edge; what is left at its end, less than a cell, no token sees.
    """
    starts = (np.arange(tiles)[:, None] * size + np.arange(cells)[None, :] * cell).ravel()
    return np.stack([starts, starts + cell], axis=1)


def tile_places(rows: int, columns: int, cells: tuple[int, int], starts: Sequence[int]) -> Places:
    """Tokens of tiles that are written one after another, put together as one grid.

    Args:
        rows, columns: of tiles.
        cells: rows and columns of tokens in each.
        starts: where each tile's first token stands, tiles in reading order.
    """
    inside = count_up(*cells)
    whole = np.asarray(starts).reshape(rows, 1, columns, 1) + inside[None, :, None, :]
    return whole.reshape(rows * cells[0], columns * cells[1])

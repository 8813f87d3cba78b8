"""A picture that a model saw, and which part of it each of the source's tokens stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = NDArray[np.float32]
Places = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Picture:
    """One image, or one frame of a video, and the source's tokens that stand for it.

    Attributes:
        name: how `source=` calls it, e.g. "image:0"; a frame has its number behind, "video:0/3".
        image: as it was given, RGB.
        columns: (K,), which columns of `Look.weights` belong to it.
        boxes: (K, 4), what each of them saw: left, top, right, bottom as shares of the image's
            width and height; NaN for a token that stands for no place (a row's end, a padded
            tile). None if the model's layout is not known: there is no map then.
        grids: what the model saw, as rows and columns of places in `columns` (-1 for none): one
            for a plain grid, one for all tiles and one for the thumbnail of a tiled image.
    """

    name: str
    image: Image
    columns: Places
    boxes: Floats | None = None
    grids: tuple[Places, ...] = ()

    def __post_init__(self) -> None:
        columns = readonly(self.columns, np.intp)
        if columns.ndim != 1:
            raise ValueError(f"{self.name}: columns have the shape {columns.shape}, must be (K,)")
        object.__setattr__(self, "columns", columns)
        grids = tuple(readonly(grid, np.intp) for grid in self.grids)
        for grid in grids:
            if grid.ndim != 2 or not ((grid >= -1) & (grid < len(columns))).all():
                raise ValueError(
                    f"{self.name}: a grid is rows and columns of places in {len(columns)} columns, "
                    f"-1 for none; this one has the shape {grid.shape}"
                )
        object.__setattr__(self, "grids", grids)
        if self.boxes is not None:
            object.__setattr__(self, "boxes", _boxes(self.name, self.boxes, len(columns)))

    def __repr__(self) -> str:
        width, height = self.image.size
        grids = " and ".join("{} by {}".format(*grid.shape) for grid in self.grids)
        known = "no known layout" if self.boxes is None else grids or "no grid"
        return f"Picture({self.name!r}, {width}x{height}, {len(self.columns)} tokens, {known})"

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON; no pixels."""
        boxes = None
        if self.boxes is not None:
            boxes = [None if np.isnan(box).any() else box.tolist() for box in self.boxes]
        return {
            "name": self.name,
            "size": list(self.image.size),
            "columns": self.columns.tolist(),
            "boxes": boxes,
            "grids": [grid.tolist() for grid in self.grids],
        }


def readonly(values: Any, dtype: type) -> NDArray[Any]:
    """A copy that nobody can change."""
    array: NDArray[Any] = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


def _boxes(name: str, values: Any, count: int) -> Floats:
    """(count, 4), checked.

    Raises:
        ValueError: they are of another shape, or one is no part of a picture.
    """
    boxes: Floats = np.array(values, dtype=np.float32)
    if boxes.shape != (count, 4):
        raise ValueError(f"{name}: boxes have the shape {boxes.shape}, must be ({count}, 4)")
    left, top, right, bottom = boxes.T
    inside = (boxes >= -1e-4).all(1) & (boxes <= 1 + 1e-4).all(1)
    wrong = ~np.isnan(boxes).all(1) & ~(inside & (left < right) & (top < bottom))
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ValueError(
            f"{name}: box {k} is {boxes[k].tolist()}: left, top, right and bottom must be shares "
            "of the picture in this order, from 0 to 1, or all NaN"
        )
    return readonly(boxes.clip(0, 1), np.float32)

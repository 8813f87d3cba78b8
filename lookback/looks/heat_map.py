"""Weights of boxes as a map of pixels, its colours on a picture, and sums over parts of a picture.

A vision token's weight lies evenly on its box, whatever the layout. The pages compute the same
(pages/templates/common/heat_map.js) and are tested against this. NumPy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

Map = NDArray[np.float64]
Numbers = NDArray[Any]
Region = tuple[float, float, float, float]
"""Left, top, right, bottom, as shares of the width and the height."""

COLORS = np.array(
    [[0, 0, 60], [90, 20, 130], [190, 50, 100], [245, 125, 30], [255, 205, 60], [255, 255, 200]]
)
"""From no heat to the most, each brighter than the one before: readable without colour, too."""
DIM = 0.45
"""How bright the picture is below the heat, of what it was."""
STRONGEST = 0.7
"""How much of a pixel the most heat covers: what is looked at can still be seen."""


def paint(boxes: ArrayLike, weights: ArrayLike, size: tuple[int, int]) -> Map:
    """Spread each weight evenly over its box: a density per pixel, (height, width).

    Exact at borders within a pixel: the sum of the map is the sum of the weights that have a box.
    Where boxes overlap, they add up.

    Args:
        boxes: (K, 4), left, top, right, bottom as shares of the size; NaN for no place.
        weights: (K,).
        size: width and height in pixels.
    """
    shares, values = np.asarray(boxes, np.float64), np.asarray(weights, np.float64)
    placed = ~np.isnan(shares).any(1)
    scaled = shares[placed] * np.tile(np.array(size, np.float64), 2)
    width, height = size
    if not len(scaled):
        return np.zeros((height, width))
    # Boxes of a grid share their columns and rows: few of each, however many boxes there are.
    columns, column = np.unique(scaled[:, [0, 2]], axis=0, return_inverse=True)
    rows, row = np.unique(scaled[:, [1, 3]], axis=0, return_inverse=True)
    density = np.zeros((len(rows), len(columns)))
    areas = (scaled[:, 2] - scaled[:, 0]) * (scaled[:, 3] - scaled[:, 1])
    np.add.at(density, (row.reshape(-1), column.reshape(-1)), values[placed] / areas)
    heat: Map = _overlaps(rows, height).T @ density @ _overlaps(columns, width)
    return heat


def _overlaps(spans: Map, length: int) -> Map:
    """(S, length): how much of each pixel lies between a span's ends."""
    pixels = np.arange(length)
    covered: Map = np.minimum(spans[:, 1:], pixels + 1) - np.maximum(spans[:, :1], pixels)
    return covered.clip(0.0, 1.0)


def strengths(values: Map, floor: float = 0.0) -> Map:
    """Scale a map: 0 for the floor and below, 1 for its highest value; 0 if none is above.

    Args:
        values: the map.
        floor: what counts as no heat: 0 for weights, 1 for what is relative.
    """
    top = float(values.max(initial=floor))
    if top <= floor:
        return np.zeros_like(values)
    return ((values - floor) / (top - floor)).clip(0.0, 1.0)


def colors(strength: Map) -> Map:
    """Return the colour of each strength, (..., 3), from 0 to 255."""
    at = np.linspace(0, 1, len(COLORS))
    return np.stack([np.interp(strength, at, COLORS[:, i]) for i in range(3)], axis=-1)


def overlay(image: Image, strength: Map) -> Image:
    """Return a picture, grey and dimmed, with the heat on it: bright on any picture.

    Args:
        image: the picture.
        strength: (height, width), from 0 to 1.
    """
    from PIL import Image as pil

    # Half the colour is kept, so that the picture is known again and the heat is not mixed up.
    shown = np.asarray(image.convert("RGB"), np.float64)
    grey = shown.mean(-1, keepdims=True)
    below = DIM * (0.5 * shown + 0.5 * grey)
    cover = STRONGEST * np.sqrt(strength)[..., None]
    mixed = (1 - cover) * below + cover * colors(strength)
    return pil.fromarray(np.rint(mixed).astype(np.uint8))


PARTS: dict[str, Region] = {
    "top left": (0, 0, 0.5, 0.5),
    "top right": (0.5, 0, 1, 0.5),
    "bottom left": (0, 0.5, 0.5, 1),
    "bottom right": (0.5, 0.5, 1, 1),
    "middle": (0.25, 0.25, 0.75, 0.75),
}
"""What places are called: each a quarter of the picture, so that an even look has 25 % in each."""


class Place(NamedTuple):
    """The part of a picture with the most attention, and its share of what lies on any place."""

    part: str
    share: float


def inside(boxes: Numbers, region: Region) -> Numbers:
    """Return which share of each box lies in a region, (K,); 0 for one that has no place."""
    left, top, right, bottom = np.asarray(boxes, dtype=np.float64).T
    wide = np.minimum(right, region[2]) - np.maximum(left, region[0])
    high = np.minimum(bottom, region[3]) - np.maximum(top, region[1])
    area = (right - left) * (bottom - top)
    shared = np.clip(wide, 0, None) * np.clip(high, 0, None)
    shares: Map = np.divide(shared, area, out=np.zeros(len(boxes)), where=area > 0)  # not of NaN
    return shares


def mass(weights: Numbers, boxes: Numbers, region: Region) -> float:
    """Return the weight that lies in a region: the heat map's integral over it."""
    return float(np.asarray(weights, dtype=np.float64) @ inside(boxes, region))


def find_place(weights: Numbers, boxes: Numbers) -> Place | None:
    """Return the part of the picture with the most weight; None if no weight has a place.

    Args:
        weights: (K,), of one picture's tokens.
        boxes: (K, 4), what they saw.
    """
    whole = mass(weights, boxes, (0, 0, 1, 1))
    if not whole > 0:
        return None
    shares = {name: mass(weights, boxes, region) / whole for name, region in PARTS.items()}
    best = max(shares, key=lambda name: shares[name])
    return Place(best, shares[best])

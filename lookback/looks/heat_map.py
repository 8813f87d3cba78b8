"""Weights of boxes as a map of pixels, and the map as colours on a picture. NumPy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

Map = NDArray[np.float64]

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
    given, values = np.asarray(boxes, np.float64), np.asarray(weights, np.float64)
    placed = ~np.isnan(given).any(1)
    scaled = given[placed] * np.tile(np.array(size, np.float64), 2)
    width, height = size
    if not len(scaled):
        return np.zeros((height, width))
    # Boxes of a grid share their columns and rows: few of each, however many boxes there are.
    columns, column = np.unique(scaled[:, [0, 2]], axis=0, return_inverse=True)
    rows, row = np.unique(scaled[:, [1, 3]], axis=0, return_inverse=True)
    density = np.zeros((len(rows), len(columns)))
    areas = (scaled[:, 2] - scaled[:, 0]) * (scaled[:, 3] - scaled[:, 1])
    np.add.at(density, (row.reshape(-1), column.reshape(-1)), values[placed] / areas)
    found: Map = _overlaps(rows, height).T @ density @ _overlaps(columns, width)
    return found


def _overlaps(spans: Map, length: int) -> Map:
    """(S, length): how much of each pixel lies between a span's ends."""
    pixels = np.arange(length)
    found: Map = np.minimum(spans[:, 1:], pixels + 1) - np.maximum(spans[:, :1], pixels)
    return found.clip(0.0, 1.0)


def strengths(values: Map, floor: float = 0.0) -> Map:
    """A map as numbers from 0, for the floor and below, to 1 for its highest; 0 if none is above.

    Args:
        values: the map.
        floor: what counts as no heat: 0 for weights, 1 for what is relative.
    """
    top = float(values.max(initial=floor))
    if top <= floor:
        return np.zeros_like(values)
    return ((values - floor) / (top - floor)).clip(0.0, 1.0)


def colors(strength: Map) -> Map:
    """The colour of each strength, (..., 3), from 0 to 255."""
    at = np.linspace(0, 1, len(COLORS))
    return np.stack([np.interp(strength, at, COLORS[:, i]) for i in range(3)], axis=-1)


def overlay(image: Image, strength: Map) -> Image:
    """A picture, grey and dimmed, with the heat on it: bright on any picture, light or dark.

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

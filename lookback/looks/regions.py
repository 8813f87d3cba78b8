"""In which part of a picture attention lies: exact sums over rectangles, whatever the layout.

A vision token's weight lies evenly on its box, as in a heat map (`looks.heat_map`). The pages
compute the same (templates/look/maps.js) and are held to this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
Region = tuple[float, float, float, float]
"""Left, top, right, bottom, as shares of the width and the height."""

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
    """(K,): which share of each box lies in a region; 0 for one that has no place."""
    left, top, right, bottom = np.asarray(boxes, dtype=np.float64).T
    wide = np.minimum(right, region[2]) - np.maximum(left, region[0])
    high = np.minimum(bottom, region[3]) - np.maximum(top, region[1])
    area = (right - left) * (bottom - top)
    found = np.zeros(len(boxes))
    placed = area > 0  # not of NaN
    shared = np.clip(wide, 0, None) * np.clip(high, 0, None)
    found[placed] = shared[placed] / area[placed]
    return found


def mass(weights: Numbers, boxes: Numbers, region: Region) -> float:
    """The weight that lies in a region: the heat map's integral over it."""
    return float(np.asarray(weights, dtype=np.float64) @ inside(boxes, region))


def find_place(weights: Numbers, boxes: Numbers) -> Place | None:
    """Where most of it lies; None if none lies anywhere.

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

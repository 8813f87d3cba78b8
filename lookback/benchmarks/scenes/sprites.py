"""Drawings as small grids of role counts, made once for each shape variant and then kept.

A drawing is rasterised at `ZOOM` times its size with a role index in each pixel. Of each block of
ZOOM x ZOOM pixels a sprite keeps how many had which role: antialiased, and its colours still open.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from lookback.benchmarks.scenes.drawings import DRAWINGS
from lookback.benchmarks.scenes.shapes import FIXED, ROLES
from lookback.benchmarks.scenes.world import COLORS

ZOOM = 4
OUTLINE = 5  # diameter of the outline's pen at ZOOM; half of it stays inside
FILL = 0.9  # how much of its square a drawing fills: room for outline and tilt


class Sprite(NamedTuple):
    """How often each role occurs in each pixel's block."""

    roles: list[int]  # without "clear"
    counts: NDArray[np.int32]  # (side, side, len(roles))
    clear: NDArray[np.int32]  # (side, side, 1): what is left of ZOOM**2


@cache
def sprite(category: str, side: int, mirrored: bool, tilt: int) -> Sprite:
    """A category in a square of `side` pixels, perhaps mirrored, then turned by `tilt` degrees."""
    angle = math.radians(tilt)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    turn = np.diag([-1.0 if mirrored else 1.0, 1.0]) @ turn
    big = side * ZOOM
    image = Image.new("L", (big, big))
    pen = ImageDraw.Draw(image)
    for role, corners in DRAWINGS[category]:
        points = (corners @ turn * FILL + 1) * (big / 2) - 0.5
        pen.polygon([(x, y) for x, y in points.tolist()], fill=ROLES.index(role))
    index = np.array(image)
    body = image.point(lambda v: 255 if v else 0)
    around = np.array(body.filter(ImageFilter.MaxFilter(OUTLINE))) > 0
    index[around & (index == 0)] = ROLES.index("edge")
    roles = [int(r) for r in np.unique(index) if r]
    blocks = (index[..., None] == np.array(roles)).reshape(side, ZOOM, side, ZOOM, len(roles))
    counts = blocks.sum(axis=(1, 3), dtype=np.int32)
    return Sprite(roles, counts, ZOOM**2 - counts.sum(axis=2, keepdims=True, dtype=np.int32))


def palette(color: str, tint: tuple[int, int, int] = (0, 0, 0)) -> NDArray[np.int32]:
    """RGB of every role for a thing of that colour, its main surface shifted by `tint`."""
    main = np.array([min(max(c + t, 0), 255) for c, t in zip(COLORS[color], tint, strict=True)])
    own: dict[str, NDArray[np.int_] | tuple[int, int, int]] = {
        **FIXED,
        "clear": 0 * main,
        "edge": main * 3 // 10,
        "main": main,
        "dark": main * 13 // 20,
        "light": main + (255 - main) // 2,
    }
    if color == "white":  # nothing is lighter: what should stand out has to be darker
        own["light"] = own["paper"] = main * 21 // 25
    return np.array([own[role] for role in ROLES], dtype=np.int32)

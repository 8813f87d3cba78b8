"""Flat shapes as polygons on the square from -1 to 1, y pointing down.

A part is a role, which a palette turns into a colour, and an (n, 2) array of corners. The role
"clear" cuts a hole into what was drawn before it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# The order is the index in a sprite; "edge" is the outline that every sprite gets.
ROLES = ("clear", "edge", "main", "dark", "light", "ink", "paper", "wood", "leaf", "glass", "beak")

# Colours that do not depend on the thing's own.
FIXED: dict[str, tuple[int, int, int]] = {
    "ink": (38, 38, 44),
    "paper": (250, 244, 226),
    "wood": (112, 78, 48),
    "leaf": (70, 140, 60),
    "glass": (196, 226, 240),
    "beak": (240, 168, 40),
}

STEP = 12  # degrees between the corners of a round shape


class Part(NamedTuple):
    """One filled polygon."""

    role: str
    corners: NDArray[np.float64]


def poly(role: str, *corners: tuple[float, float]) -> Part:
    """A polygon."""
    return Part(role, np.array(corners, dtype=np.float64))


def box(role: str, left: float, top: float, right: float, bottom: float) -> Part:
    """An upright rectangle."""
    return poly(role, (left, top), (right, top), (right, bottom), (left, bottom))


def _curve(
    x: float, y: float, rx: float, ry: float, start: float, stop: float
) -> list[tuple[float, float]]:
    n = max(2, round(abs(stop - start) / STEP) + 1)
    angles = np.radians(np.linspace(start, stop, n)).tolist()
    return [(x + rx * math.cos(a), y + ry * math.sin(a)) for a in angles]


def disc(
    role: str,
    x: float,
    y: float,
    rx: float,
    ry: float | None = None,
    start: float = 0,
    stop: float = 360,
) -> Part:
    """An ellipse, or the part of it between two angles (degrees, clockwise from the right)."""
    return poly(role, *_curve(x, y, rx, rx if ry is None else ry, start, stop))


def arc(
    role: str, x: float, y: float, radius: float, width: float, start: float, stop: float
) -> Part:
    """A bent bar: the part of a ring between two angles."""
    outer, inner = radius + width / 2, radius - width / 2
    return poly(
        role, *_curve(x, y, outer, outer, start, stop), *_curve(x, y, inner, inner, stop, start)
    )


def bar(role: str, width: float, x0: float, y0: float, x1: float, y1: float) -> Part:
    """A straight bar from one point to another."""
    length = math.hypot(x1 - x0, y1 - y0)
    dx, dy = (y1 - y0) / length * width / 2, (x0 - x1) / length * width / 2
    return poly(
        role, (x0 + dx, y0 + dy), (x1 + dx, y1 + dy), (x1 - dx, y1 - dy), (x0 - dx, y0 - dy)
    )


def star(role: str, points: int, outer: float, inner: float, y: float = 0) -> Part:
    """A star with one point straight up."""
    angles = [math.pi * k / points for k in range(2 * points)]
    radii = [outer if k % 2 == 0 else inner for k in range(2 * points)]
    return poly(
        role,
        *((r * math.sin(a), y - r * math.cos(a)) for a, r in zip(angles, radii, strict=True)),
    )

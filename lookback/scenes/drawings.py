"""How each category is drawn: polygons, the parts of each category, and their sprites."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from lookback.scenes.world import COLORS

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


def _around(n: int, radius: float, y: float = 0) -> list[tuple[float, float]]:
    angles = [2 * math.pi * (k + 0.5) / n - math.pi / 2 for k in range(n)]
    return [(radius * math.cos(a), y + radius * math.sin(a)) for a in angles]


DRAWINGS: dict[str, tuple[Part, ...]] = {
    "sun": (
        star("main", 10, 1.0, 0.6),
        disc("edge", 0, 0, 0.58),
        disc("main", 0, 0, 0.5),
    ),
    "moon": (
        disc("main", -0.1, 0, 0.95),
        disc("clear", 0.36, -0.16, 0.78),
    ),
    "star": (star("main", 5, 1.05, 0.44, 0.06),),
    "cloud": (
        disc("main", -0.52, 0.18, 0.46, 0.4),
        disc("main", 0.55, 0.2, 0.43, 0.38),
        disc("main", -0.12, -0.2, 0.48),
        disc("main", 0.32, -0.05, 0.42),
        box("main", -0.5, 0.2, 0.5, 0.58),
        box("dark", -0.55, 0.44, 0.55, 0.58),
    ),
    "bird": (
        poly("main", (-0.45, 0.1), (-1.0, -0.12), (-1.0, 0.4)),
        disc("main", -0.1, 0.2, 0.58, 0.46),
        disc("main", 0.5, -0.28, 0.34),
        poly("beak", (0.78, -0.42), (1.05, -0.22), (0.76, -0.1)),
        disc("ink", 0.56, -0.34, 0.09),
        poly("dark", (0.12, 0.02), (-0.62, -0.05), (-0.3, 0.42)),
        bar("ink", 0.1, -0.15, 0.62, -0.15, 0.98),
        bar("ink", 0.1, 0.12, 0.62, 0.12, 0.98),
    ),
    "kite": (
        poly("main", (0, -1.0), (0.66, -0.28), (0, 0.52), (-0.66, -0.28)),
        poly("light", (0, -1.0), (0.66, -0.28), (0, -0.28)),
        poly("light", (0, 0.52), (-0.66, -0.28), (0, -0.28)),
        arc("ink", 0.2, 0.55, 0.2, 0.1, 90, 180),
        arc("ink", 0.2, 0.93, 0.18, 0.1, -90, 30),
        poly("main", (0.02, 0.6), (0.5, 0.92), (0.5, 0.6), (0.02, 0.92)),
    ),
    "tree": (
        box("wood", -0.16, 0.3, 0.16, 1.0),
        disc("main", -0.42, 0.12, 0.44),
        disc("main", 0.42, 0.12, 0.44),
        disc("main", 0, -0.4, 0.56),
        disc("dark", 0.28, 0.3, 0.24, 0.14),
    ),
    "flower": (
        bar("leaf", 0.14, 0, 0, 0, 1.0),
        disc("leaf", 0.28, 0.72, 0.28, 0.12),
        *(disc("main", x, y, 0.31) for x, y in _around(6, 0.42, -0.3)),
        disc("edge", 0, -0.3, 0.3),
        disc("paper", 0, -0.3, 0.23),
    ),
    "mushroom": (
        poly("paper", (-0.2, 0), (0.2, 0), (0.32, 0.95), (-0.32, 0.95)),
        disc("main", 0, 0.1, 0.98, 0.95, 180, 360),
        disc("paper", -0.42, -0.2, 0.19),
        disc("paper", 0.12, -0.5, 0.2),
        disc("paper", 0.5, -0.14, 0.16),
    ),
    "apple": (
        disc("main", -0.34, 0.22, 0.56, 0.7),
        disc("main", 0.34, 0.22, 0.56, 0.7),
        bar("wood", 0.16, 0, -0.3, 0.1, -0.85),
        disc("leaf", 0.44, -0.74, 0.34, 0.17),
        disc("light", -0.5, 0.02, 0.14, 0.22),
    ),
    "house": (
        box("main", -0.72, -0.12, 0.72, 0.95),
        poly("dark", (-1.0, -0.08), (0, -0.98), (1.0, -0.08)),
        box("ink", -0.5, 0.32, -0.08, 0.95),
        box("glass", 0.16, 0.18, 0.54, 0.54),
    ),
    "car": (
        poly("main", (-0.62, 0), (-0.4, -0.5), (0.36, -0.5), (0.64, 0)),
        poly("glass", (-0.44, -0.04), (-0.3, -0.36), (-0.06, -0.36), (-0.06, -0.04)),
        poly("glass", (0.08, -0.04), (0.08, -0.36), (0.28, -0.36), (0.46, -0.04)),
        poly("main", (-1, 0.06), (-0.9, -0.06), (0.8, -0.06), (1, 0.12), (1, 0.45), (-1, 0.45)),
        *(disc("ink", x, 0.45, 0.27) for x in (-0.55, 0.55)),
        *(disc("paper", x, 0.45, 0.1) for x in (-0.55, 0.55)),
    ),
    "flag": (
        box("ink", -0.82, -1.0, -0.66, 1.0),
        poly(
            "main",
            (-0.66, -0.95),
            (0.1, -0.8),
            (0.95, -0.92),
            (0.95, 0.02),
            (0.1, 0.14),
            (-0.66, 0),
        ),
        poly(
            "light",
            (-0.66, -0.62),
            (0.1, -0.47),
            (0.95, -0.59),
            (0.95, -0.33),
            (0.1, -0.2),
            (-0.66, -0.35),
        ),
    ),
    "boat": (
        poly("main", (-1.0, 0.4), (1.0, 0.4), (0.6, 0.92), (-0.62, 0.92)),
        bar("ink", 0.12, -0.05, -1.0, -0.05, 0.4),
        poly("paper", (0.1, -0.9), (0.84, 0.24), (0.1, 0.24)),
        poly("main", (-0.2, -0.6), (-0.2, 0.24), (-0.72, 0.24)),
    ),
    "fish": (
        poly("main", (-0.4, 0), (-1.0, -0.52), (-0.86, 0), (-1.0, 0.52)),
        disc("main", 0.2, 0, 0.76, 0.48),
        poly("dark", (-0.1, -0.38), (0.2, -0.72), (0.45, -0.38)),
        arc("dark", 0.1, 0, 0.38, 0.12, -45, 45),
        disc("paper", 0.64, -0.12, 0.16),
        disc("ink", 0.66, -0.12, 0.09),
    ),
    "umbrella": (
        disc("main", 0, 0.1, 1.0, 0.98, 180, 360),
        *(disc("clear", x, 0.14, 0.22, 0.2) for x in (-0.76, -0.25, 0.25, 0.76)),
        poly("dark", (0, -0.88), (0.26, -0.02), (-0.26, -0.02)),
        bar("ink", 0.13, 0, -0.05, 0, 0.76),
        arc("ink", 0.18, 0.74, 0.18, 0.13, 0, 180),
    ),
    "cup": (
        arc("main", 0.46, 0.06, 0.36, 0.2, -90, 90),
        poly(
            "main",
            (-0.86, -0.6),
            (0.5, -0.6),
            (0.38, 0.72),
            (0.2, 0.85),
            (-0.56, 0.85),
            (-0.74, 0.72),
        ),
        disc("dark", -0.18, -0.6, 0.68, 0.2),
    ),
    "book": (
        poly("main", (-1.0, -0.62), (0, -0.46), (1.0, -0.62), (1.0, 0.66), (0, 0.86), (-1.0, 0.66)),
        poly("paper", (-0.84, -0.68), (-0.06, -0.5), (-0.06, 0.48), (-0.84, 0.26)),
        poly("paper", (0.84, -0.68), (0.06, -0.5), (0.06, 0.48), (0.84, 0.26)),
        *(bar("ink", 0.07, -0.66, y, -0.24, y + 0.09) for y in (-0.32, -0.02)),
        *(bar("ink", 0.07, 0.24, y + 0.09, 0.66, y) for y in (-0.32, -0.02)),
    ),
    "clock": (
        bar("main", 0.2, -0.5, 0.6, -0.72, 0.98),
        bar("main", 0.2, 0.5, 0.6, 0.72, 0.98),
        disc("main", -0.52, -0.76, 0.26),
        disc("main", 0.52, -0.76, 0.26),
        disc("edge", 0, 0.02, 0.9),
        disc("main", 0, 0.02, 0.86),
        disc("edge", 0, 0.02, 0.56),
        disc("paper", 0, 0.02, 0.5),
        bar("ink", 0.14, 0, 0.06, 0, -0.36),
        bar("ink", 0.14, -0.04, 0.02, 0.3, 0.02),
    ),
    "lamp": (
        box("ink", -0.08, 0, 0.08, 0.85),
        disc("ink", 0, 0.96, 0.5, 0.2, 180, 360),
        poly("main", (-0.36, -0.95), (0.36, -0.95), (0.8, 0.12), (-0.8, 0.12)),
        poly("light", (-0.26, -0.85), (0, -0.85), (-0.22, 0.02), (-0.6, 0.02)),
    ),
    "key": (
        disc("main", -0.5, 0, 0.5),
        disc("clear", -0.54, 0, 0.22),
        box("main", -0.05, -0.14, 1.0, 0.14),
        box("main", 0.4, 0.1, 0.58, 0.46),
        box("main", 0.78, 0.1, 1.0, 0.5),
    ),
    "chair": (
        box("main", -0.66, -1.0, -0.42, 1.0),
        box("main", -0.66, 0.0, 0.66, 0.26),
        box("main", 0.42, 0.1, 0.66, 1.0),
        box("dark", -0.42, -0.86, -0.16, 0.0),
    ),
    "hat": (
        disc("main", 0, 0.58, 1.0, 0.26),
        poly("main", (-0.52, -0.72), (0.52, -0.72), (0.46, 0.5), (-0.46, 0.5)),
        disc("main", 0, -0.72, 0.52, 0.14),
        poly("paper", (-0.49, 0.14), (0.49, 0.14), (0.46, 0.44), (-0.46, 0.44)),
    ),
    "ball": (
        disc("main", 0, 0, 0.92),
        *(
            poly("paper", (0, 0), *((0.92 * math.cos(a), 0.92 * math.sin(a)) for a in angles))
            for angles in ((0.5, 0.8, 1.1, 1.4), (2.6, 2.9, 3.2, 3.5), (4.7, 5.0, 5.3, 5.6))
        ),
    ),
    "heart": (
        disc("main", -0.45, -0.34, 0.5),
        disc("main", 0.45, -0.34, 0.5),
        poly("main", (-0.9, -0.14), (0, -0.3), (0.9, -0.14), (0, 0.92)),
        disc("light", -0.52, -0.42, 0.16, 0.13),
    ),
}


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
    """Return a category in a square of `side` pixels, mirrored or not, turned by `tilt` degrees."""
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
    """Return the RGB of every role for a thing of a colour, its main surface shifted by `tint`."""
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

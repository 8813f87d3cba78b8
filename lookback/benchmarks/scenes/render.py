"""Scenes as pixels. A thing's pixels depend on that thing alone, the rest on the scene's seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lookback.benchmarks.scenes.background import background
from lookback.benchmarks.scenes.chance import BACKGROUND, generator
from lookback.benchmarks.scenes.scene import Scene, Thing
from lookback.benchmarks.scenes.sprites import ZOOM, palette, sprite
from lookback.benchmarks.scenes.world import IMAGE_SIZE

SIDES = {"small": (15, 16, 17), "large": (23, 24, 25)}  # pixels of the square a thing is drawn in
TILTS = (-9, -4, 0, 4, 9)  # degrees
TINT = 9  # a thing's main colour differs from its name's by up to this, per channel


def _digits(number: int, *bases: int) -> list[int]:
    """A number in mixed bases, last digit first: independent choices from one integer."""
    digits = []
    for base in bases:
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits


def bounds(thing: Thing) -> tuple[int, int, int, int]:
    """The square a thing is drawn in: left, top, right, bottom; always inside its cell."""
    sides = SIDES[thing.size]
    which, x, y = _digits(thing.look, len(sides), 256, 256)
    side = sides[which]
    left, top = (_offset(at, side, by) for at, by in ((thing.column, x), (thing.row, y)))
    return left, top, left + side, top + side


def _offset(cell: int, side: int, by: int) -> int:
    first, end = -(-cell * IMAGE_SIZE // 3), (cell + 1) * IMAGE_SIZE // 3
    return first + (end - first - side + 1) * by // 256


def _painted(thing: Thing) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """What a thing adds to each pixel of its square, and how much of what is below it stays.

    Both are in parts of ZOOM**2: (side, side, 3) and (side, side, 1).
    """
    left, _, right, _ = bounds(thing)
    rest = thing.look // (len(SIDES[thing.size]) * 256 * 256)
    mirrored, tilt, *tint = _digits(rest, 2, len(TILTS), *(2 * TINT + 1,) * 3)
    roles, counts, clear = sprite(thing.category, right - left, bool(mirrored), TILTS[tilt])
    red, green, blue = (t - TINT for t in tint)
    return counts @ palette(thing.color, (red, green, blue))[roles], clear


def paste(canvas: NDArray[np.int32], thing: Thing) -> None:
    """Draw a thing onto an (H, W, 3) canvas, in place."""
    left, top, right, bottom = bounds(thing)
    colors, clear = _painted(thing)
    under = canvas[top:bottom, left:right]
    canvas[top:bottom, left:right] = (under * clear + colors) // ZOOM**2


def cut_out(thing: Thing) -> Image.Image:
    """A thing alone, in its square, with nothing behind it: RGBA."""
    colors, clear = _painted(thing)
    full = ZOOM**2 - clear
    parts = np.concatenate([colors // np.maximum(full, 1), 255 * full // ZOOM**2], axis=2)
    return Image.fromarray(np.clip(parts, 0, 255).astype(np.uint8), "RGBA")


def pixels(scene: Scene) -> NDArray[np.uint8]:
    """The picture as an (IMAGE_SIZE, IMAGE_SIZE, 3) array of bytes."""
    canvas, noise = background(generator(scene.seed, BACKGROUND))
    for thing in scene.things:
        paste(canvas, thing)
    picture: NDArray[np.int32] = np.clip(canvas + noise, 0, 255)
    return picture.astype(np.uint8)


def render(scene: Scene) -> Image.Image:
    """The picture of a scene."""
    return Image.fromarray(pixels(scene))

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


def paste(canvas: NDArray[np.int32], thing: Thing) -> None:
    """Draw a thing onto an (H, W, 3) canvas, in place."""
    left, top, right, bottom = bounds(thing)
    rest = thing.look // (len(SIDES[thing.size]) * 256 * 256)
    mirrored, tilt, *tint = _digits(rest, 2, len(TILTS), *(2 * TINT + 1,) * 3)
    roles, counts, clear = sprite(thing.category, right - left, bool(mirrored), TILTS[tilt])
    red, green, blue = (t - TINT for t in tint)
    colors = palette(thing.color, (red, green, blue))[roles]
    under = canvas[top:bottom, left:right]
    canvas[top:bottom, left:right] = (under * clear + counts @ colors) // ZOOM**2


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

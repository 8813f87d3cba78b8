"""A scene as pixels: a textured, noisy background and the things before it.

All in whole numbers, so that every machine gets the same pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lookback.scenes.drawings import ZOOM, palette, sprite
from lookback.scenes.scene import BACKGROUND, Scene, Thing, below, chance, generator, pick
from lookback.scenes.world import IMAGE_SIZE

Field = NDArray[np.int32]  # (IMAGE_SIZE, IMAGE_SIZE), 0 to 255

X: Field = np.tile(np.arange(IMAGE_SIZE, dtype=np.int32), (IMAGE_SIZE, 1))
Y: Field = X.T
LEVELS = (78, 190)  # darkest and lightest mean of a background's channels
SPREAD = 28  # how far a channel may be from that mean: muted beside the things' colours
CONTRAST = 26  # between the two colours of a texture, per channel
NOISE = (8, 34)  # half width of the noise's triangle
STROKES = (1, 4)


def _grid(rng: np.random.Generator, n: int, method: Image.Resampling) -> Field:
    cells = Image.frombytes("L", (n, n), rng.bytes(n * n))
    return np.array(cells.resize((IMAGE_SIZE, IMAGE_SIZE), method), dtype=np.int32)


def _slope(rng: np.random.Generator) -> Field:
    """Return a plane in a random direction, not yet between 0 and 255."""
    return (below(rng, 17) - 8) * X + (below(rng, 17) - 8) * Y


def plain(rng: np.random.Generator) -> Field:
    """One colour."""
    return np.full_like(X, 128)


def gradient(rng: np.random.Generator) -> Field:
    """From one colour to the other."""
    slope = _slope(rng)
    low = int(slope.min())
    return (slope - low) * 255 // max(1, int(slope.max()) - low)


def stripes(rng: np.random.Generator) -> Field:
    """Soft bands."""
    wave = (_slope(rng) + below(rng, 64)) % 64 * 8
    return np.minimum(wave, 511 - wave)


def checks(rng: np.random.Generator) -> Field:
    """A board of squares."""
    width = 5 + below(rng, 8)
    across, down = ((axis + below(rng, width)) // width for axis in (X, Y))
    return (across + down) % 2 * 255


def blotches(rng: np.random.Generator) -> Field:
    """Smooth spots."""
    return _grid(rng, 4 + below(rng, 8), Image.Resampling.BICUBIC)


def mosaic(rng: np.random.Generator) -> Field:
    """Tiles of random shade."""
    return _grid(rng, 10 + below(rng, 11), Image.Resampling.NEAREST)


Texture = Callable[[np.random.Generator], Field]
TEXTURES: tuple[Texture, ...] = (plain, gradient, stripes, checks, blotches, mosaic)


def strokes(rng: np.random.Generator) -> Field:
    """Return the coverage (0 to 255) of a few thin lines and bows that mean nothing."""
    side = 2 * IMAGE_SIZE
    image = Image.new("L", (side, side))
    pen = ImageDraw.Draw(image)
    for _ in range(STROKES[0] + below(rng, STROKES[1])):
        x, y, u, v = (below(rng, side) for _ in range(4))
        strength, width = 90 + below(rng, 120), 1 + below(rng, 4)
        if chance(rng, 0.5):
            pen.line((x, y, u, v), fill=strength, width=width)
        else:
            frame = (min(x, u), min(y, v), max(x, u), max(y, v))
            start = below(rng, 360)
            pen.arc(frame, start, start + 40 + below(rng, 180), fill=strength, width=width)
    return np.array(image.reduce(2), dtype=np.int32)


def _shifted(rng: np.random.Generator, color: Field, by: int) -> Field:
    return color + np.array([below(rng, 2 * by + 1) - by for _ in range(3)], dtype=np.int32)


def background(rng: np.random.Generator) -> tuple[Field, Field]:
    """Return a background and the noise to lay over the finished picture, both (H, W, 3)."""
    level = np.full(3, LEVELS[0] + below(rng, LEVELS[1] - LEVELS[0]), dtype=np.int32)
    first = _shifted(rng, level, SPREAD)
    second, third = _shifted(rng, first, CONTRAST), _shifted(rng, first, 2 * CONTRAST)
    field = pick(rng, TEXTURES)(rng)[..., None]
    canvas = first + ((second - first) * field >> 8)
    canvas += (third - canvas) * strokes(rng)[..., None] >> 8
    shape = (2, IMAGE_SIZE, IMAGE_SIZE, 3)
    pairs = np.frombuffer(rng.bytes(int(np.prod(shape))), dtype=np.uint8).reshape(shape)
    width = NOISE[0] + below(rng, NOISE[1] - NOISE[0])
    noise = (pairs[0].astype(np.int32) + pairs[1] - 255) * width >> 8
    return canvas, noise


SIDES = {"small": (15, 16, 17), "large": (23, 24, 25)}  # pixels of the square a thing is drawn in
TILTS = (-9, -4, 0, 4, 9)  # degrees
TINT = 9  # a thing's main colour differs from its name's by up to this, per channel


def _digits(number: int, *bases: int) -> list[int]:
    """Return a number in mixed bases, last digit first: independent choices from one integer."""
    digits = []
    for base in bases:
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits


def bounds(thing: Thing) -> tuple[int, int, int, int]:
    """Return the square a thing is drawn in: left, top, right, bottom; always inside its cell."""
    sides = SIDES[thing.size]
    which, x, y = _digits(thing.look, len(sides), 256, 256)
    side = sides[which]
    left, top = (_offset(at, side, by) for at, by in ((thing.column, x), (thing.row, y)))
    return left, top, left + side, top + side


def _offset(cell: int, side: int, by: int) -> int:
    first, end = -(-cell * IMAGE_SIZE // 3), (cell + 1) * IMAGE_SIZE // 3
    return first + (end - first - side + 1) * by // 256


def _painted(thing: Thing) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return what a thing adds to each pixel of its square, and how much of what is below stays.

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
    """Return a thing alone, in its square, with nothing behind it: RGBA."""
    colors, clear = _painted(thing)
    full = ZOOM**2 - clear
    parts = np.concatenate([colors // np.maximum(full, 1), 255 * full // ZOOM**2], axis=2)
    return Image.fromarray(np.clip(parts, 0, 255).astype(np.uint8), "RGBA")


def pixels(scene: Scene) -> NDArray[np.uint8]:
    """Return the picture as an (IMAGE_SIZE, IMAGE_SIZE, 3) array of bytes."""
    canvas, noise = background(generator(scene.seed, BACKGROUND))
    for thing in scene.things:
        paste(canvas, thing)
    picture: NDArray[np.int32] = np.clip(canvas + noise, 0, 255)
    return picture.astype(np.uint8)


def render(scene: Scene) -> Image.Image:
    return Image.fromarray(pixels(scene))

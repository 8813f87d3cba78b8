"""Textured, noisy backgrounds in whole numbers, so that every machine gets the same pixels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lookback.benchmarks.scenes.chance import below, chance, pick
from lookback.benchmarks.scenes.world import IMAGE_SIZE

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
    """A plane in a random direction, not yet between 0 and 255."""
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


TEXTURES: tuple[Callable[[np.random.Generator], Field], ...] = (
    plain,
    gradient,
    stripes,
    checks,
    blotches,
    mosaic,
)


def strokes(rng: np.random.Generator) -> Field:
    """Coverage (0 to 255) of a few thin lines and bows that mean nothing."""
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
    """A background and the noise to lay over the finished picture, both (H, W, 3)."""
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

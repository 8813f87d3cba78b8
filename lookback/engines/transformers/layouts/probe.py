"""Which part of a picture the processor shows the model: measured, not calculated.

Processors resize, crop, pad and tile in ways that differ with their class, version and settings.
So the processor itself is given pictures of the same sizes with known colours: black, white, and a
slope whose red encodes how far to the right a pixel is and whose green how far down. Its output
gives for each pixel that the model sees its place in the picture; where black and white look the
same there is padding. Rounding to 256 colours averages out over many pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lookback.conversations import Conversation, Part
from lookback.engines.common.prompts import Prompter
from lookback.engines.transformers.layouts.grids import NoMapError

# Red is mostly x and a little y, green the other way round: no two rows are rounded alike.
_TILT = np.array([[0.8, 0.2], [0.2, 0.8]])
_TOLERANCE = 0.02  # of a pixel's place, in shares: three times what rounding can do
_MIXED = 0.02  # beyond that a pixel is part padding
_POINTS = 100_000  # to fit a line through; more change nothing
_REACHES = (3, 1, 0)  # pixels that resampling mixes at an edge; in a narrow strip fewer
_NEAR = 0.3  # of a pixel

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Paint = Callable[[tuple[int, int], float], Image.Image]


@dataclass(frozen=True, eq=False)
class Pixels:
    """Where in the picture each pixel of one view was.

    Attributes:
        x, y: (height, width), in shares of the picture's width and height; NaN for padding.
        size: the picture's width and height in pixels.
    """

    x: Array
    y: Array
    size: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.x.shape
        return height, width


@dataclass(frozen=True)
class Line:
    """Pixel `p` of a view (counted at its edges) lies at `start + step * p` of the picture."""

    start: float
    step: float

    def at(self, pixels: NDArray[Any]) -> Array:
        shares: Array = self.start + self.step * pixels
        return shares


class Probe:
    """What the processor makes of the same conversation with other pictures in it."""

    def __init__(self, prompter: Prompter, conversation: Conversation) -> None:
        self._prompter, self._conversation = prompter, conversation

    def _show(self, paint: Paint) -> Mapping[str, Any]:
        return self._prompter.processed(_painted(self._conversation, paint))

    @cached_property
    def black(self) -> Mapping[str, Any]:
        return self._show(lambda size, number: Image.new("RGB", size, "black"))

    @cached_property
    def white(self) -> Mapping[str, Any]:
        return self._show(lambda size, number: Image.new("RGB", size, "white"))

    @cached_property
    def slope(self) -> Mapping[str, Any]:
        """Red grows to the right, green downwards."""
        return self._show(lambda size, number: _slope(size))

    @cached_property
    def numbers(self) -> Mapping[str, Any]:
        """Each frame of a video a little lighter than the one before, from black to white."""
        return self._show(lambda size, number: Image.new("RGB", size, (round(255 * number),) * 3))

    @property
    def places(self) -> tuple[Mapping[str, Any], ...]:
        """What `locate` needs."""
        return self.black, self.white, self.slope


def frame_numbers(black: Array, white: Array, numbers: Array, frames: int) -> list[int]:
    """Return the first frame of each step in time; all arrays are (steps, ...).

    Raises:
        NoMapError: it cannot be measured.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (numbers - black) / (white - black)
    shares = np.where(np.abs(white - black) > 0, shares, np.nan).reshape(len(shares), -1)
    first = np.nanpercentile(shares, 1, axis=1) * (frames - 1)  # of several frames, the first
    if np.abs(first - first.round()).max() > 0.25:
        raise NoMapError(f"which of the {frames} frames its processor shows cannot be measured")
    return [int(k) for k in first.round()]


def locate(black: Array, white: Array, slope: Array, size: tuple[int, int]) -> Pixels:
    """Return where each pixel of a view was, from views of the three pictures, (3, H, W)."""
    span = (white - black)[:2]
    strong = np.abs(span)
    strong[strong < strong.max(axis=(1, 2), keepdims=True) / 2] = np.nan
    usual = np.nanmedian(strong, axis=(1, 2), keepdims=True) if strong.any() else 1.0
    seen = (np.abs(np.abs(span) / usual - 1) < _MIXED).all(0)
    shares = np.full(span.shape, np.nan)
    shares[:, seen] = (slope - black)[:2, seen] / span[:, seen]
    x, y = np.einsum("ij,jhw->ihw", np.linalg.inv(_TILT), shares)
    return Pixels(x, y, size)


def join(views: Sequence[Pixels], rows: int, columns: int) -> Pixels:
    """Join views of one size, in reading order, side by side."""
    x, y = (
        np.block([[field(views[r * columns + c]) for c in range(columns)] for r in range(rows)])
        for field in (lambda view: view.x, lambda view: view.y)
    )
    return Pixels(x, y, views[0].size)


def fit(pixels: Pixels) -> tuple[Line, Line] | None:
    """Return the lines along which x and y grow over a view; None if they do not grow so."""
    rows, columns = np.nonzero(np.isfinite(pixels.x))
    keep = slice(None, None, len(rows) // _POINTS + 1)
    for reach in _REACHES:
        lines = _fit(pixels, rows[keep], columns[keep], reach)
        if lines is not None:
            return _exact(lines[0]), _exact(lines[1])
    return None


def _fit(pixels: Pixels, rows: Indices, columns: Indices, reach: int) -> tuple[Line, Line] | None:
    """Fit without `reach` pixels at every edge, where resampling mixes colours."""
    lines = _lines(pixels, rows, columns)
    for _ in range(2):  # where the edges are is known better the second time
        if lines is None:
            return None
        inner = _inside(pixels, lines, rows, columns, reach)
        rows, columns = rows[inner], columns[inner]
        lines = _lines(pixels, rows, columns)
    if lines is None:
        return None
    wrong = [
        np.abs(lines[0].at(columns + 0.5) - pixels.x[rows, columns]).max(),
        np.abs(lines[1].at(rows + 0.5) - pixels.y[rows, columns]).max(),
    ]
    return lines if max(wrong) < _TOLERANCE else None


def _lines(pixels: Pixels, rows: Indices, columns: Indices) -> tuple[Line, Line] | None:
    """Fit planes to x and y; None unless x grows to the right only and y downwards only."""
    if len(rows) == 0 or min(np.ptp(rows), np.ptp(columns)) < 2:
        return None
    points = np.stack([np.ones(len(rows)), columns + 0.5, rows + 0.5], axis=1)
    values = np.stack([pixels.x[rows, columns], pixels.y[rows, columns]], axis=1)
    (start_x, start_y), (right_x, right_y), (down_x, down_y) = np.linalg.lstsq(points, values)[0]
    height, width = pixels.shape
    aside = max(abs(right_y) * width, abs(down_x) * height)
    grown = min(right_x * np.ptp(columns), down_y * np.ptp(rows))
    if aside > _TOLERANCE or grown < _TOLERANCE:
        return None
    return Line(start_x, right_x), Line(start_y, down_y)


def _inside(
    pixels: Pixels, lines: tuple[Line, Line], rows: Indices, columns: Indices, reach: int
) -> NDArray[np.bool_]:
    """Which pixels are far enough from the edges of the picture and of the view."""
    inner = np.ones(len(rows), dtype=bool)
    height, width = pixels.shape
    for line, at, length, size in zip(
        lines, (columns, rows), (width, height), pixels.size, strict=True
    ):
        border = reach * max(1 / size, line.step)  # of the picture, in shares
        share = line.at(at + 0.5)
        inner &= (share > border) & (share < 1 - border)
        inner &= (at >= border / line.step) & (at < length - border / line.step)
    return inner


def _exact(line: Line) -> Line:
    """Round a line to whole pixels, if it is near: pictures are resized and cut at whole pixels."""
    length = 1 / line.step
    whole, start = round(length), round(line.start * length)
    if abs(length - whole) < _NEAR and abs(line.start * length - start) < _NEAR:
        return Line(start / whole, 1 / whole)
    return line


def _painted(conversation: Conversation, paint: Paint) -> Conversation:
    images, videos = iter(conversation.images), iter(conversation.videos)

    def painted(part: Part) -> Part:
        if part.kind == "image":
            return replace(part, media=paint(next(images).size, 0.0))
        if part.kind == "video":
            frames = next(videos)
            last = max(len(frames) - 1, 1)
            return replace(part, media=[paint(one.size, k / last) for k, one in enumerate(frames)])
        return part

    return Conversation(
        tuple(
            replace(turn, parts=tuple(painted(part) for part in turn.parts))
            for turn in conversation.turns
        )
    )


def _slope(size: tuple[int, int]) -> Image.Image:
    width, height = size
    x = (np.arange(width, dtype=np.float32)[None, :] + 0.5) / width
    y = (np.arange(height, dtype=np.float32)[:, None] + 0.5) / height
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    for color, (right, down) in enumerate(_TILT):
        pixels[..., color] = np.round(255 * (right * x + down * y))
    return Image.fromarray(pixels)

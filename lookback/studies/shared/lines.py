"""Lines in figures: told apart without colour, and named where they end instead of in a legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle, product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from lookback.studies.shared.plots import SMALL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATTERNS = ((5, 1.5), (1.2, 1.2), (6, 1.5, 1.2, 1.5), (2.5, 1), (6, 1.2, 1.2, 1.2, 1.2, 1.2))
DASHES = ("-", *((0, pattern) for pattern in PATTERNS))
MARKERS = ("", "o", "s", "^", "D", "v", "P", "X")
SPACING = 1.25
"""From one label to the next, as a multiple of the size of type."""
ENDS = "line end"
"""What marks a label as one of `label_end`."""


def line_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A style per name, no two the same: the first is solid, then dashes, then markers too.

    So lines stay apart in print and for those who see colours otherwise.
    """
    looks = cycle(product(MARKERS, DASHES))
    return {
        name: {"marker": marker, "markevery": 0.2, "markersize": 3, "linestyle": dashes}
        for name, (marker, dashes) in zip(names, looks, strict=False)
    }


def readable(color: str) -> str:
    """A colour of text: the same hue, as dark as it must be to be read on white (4.5 : 1)."""
    from matplotlib.colors import to_hex, to_rgb

    shade = np.array(to_rgb(color))
    while contrast(shade) < 4.5:
        shade = 0.95 * shade
    return to_hex(shade.tolist())


def contrast(rgb: ArrayLike, paper: ArrayLike = (1, 1, 1)) -> float:
    """Of a colour against the paper's, from 1 to 21, as the Web's guidelines define it."""
    dark, light = sorted(map(_luminance, (rgb, paper)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(rgb: ArrayLike) -> float:
    parts = np.asarray(rgb, dtype=float)
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def label_end(axis: Any, x: ArrayLike, y: ArrayLike, name: str, color: str) -> None:
    """Name a line where it ends, at the right of its panel; `settle_labels` follows.

    Args:
        axis: the panel.
        x, y: the line; without any number in it it has no name.
        name: what it is called.
        color: its colour.
    """
    xs, ys = (np.asarray(part, dtype=float) for part in (x, y))
    known = np.flatnonzero(np.isfinite(ys))
    if not len(known):
        return
    end = xs[known[-1]], ys[known[-1]]
    axis.annotate(
        name, end, (1.05, end[1]), textcoords=axis.get_yaxis_transform(), va="center",
        fontsize=SMALL, color=readable(color), gid=ENDS, annotation_clip=False,
        arrowprops={
            "arrowstyle": "-", "color": color, "lw": 0.5, "shrinkA": 1, "shrinkB": 1,
            "relpos": (0, 0.5),  # from the middle of the label's left edge: over no other label
        },
    )  # fmt: skip


def settle_labels(figure: Figure) -> None:
    """Move the labels of `label_end` apart, in each panel: once all is drawn and has its size."""
    figure.draw_without_rendering()
    for axis in figure.axes:
        labels: list[Any] = [text for text in axis.texts if text.get_gid() == ENDS]
        if not labels:
            continue
        bottom, top = axis.transAxes.transform([(0, 0), (0, 1)])[:, 1]
        gap = SPACING * SMALL * figure.dpi / 72
        wanted = [axis.transData.transform((0, label.xy[1]))[1] for label in labels]
        placed = spread(wanted, gap, bottom + gap / 2, top - gap / 2)
        back = axis.transData.inverted()
        for label, y in zip(labels, placed, strict=True):
            label.set_position((label.get_position()[0], back.transform((0, y))[1]))


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places from `low` to `high`, in the order of the wanted ones, at least `gap` apart.

    Of all such places those with the least squares of the distances to the wanted ones. Where there
    is no room for the gap, they stand evenly.
    """
    if not wanted:
        return []
    order = np.argsort(wanted, kind="stable")
    steps = np.arange(len(wanted)) * min(gap, (high - low) / max(1, len(wanted) - 1))
    free = _rising((np.asarray(wanted, dtype=float)[order] - steps).tolist())
    placed = np.empty(len(wanted))
    placed[order] = np.clip(free, low, high - steps[-1]) + steps
    return [float(place) for place in placed]


def _rising(values: Sequence[float]) -> list[float]:
    """The nearest numbers, by least squares, that never fall: neighbours that do are averaged."""
    blocks: list[list[float]] = []
    for value in values:
        block = [value]
        while blocks and fmean(blocks[-1]) > fmean(block):
            block = blocks.pop() + block
        blocks.append(block)
    return [fmean(block) for block in blocks for _ in block]

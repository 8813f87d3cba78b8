"""The look of all figures, and how they are saved."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "svg.hashsalt": "lookback",  # the same figure has the same bytes
}


def panels(
    rows: int, columns: int, width: float = 3.4, height: float = 2.6, **settings: Any
) -> tuple[Figure, Any]:
    """A figure and its axes, always as a two-dimensional array."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'lookback-vlm[plots]'") from error
    matplotlib.rcParams.update(STYLE)
    # Not through pyplot, which would keep every figure until it is closed.
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    return figure, axes


def tiles(
    count: int, high: int = 1, across: int = 4, **settings: Any
) -> tuple[Figure, list[list[Any]]]:
    """A figure of `count` tiles, each of `high` axes one below another; `across` tiles per row."""
    columns = min(count, across)
    figure, axes = panels(-(-count // columns) * high, columns, **settings)
    corners = [(row, column) for row in range(0, len(axes), high) for column in range(columns)]
    found = [list(axes[row : row + high, column]) for row, column in corners]
    for tile in found[count:]:
        for axis in tile:
            axis.set_axis_off()
    return figure, found[:count]


class Dots(NamedTuple):
    """One series of `dots`: a value per group, with where its whiskers end.

    Attributes:
        color: of dots and whiskers.
        values, low, high: as many numbers as there are groups; NaN is left out.
        filled: whether its dots are.
    """

    color: str
    values: ArrayLike
    low: ArrayLike
    high: ArrayLike
    filled: bool = True


def dots(groups: Sequence[str], series: Mapping[str, Dots], ylabel: str) -> Figure:
    """Series side by side in each group: dots with whiskers, which need no axis from zero."""
    figure, axes = panels(1, 1, width=max(4.2, 1.6 * len(groups) + 1.8), height=3.0)
    axis, width = axes[0, 0], 0.7 / len(series)
    for number, (name, one) in enumerate(series.items()):
        values, low, high = (np.asarray(part, dtype=float) for part in one[1:4])
        x = np.arange(len(groups)) + (number - (len(series) - 1) / 2) * width
        around = np.abs([values - low, high - values])
        face = one.color if one.filled else "white"
        axis.errorbar(
            x, values, yerr=around, fmt="o", markersize=5, color=one.color, mfc=face,
            capsize=2, linewidth=1, label=name,
        )  # fmt: skip
    axis.set_xticks(range(len(groups)), groups)
    axis.set_xlim(-0.6, len(groups) - 0.4)
    axis.set_ylabel(ylabel)
    axis.grid(axis="y", color="#e5e7eb", linewidth=0.6)
    axis.set_axisbelow(True)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


def figure_bytes(figure: Figure, form: str) -> bytes:
    """The figure as "png" or "svg"."""
    buffer = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    figure.savefig(buffer, format=form, dpi=160, metadata=metadata)
    return buffer.getvalue()

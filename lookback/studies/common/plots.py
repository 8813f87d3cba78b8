"""The look of all figures, and how they are saved.

A figure is as wide as one or two columns of a paper, with type of 8 points at that size: it is made
to be set as it is, not scaled. Drawing functions are marked `@in_style`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import cycle, product
from statistics import fmean
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure


F = TypeVar("F", bound=Callable[..., Any])
ONE_COLUMN, TWO_COLUMNS = 3.3, 6.9
"""The widths of figures, in inches."""
SMALL = 7
"""The size of ticks, labels inside a figure, and legends, in points."""
LEGEND = 0.25
"""The height of a legend of one line, in inches."""
INK, MUTED, PALE, GRID = "#1f2937", "#64748b", "#cbd5e1", "#e5e7eb"
FORMS = ("pdf", "png", "svg")
"""As what a figure is saved: for papers, for documents, for pages."""
SAVED: dict[Any, Any] = {
    "svg.hashsalt": "lookback",  # the same figure has the same bytes
    "svg.fonttype": "path",  # an SVG inside a page cannot bring a font: letters are drawn
    "pdf.fonttype": 42,  # TrueType, which journals take; the default, Type 3, many refuse
    "ps.fonttype": 42,
}
"""How every figure is saved, a user's own too."""
STYLE: dict[Any, Any] = SAVED | {
    "font.family": ["DejaVu Sans"],  # it comes with matplotlib: the same on every machine
    "font.size": 8,
    "text.parse_math": False,  # a name may have a dollar sign
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": False,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "hatch.linewidth": 0.6,
    "text.color": INK,
    "axes.labelcolor": INK,
}
for _axis in ("xtick", "ytick"):
    STYLE |= {f"{_axis}.labelsize": SMALL, f"{_axis}.labelcolor": INK, f"{_axis}.color": MUTED}
    STYLE |= {f"{_axis}.major.width": 0.6, f"{_axis}.major.size": 2.5}


def in_style(draw: F) -> F:
    """Let a function draw in our style, and leave the user's own settings as they are."""

    @wraps(draw)
    def styled(*args: Any, **kwargs: Any) -> Any:
        with _matplotlib().rc_context(STYLE):
            return draw(*args, **kwargs)

    return styled  # type: ignore[return-value]


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'lookback-vlm[plots]'") from error
    return matplotlib


@in_style
def panels(
    rows: int, columns: int, width: float | None = None, height: float = 1.7, **settings: Any
) -> tuple[Figure, Any]:
    """A figure and its axes, always as a two-dimensional array.

    Args:
        rows, columns: of panels.
        width: of the figure, in inches; by default one column of a paper for one column of panels,
            else two.
        height: of a row of panels.
        settings: for `Figure.subplots`.
    """
    wide = width or (ONE_COLUMN if columns == 1 else TWO_COLUMNS)
    # Not through pyplot, which would keep every figure until it is closed.
    figure = _figure_class()(figsize=(wide, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    return figure, axes


def _figure_class() -> Any:
    """A figure that is drawn in our style: ticks are made only then."""
    from matplotlib.figure import Figure

    class StyledFigure(Figure):
        draw = in_style(Figure.draw)

    return StyledFigure


def tiles(
    count: int, high: int = 1, across: int = 4, **settings: Any
) -> tuple[Figure, list[list[Any]]]:
    """A figure of `count` tiles, each of `high` axes one below another; `across` tiles per row."""
    columns = min(count, across)
    figure, axes = panels(-(-count // columns) * high, columns, **settings)
    corners = [(row, column) for row in range(0, len(axes), high) for column in range(columns)]
    stacks = [list(axes[row : row + high, column]) for row, column in corners]
    for tile in stacks[count:]:
        for axis in tile:
            axis.set_axis_off()
    return figure, stacks[:count]


def heading(*lines: str, across: int = 1) -> str:
    """The title of a panel, each line broken so that it is no wider than its panel.

    Args:
        lines: e.g. the benchmark, and the model.
        across: how many panels stand side by side.
    """
    room = min(40, 84 // across)
    return "\n".join(_break(line, room) for line in lines if line)


def _break(line: str, room: int) -> str:
    """Lines of so many letters at most: a model's owner stands on a line of its own."""
    owner, slash, name = line.rpartition("/") if len(line) > room else ("", "", line)
    return "\n".join(fill(part, room) for part in (owner + slash, name) if part)


def add_legend(figure: Figure, where: str, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Put a legend above ("upper") or below ("lower") the panels, no wider than the figure.

    It has as many columns as fit; where one is too wide, its names are broken. The figure becomes
    higher by all lines but the first.
    """
    columns = [(count, 999) for count in range(len(names), 0, -1)]
    for count, room in [*columns, (1, 40), (1, 25), (1, 12)]:
        labels = [fill(name, room) for name in names]
        place: Any = f"outside {where} center"
        legend = figure.legend(handles, labels, loc=place, ncols=count)
        box = legend.get_window_extent()
        if room == 12 or box.width <= figure.bbox.width:
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + max(0, box.height / figure.dpi - LEGEND))


class Dots(NamedTuple):
    """One series of `dots`: a value per group, with where its whiskers end.

    Attributes:
        label: of the line that it stands on; several series may share one.
        color: of dots and whiskers.
        values, low, high: as many numbers as there are groups; NaN is left out.
        filled: whether its dots are.
    """

    label: str
    color: str
    values: ArrayLike
    low: ArrayLike
    high: ArrayLike
    filled: bool = True


@in_style
def dots(groups: Sequence[str], series: Sequence[Dots], xlabel: str) -> Figure:
    """A panel per group, a line per label: dots with whiskers, which need no axis from zero.

    Panels of a row share their axes, so that the eye may go from one to the next.
    """
    labels = list(dict.fromkeys(dot.label for dot in series))
    across = min(4, len(groups))
    line = 0.17 if len(labels) == len(series) else 0.26
    height = line * len(labels) + 1
    figure, axes = tiles(len(groups), across=across, height=height, sharex="row", sharey=True)
    for number, (group, (axis,)) in enumerate(zip(groups, axes, strict=True)):
        for dot in series:
            _draw_dots(axis, dot, number, labels, [s for s in series if s.label == dot.label])
        axis.set_title(heading(*group.split("\n"), across=across))
        axis.locator_params(axis="x", nbins=4 if across > 2 else 6)
        axis.set_xlabel(xlabel)
        axis.grid(visible=False, axis="y")
    axes[0][0].set_yticks(range(len(labels)), labels)
    axes[0][0].set_ylim(len(labels) - 0.4, -0.6)  # the first on top
    return figure


def _draw_dots(axis: Any, dot: Dots, group: int, labels: list[str], beside: list[Dots]) -> None:
    """The dot of one series in one group; those beside it share its line."""
    step = 0.3 if len(beside) > 1 else 0.0
    shift = step * (next(i for i, s in enumerate(beside) if s is dot) - (len(beside) - 1) / 2)
    value, low, high = (np.asarray(part, dtype=float)[group] for part in dot[2:5])
    axis.errorbar(
        [value], [labels.index(dot.label) + shift],
        xerr=np.abs([[value - low], [high - value]]), fmt="o", color=dot.color,
        mfc=dot.color if dot.filled else "white", capsize=0, linewidth=1, label=dot.label,
    )  # fmt: skip


def dot_legend(figure: Figure, full: str, hollow: str, *lines: tuple[str, str]) -> None:
    """Say below a figure of `dots` what its full and hollow ones are, and its dashed lines.

    Args:
        figure: it becomes higher by a line.
        full, hollow: their names.
        lines: (name, color) of each.
    """
    from matplotlib.lines import Line2D

    faces = (MUTED, "white")
    handles = [Line2D([], [], ls="", marker="o", color=MUTED, mfc=face) for face in faces]
    handles += [Line2D([], [], linestyle="--", color=color) for _, color in lines]
    figure.set_figheight(figure.get_figheight() + LEGEND)
    add_legend(figure, "lower", handles, [full, hollow, *(name for name, _ in lines)])


def whiskers(axis: Any, x: ArrayLike, y: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
    """Upright intervals on bars, or on what else has a colour of its own."""
    y, low, high = (np.asarray(part, dtype=float) for part in (y, low, high))
    around = np.abs([y - low, high - y])
    axis.errorbar(x, y, yerr=around, fmt="none", ecolor=INK, elinewidth=0.7, capsize=1.5)


def figure_bytes(figure: Figure, form: str) -> bytes:
    """The figure as "pdf", "png" or "svg"; nothing in it tells when, or by what, it was made."""
    buffer = io.BytesIO()
    metadata = {
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
    }[form]
    with _matplotlib().rc_context(SAVED):
        figure.savefig(buffer, format=form, dpi=220, metadata=metadata)
    return buffer.getvalue()


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

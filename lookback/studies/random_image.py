"""tab:appendix_random_image and tab:random_image: the same candidates scored with another image."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from lookback.scores.base import SCORERS, get_scorer
from lookback.studies.common.base import Result, Runs, study
from lookback.studies.common.controls import control_pairs, fewer_notes, replacement_row
from lookback.studies.common.plots import Dots, dot_legend, dots, in_style
from lookback.studies.common.selection import own_methods, titles
from lookback.studies.common.tables import Cell, Table

AGREEING = ("self_certainty", "visual_lookback", "mean_log_prob", "lookback")
"""Whose agreement is shown; users' own follow."""
CONTROLLED = ("self_certainty", "lookback", "mean_log_prob")
"""Whose outcomes are shown; users' own follow."""
NOTES = [
    "Agreement: the share of items of which scoring with the item's own image and with a random "
    "one pick the same of the N candidates; by chance 1/N (same_text: the same text).",
    "Random is the expectation over picks. Removed = (orig. - rand.) / (orig. - Random), the share "
    "of the gain over random selection that the wrong image takes away: not defined (-) without a "
    "gain, and in brackets, of little meaning, with one of less than a point. low and high are the "
    "95 % interval of the drop orig. - rand., from 2,000 bootstrap samples of items.",
    "Figure: full dots with the own image, hollow with a random one; dashed: random selection. "
    "Whiskers and the band: 95 %, from 2,000 bootstrap samples of items, each outcome by itself; "
    "the drop, on the same items, has the interval of low and high.",
]
SMALL = 1.0  # points: a gain of which a share means little


@study(
    "random-image",
    paper="tab:appendix_random_image, tab:random_image",
    title="Random image",
    needs_quality=True,
)
def random_image(runs: Runs) -> Result:
    """What is left of each scorer's picks and of its gain when it looks at a random image."""
    pairs = control_pairs(runs, "random")
    methods = [*AGREEING, *own_methods(run for pair in pairs for run in (pair.run, pair.control))]
    rows = [replacement_row(pair, m) for pair in pairs for m in methods if pair.has_scores(m)]
    tables = []
    for _, group in groupby(rows, key=lambda row: row["model"]):
        here = list(group)
        tables += [_agreement(here), _control(here)]
    return Result(rows, tables, _figure(rows), [*NOTES, *fewer_notes(pairs)])


def _and_own(methods: tuple[str, ...], rows: list[dict[str, Any]]) -> list[str]:
    """Some methods, and the users' own that have rows."""
    found = dict.fromkeys(row["method"] for row in rows)
    return [*methods, *(method for method in found if SCORERS.own(method))]


def _agreement(rows: list[dict[str, Any]]) -> Table:
    """Benchmarks by scorers, of one model; the lowest of each row is marked."""
    methods = _and_own(AGREEING, rows)
    values = {(row["benchmark"], row["method"]): row["agreement"] for row in rows}
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    for method in methods:
        each = [values.get((benchmark, method), np.nan) for benchmark in benchmarks]
        values["Avg.", method] = float(np.mean(each))
    lines: list[list[Cell | str]] = []
    for benchmark in (*benchmarks, "Avg.") if len(benchmarks) > 1 else benchmarks:
        numbers = [values.get((benchmark, method), np.nan) for method in methods]
        here = ["-" if np.isnan(number) else f"{number:.3f}" for number in numbers]
        lowest = min(text for text in here if text != "-")
        lines.append([benchmark, *(Cell(v, "best" if v == lowest else "") for v in here)])
    header = [("", "Benchmark"), *(("", name) for name in titles(methods))]
    caption = (
        "Top-1 agreement between original-image and random-image scoring: "
        f"{rows[0]['model']}, N={_sizes(rows)}."
    )
    return Table(header, lines, caption, "tab:appendix_random_image", [len(benchmarks)])


def _control(rows: list[dict[str, Any]]) -> Table:
    """Outcomes with the own and with a random image, of one model; the most removed is marked."""
    methods = _and_own(CONTROLLED, rows)
    lines: list[list[Cell | str]] = []
    for benchmark, group in groupby(rows, key=lambda row: row["benchmark"]):
        by_method = {row["method"]: row for row in group if row["method"] in methods}
        shown = by_method.values()
        clear = [row["removed"] for row in shown if row["original"] - row["random"] >= SMALL]
        most = max(clear, default=np.nan)
        line: list[Cell | str] = [benchmark, f"{by_method[CONTROLLED[0]]['random']:.2f}"]
        for method in methods:
            line += _outcomes(by_method[method], most) if method in by_method else ["-", "-"]
        lines.append(line)
    header = [("", "Benchmark"), ("", "Random")]
    header += [(name, part) for name in titles(methods) for part in ("Orig.→Rand.", "Removed")]
    caption = (
        "Candidates fixed, the image used for scoring replaced by a random one: "
        f"{rows[0]['model']}, N={_sizes(rows)}, per cent."
    )
    return Table(header, lines, caption, "tab:random_image")


def _outcomes(row: dict[str, Any], most: float) -> list[Cell | str]:
    """The cells of one method: its outcomes, and what is removed, marked if that is the most."""
    gone = "-" if np.isnan(row["removed"]) else f"{row['removed']:.1f}%"
    if row["original"] - row["random"] < SMALL and gone != "-":
        gone = f"({gone})"
    mark = "best" if row["removed"] == most else ""
    return [f"{row['original']:.2f} → {row['replaced']:.2f}", Cell(gone, mark)]


def _sizes(rows: list[dict[str, Any]]) -> str:
    return ", ".join(str(n) for n in dict.fromkeys(row["N"] for row in rows))


@in_style
def _figure(rows: list[dict[str, Any]]) -> Any:
    """Outcomes with the own image (full dots) and with a random one (hollow dots)."""
    cells = {(f"{row['benchmark']}\n{row['model']}", row["method"]): row for row in rows}
    groups = list(dict.fromkeys(group for group, _ in cells))
    series = []
    for method in _and_own(CONTROLLED, rows):
        scorer = get_scorer(method)
        here = [cells.get((group, method), {}) for group in groups]
        for key in ("original", "replaced"):
            value, low, high = (
                [row.get(f"{key}{end}", np.nan) for row in here] for end in ("", "_low", "_high")
            )
            full = key == "original"
            series.append(Dots(scorer.title, scorer.color, value, low, high, full))
    figure = dots(groups, series, "per cent")
    for group, axis in zip(groups, figure.axes, strict=False):
        floor, color = cells[group, CONTROLLED[0]], get_scorer("random").color
        axis.axvline(floor["random"], color=color, linestyle="--", zorder=1)
        axis.axvspan(floor["random_low"], floor["random_high"], color=color, alpha=0.15, lw=0)
    line = ("random selection", get_scorer("random").color)
    dot_legend(figure, "own image", "random image", line)
    return figure

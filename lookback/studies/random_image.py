"""tab:appendix_random_image and tab:random_image: the same candidates scored with another image."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from lookback.studies.base import Result, Runs, study
from lookback.studies.pairs import controlled
from lookback.studies.plots import COLORS, Dots, dots
from lookback.studies.replacement import replacement
from lookback.studies.selection import METHODS, OTHERS
from lookback.studies.tables import Cell, Table

NAMES = METHODS | OTHERS
AGREEING = ("self_certainty", "visual_lookback", "mean_log_prob", "lookback")
CONTROLLED = ("self_certainty", "lookback", "mean_log_prob")
NOTES = [
    "Agreement: the share of items of which scoring with the item's own image and with a random "
    "one pick the same of the N candidates; by chance 1/N (same_text: the same text).",
    "Random is the expectation over picks. Removed = (orig. - rand.) / (orig. - Random), the share "
    "of the gain over random selection that the wrong image takes away: not defined (-) without a "
    "gain, and in brackets, of little meaning, with one of less than a point. low and high are the "
    "95 % interval of the drop orig. - rand., from 2,000 bootstrap samples of items.",
]
SMALL = 1.0  # points: a gain of which a share means little


@study("random-image", paper="tab:appendix_random_image, tab:random_image")
def random_image(runs: Runs) -> Result:
    """What is left of each scorer's picks and of its gain when it looks at a random image."""
    rows = [replacement(pair, method) for pair in controlled(runs, "random") for method in AGREEING]
    tables = []
    for _, group in groupby(rows, key=lambda row: row["model"]):
        here = list(group)
        tables += [_agreement(here), _control(here)]
    return Result(rows, tables, _figure(rows), NOTES)


def _agreement(rows: list[dict[str, Any]]) -> Table:
    """Benchmarks by scorers, of one model; the lowest of each row is marked."""
    values = {(row["benchmark"], row["method"]): row["agreement"] for row in rows}
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    for method in AGREEING:
        values["Avg.", method] = float(np.mean([values[b, method] for b in benchmarks]))
    lines: list[list[Cell | str]] = []
    for benchmark in (*benchmarks, "Avg."):
        here = [f"{values[benchmark, method]:.3f}" for method in AGREEING]
        lowest = min(here)
        lines.append([benchmark, *(Cell(v, "best" if v == lowest else "") for v in here)])
    heads = [("", "Benchmark"), *(("", NAMES[method]) for method in AGREEING)]
    caption = (
        "Top-1 agreement between original-image and random-image scoring: "
        f"{rows[0]['model']}, N={_sizes(rows)}."
    )
    return Table(heads, lines, caption, "tab:appendix_random_image", [len(benchmarks)])


def _control(rows: list[dict[str, Any]]) -> Table:
    """Outcomes with the own and with a random image, of one model; the most removed is marked."""
    lines: list[list[Cell | str]] = []
    for benchmark, group in groupby(rows, key=lambda row: row["benchmark"]):
        by_method = {row["method"]: row for row in group}
        here = [by_method[method] for method in CONTROLLED]
        clear = [row["removed"] for row in here if row["original"] - row["random"] >= SMALL]
        most = max(clear, default=np.nan)
        line: list[Cell | str] = [benchmark, f"{here[0]['random']:.2f}"]
        for row in here:
            gone = "-" if np.isnan(row["removed"]) else f"{row['removed']:.1f}%"
            if row["original"] - row["random"] < SMALL and gone != "-":
                gone = f"({gone})"
            line += [f"{row['original']:.2f} → {row['replaced']:.2f}"]
            line += [Cell(gone, "best" if row["removed"] == most else "")]
        lines.append(line)
    heads = [("", "Benchmark"), ("", "Random")]
    heads += [(NAMES[m], name) for m in CONTROLLED for name in ("Orig.→Rand.", "Removed")]
    caption = (
        "Candidates fixed, the image used for scoring replaced by a random one: "
        f"{rows[0]['model']}, N={_sizes(rows)}, per cent."
    )
    return Table(heads, lines, caption, "tab:random_image")


def _sizes(rows: list[dict[str, Any]]) -> str:
    return ", ".join(str(n) for n in dict.fromkeys(row["N"] for row in rows))


def _figure(rows: list[dict[str, Any]]) -> Any:
    """Outcomes with the own image (full dots) and with a random one (hollow dots)."""
    shown = [row for row in rows if row["method"] in CONTROLLED]
    groups = list(dict.fromkeys(f"{row['benchmark']}\n{row['model']}" for row in shown))
    floor = [row["random"] for row in shown if row["method"] == CONTROLLED[0]]
    series = {"Random selection": Dots(COLORS["random"], floor, floor, floor)}
    for method in CONTROLLED:
        for key, image in (("original", "own"), ("replaced", "random")):
            values = [row[key] for row in shown if row["method"] == method]
            name = f"{NAMES[method]}, {image} image"
            series[name] = Dots(COLORS[method], values, values, values, key == "original")
    return dots(groups, series, "per cent")

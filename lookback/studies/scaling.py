"""fig:N_Scaling: what each method's picks are worth as the number of candidates grows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.studies.common import plots
from lookback.studies.common.base import Result, Runs, study, title
from lookback.studies.common.selection import (
    bootstrap_means,
    in_order,
    interval,
    outcomes,
    own_methods,
    paper_methods,
    titles,
)
from lookback.studies.common.tables import Table, mark_best, rows_of_columns

ADDED = ("mean_log_prob", "visual_lookback", "judge")
"""Shown beside the methods of the paper's main table."""
SHOWN = (1, 2, 5, 10, 15, 20, 25)
"""The N of the table; those asked for and the last one of the curves join them."""
Curves = list[tuple[Run, list[dict[str, Any]]]]
"""Of each run its rows: a point each."""


@study("scaling", paper="fig:N_Scaling", title="Scaling", needs_quality=True)
def scaling(runs: Runs) -> Result:
    """Best of N against N, a panel per run, with a 95 % band for LookBack."""
    methods = scaling_methods(runs)
    curves = [
        (run, [row for method in methods for row in _curve(run, method, _most(runs, run))])
        for run in in_order(runs.largest)
    ]
    notes = [
        "N candidates are the first N of the run. Random is the expectation over picks.",
        "USC and the judge look at all N at once: they have a point where they were recorded.",
        "Intervals: the middle 95 % of 2,000 bootstrap samples of items. Drawn are LookBack's (the "
        "band) and those of single points (whiskers); the CSV has all.",
    ]
    rows = [row for _, here in curves for row in here]
    tables = [_table(run, here, methods, runs.ns or ()) for run, here in curves]
    return Result(rows, tables, _figure(curves, methods), notes)


def scaling_methods(runs: Runs) -> list[str]:
    """All that may have a curve or points."""
    return [*paper_methods(), *ADDED, *own_methods(runs.largest)]


def _most(runs: Runs, run: Run) -> int:
    """Where the curves end: at the largest N asked for, by default at all that the run has."""
    return run.n if runs.ns is None else runs.budget(run)


def _curve(run: Run, method: str, most: int) -> list[dict[str, Any]]:
    by_n = outcomes(run, method, range(1, most + 1))
    if not by_n:
        return []
    values = 100 * np.stack(list(by_n.values()), axis=1)  # (items, N)
    labels = {"model": run.model, "benchmark": title(run), "method": method}
    rows = []
    for n, column, draws in zip(by_n, values.T, bootstrap_means(values).T, strict=True):
        low, high = interval(draws)
        numbers = {"value": float(column.mean()), "low": low, "high": high, "items": len(column)}
        rows.append(labels | {"N": n} | numbers)
    return rows


def _table(run: Run, rows: list[dict[str, Any]], methods: list[str], asked: Sequence[int]) -> Table:
    most = max(row["N"] for row in rows)
    budgets = sorted(({*SHOWN, *asked, most}) & {row["N"] for row in rows})
    cells = {(row["method"], row["N"]): row["value"] for row in rows}
    shown = [m for m in methods if any((m, n) in cells for n in budgets)]
    columns = [mark_best([cells.get((m, n), np.nan) for m in shown]) for n in budgets]
    lines = rows_of_columns(titles(shown), columns)
    header = [("", "Method"), *(("", f"N={n}") for n in budgets)]
    caption = f"Best of N on {title(run)} with {run.model}, per cent."
    rules = [sum(m in paper_methods() for m in shown)]
    return Table(header, lines, caption, "fig:N_Scaling", rules)


@plots.in_style
def _figure(curves: Curves, methods: list[str]) -> Any:
    """A panel per run; lines are named where they end, those that are points alone in a legend."""
    most = max(len({row["method"] for row in rows}) for _, rows in curves)
    height = max(2.1, 0.13 * most + 0.9)
    figure, axes = plots.tiles(len(curves), across=2, height=height, sharey="row")
    markers = dict(zip(filter(_scores_sets, methods), cycle(plots.MARKERS[1:]), strict=False))
    lines = ["lookback", *(method for method in methods if method != "lookback")]
    looks, points = plots.line_styles(lines), {}
    for number, ((run, rows), (axis,)) in enumerate(zip(curves, axes, strict=True)):
        last = max(row["N"] for row in rows)
        for method in dict.fromkeys(row["method"] for row in rows):
            here = [row for row in rows if row["method"] == method]
            if len(here) < last:
                points[method] = _draw_points(axis, here, markers.get(method, "o"))
            else:
                _draw_line(axis, here, looks[method])
        axis.set_title(plots.heading(title(run), run.model))
        axis.set(xlabel="N", xticks=ticks_of_n(last), ylabel="" if number % 2 else "per cent")
        axis.margins(x=0.02)
    if points:
        named = [method for method in methods if method in points]
        handles = [points[method] for method in named]
        plots.add_legend(figure, "lower", handles, titles(named))
    plots.settle_labels(figure)
    return figure


def _draw_line(axis: Any, rows: list[dict[str, Any]], look: dict[str, Any]) -> None:
    """One method's; LookBack's is heavier and has its band."""
    scorer = get_scorer(rows[0]["method"])
    n, values, low, high = ([row[key] for row in rows] for key in ("N", "value", "low", "high"))
    ours = scorer.name == "lookback"
    axis.plot(
        n, values, color=scorer.color, linewidth=2 if ours else 1.2, zorder=3 if ours else 2, **look
    )
    if ours:
        axis.fill_between(n, low, high, color=scorer.color, alpha=0.15, linewidth=0)
    plots.label_end(axis, n, values, scorer.title, scorer.color)


def _draw_points(axis: Any, rows: list[dict[str, Any]], marker: str) -> Any:
    """Those of a method that was asked about so many candidates at once, with whiskers."""
    n, values, low, high = ([row[key] for row in rows] for key in ("N", "value", "low", "high"))
    plots.whiskers(axis, n, values, low, high)
    color = get_scorer(rows[0]["method"]).color
    (drawn,) = axis.plot(n, values, linestyle="", marker=marker, color=color, zorder=4)
    return drawn


def ticks_of_n(most: int) -> list[int]:
    """Whole numbers from 1 to the most candidates, both among them; at most eight."""
    step = next(s * 10**p for p in range(9) for s in (1, 2, 5) if most <= 7 * s * 10**p)
    inner = range(step, most, step)
    return [1, *(n for n in inner if n > 1 and most - n > step / 2), *([most] if most > 1 else [])]


def _scores_sets(method: str) -> bool:
    """Whether a method was asked, when the run was made, about so many candidates at once."""
    scorer = get_scorer(method)
    return scorer.joint and not scorer.from_signals

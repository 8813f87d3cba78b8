"""fig:N_Scaling: what each method's picks are worth as the number of candidates grows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.studies.shared.base import Result, Runs, study, title
from lookback.studies.shared.methods import in_order, own_methods, paper_methods, titles
from lookback.studies.shared.plots import tiles
from lookback.studies.shared.selection import bootstrap_means, interval, outcomes
from lookback.studies.shared.tables import Table, mark_best, rows_of_columns

ADDED = ("mean_log_prob", "visual_lookback", "judge")
"""Shown beside the methods of the paper's main table."""
SHOWN = (1, 2, 5, 10, 15, 20, 25)
"""The N of the table; those asked for and the last one of the curves join them."""
MARKERS = "Ds^vPX"
"""Of methods that have points alone, since they look at all N at once."""
Curves = list[tuple[Run, list[dict[str, Any]]]]
"""Of each run its rows: a point each."""


@study("scaling", paper="fig:N_Scaling", title="Scaling", needs_quality=True)
def scaling(runs: Runs) -> Result:
    """Best of N against N, a panel per run, with a 95 % band for LookBack."""
    methods = scaling_methods(runs)
    found = [
        (run, [row for method in methods for row in _curve(run, method, _most(runs, run))])
        for run in in_order(runs.largest)
    ]
    notes = [
        "N candidates are the first N of the run. Random is the expectation over picks.",
        "USC and the judge look at all N at once: they have a point where they were recorded.",
        "Intervals: the middle 95 % of 2,000 bootstrap samples of items.",
    ]
    rows = [row for _, here in found for row in here]
    tables = [_table(run, here, methods, runs.ns or ()) for run, here in found]
    return Result(rows, tables, _figure(found, methods), notes)


def scaling_methods(runs: Runs) -> list[str]:
    """All that may have a curve or points."""
    return [*paper_methods(), *ADDED, *own_methods(runs.largest)]


def _most(runs: Runs, run: Run) -> int:
    """Where the curves end: at the largest N asked for, by default at all that the run has."""
    return run.n if runs.ns is None else runs.budget(run)


def _curve(run: Run, method: str, most: int) -> list[dict[str, Any]]:
    found = outcomes(run, method, range(1, most + 1))
    if not found:
        return []
    values = 100 * np.stack(list(found.values()), axis=1)  # (items, N)
    labels = {"model": run.model, "benchmark": title(run), "method": method}
    rows = []
    for n, column, draws in zip(found, values.T, bootstrap_means(values).T, strict=True):
        low, high = interval(draws)
        numbers = {"value": float(column.mean()), "low": low, "high": high, "items": len(column)}
        rows.append(labels | {"N": n} | numbers)
    return rows


def _table(run: Run, rows: list[dict[str, Any]], methods: list[str], asked: Sequence[int]) -> Table:
    most = max(row["N"] for row in rows)
    budgets = sorted({n for n in SHOWN if n <= most} | {*asked, most})
    cells = {(row["method"], row["N"]): row["value"] for row in rows}
    shown = [m for m in methods if any((m, n) in cells for n in budgets)]
    columns = [mark_best([cells.get((m, n), np.nan) for m in shown]) for n in budgets]
    lines = rows_of_columns(titles(shown), columns)
    header = [("", "Method"), *(("", f"N={n}") for n in budgets)]
    caption = f"Best of N on {title(run)} with {run.model}, per cent."
    rules = [sum(m in paper_methods() for m in shown)]
    return Table(header, lines, caption, "fig:N_Scaling", rules)


def _figure(found: Curves, methods: list[str]) -> Any:
    figure, axes = tiles(len(found), width=3.6 if len(found) > 1 else 5.2, height=3.0)
    markers = dict(zip(filter(_scores_sets, methods), cycle(MARKERS), strict=False))
    shown: dict[str, Any] = {}
    for (run, rows), (axis,) in zip(found, axes, strict=True):
        most = max(row["N"] for row in rows)
        for method in dict.fromkeys(row["method"] for row in rows):
            here = [row for row in rows if row["method"] == method]
            n, values = [r["N"] for r in here], [r["value"] for r in here]
            ours, points = method == "lookback", len(here) < most
            scorer = get_scorer(method)
            style = "--" if scorer.expected == "uniform" else "-"
            shown[method] = axis.plot(
                n,
                values,
                linestyle="" if points else style,
                marker=markers.get(method, "o") if points else "",
                color=scorer.color,
                linewidth=2 if ours else 1.2,
                zorder=3 if ours or points else 2,
            )[0]
            if ours:
                low, high = [r["low"] for r in here], [r["high"] for r in here]
                axis.fill_between(n, low, high, color=scorer.color, alpha=0.15, linewidth=0)
        axis.set_title(f"{title(run)}\n{run.model}")
        axis.set_xlabel("N")
        axis.set_ylabel("per cent")
    named = [method for method in methods if method in shown]
    figure.legend([shown[m] for m in named], titles(named), loc="outside right center")
    return figure


def _scores_sets(method: str) -> bool:
    """Whether a method was asked, when the run was made, about so many candidates at once."""
    scorer = get_scorer(method)
    return scorer.joint and not scorer.from_signals

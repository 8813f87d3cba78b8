"""fig:N_Scaling: what each method's picks are worth as the number of candidates grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.studies.base import Result, Runs, study
from lookback.studies.plots import COLORS, tiles
from lookback.studies.selection import (
    METHODS,
    OTHERS,
    has,
    in_order,
    interval,
    outcome,
    picked,
    resampled,
    title,
)
from lookback.studies.tables import Table, beside, ranked

NAMES = METHODS | {name: OTHERS[name] for name in ("mean_log_prob", "visual_lookback", "judge")}
SHOWN = (1, 2, 5, 10, 15, 20, 25)
"""The N of the table; a run's own number of candidates joins them."""


@study("scaling", paper="fig:N_Scaling")
def scaling(runs: Runs) -> Result:
    """Best of N against N, a panel a run, with a 95 % band for LookBack."""
    found = [
        (run, [row for method in NAMES for row in _curve(run, method)])
        for run in in_order(runs.largest)
    ]
    notes = [
        "N candidates are the first N of the run. Random is the expectation over picks.",
        "USC and the judge look at all N at once: they have a point where they were recorded.",
        "Intervals: the middle 95 % of 2,000 bootstrap samples of items.",
    ]
    rows = [row for _, here in found for row in here]
    return Result(rows, [_table(*one) for one in found], _figure(found), notes)


def outcomes(run: Run, method: str, budgets: Sequence[int], **params: Any) -> dict[int, Array]:
    """N -> (items,): `selection.outcome` for several N; those that the run has not are left out.

    Scores that do not depend on the other candidates are made or read once, for all N.
    """
    if get_scorer(method).joint or not has(run, method, run.n):
        return {n: outcome(run, method, n, **params) for n in budgets if has(run, method, n)}
    scores, quality = run.scores(method, **params), run.quality()
    return {n: picked(scores[:, :n], quality[:, :n]) for n in budgets if n <= run.n}


def _curve(run: Run, method: str) -> list[dict[str, Any]]:
    found = outcomes(run, method, range(1, run.n + 1))
    if not found:
        return []
    values = 100 * np.stack(list(found.values()), axis=1)  # (items, N)
    head = {"model": run.model, "benchmark": title(run), "method": method}
    rows = []
    for n, column, draws in zip(found, values.T, resampled(values).T, strict=True):
        low, high = interval(draws)
        numbers = {"value": float(column.mean()), "low": low, "high": high, "items": len(column)}
        rows.append(head | {"N": n} | numbers)
    return rows


def _table(run: Run, rows: list[dict[str, Any]]) -> Table:
    budgets = sorted({n for n in SHOWN if n <= run.n} | {run.n})
    cells = {(row["method"], row["N"]): row["value"] for row in rows}
    methods = [m for m in NAMES if any((m, n) in cells for n in budgets)]
    columns = [ranked([cells.get((m, n), np.nan) for m in methods]) for n in budgets]
    lines = beside([NAMES[m] for m in methods], columns)
    heads = [("", "Method"), *(("", f"N={n}") for n in budgets)]
    caption = f"Best of N on {title(run)} with {run.model}, per cent."
    rules = [sum(m in METHODS for m in methods)]
    return Table(heads, lines, caption, "fig:N_Scaling", rules)


def _figure(found: list[tuple[Run, list[dict[str, Any]]]]) -> Any:
    figure, axes = tiles(len(found), width=3.6 if len(found) > 1 else 5.2, height=3.0)
    shown: dict[str, Any] = {}
    for (run, rows), (axis,) in zip(found, axes, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            here = [row for row in rows if row["method"] == method]
            n, values = [r["N"] for r in here], [r["value"] for r in here]
            ours, points = method == "lookback", len(here) < run.n
            style = "--" if method == "random" else "-"
            shown[NAMES[method]] = axis.plot(
                n,
                values,
                linestyle="" if points else style,
                marker={"usc": "D", "judge": "s"}.get(method, "o") if points else "",
                color=COLORS[method],
                linewidth=2 if ours else 1.2,
                zorder=3 if ours or points else 2,
            )[0]
            if ours:
                low, high = [r["low"] for r in here], [r["high"] for r in here]
                axis.fill_between(n, low, high, color=COLORS[method], alpha=0.15, linewidth=0)
        axis.set_title(f"{title(run)}\n{run.model}")
        axis.set_xlabel("N")
        axis.set_ylabel("per cent")
    names = [name for name in NAMES.values() if name in shown]
    figure.legend([shown[name] for name in names], names, loc="outside right center")
    return figure

"""tab:main_results: what each method's picks are worth, with 95 % bootstrap intervals."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from lookback.studies.averages import method_names, rows_of
from lookback.studies.base import Result, Runs, study
from lookback.studies.plots import COLORS, panels
from lookback.studies.selection import METHODS, in_order, title
from lookback.studies.tables import Table, ranked


@study("main", paper="tab:main_results")
def main(runs: Runs) -> Result:
    """Methods by benchmarks and N, with their average; best bold, second underlined.

    The average is over all benchmark-N combinations of a model; its interval resamples the items
    of each benchmark. The oracle takes no part in the ranking.
    """
    rows: list[dict[str, Any]] = []
    tables = []
    by_model = groupby(in_order(runs.largest), key=lambda run: run.model)
    for model, group in by_model:
        found = rows_of(model, list(group))
        rows += found
        tables += [_table(model, found), _leads(model, found)]
    notes = [
        "Random is the expectation over picks, USC the mean over its runs. Intervals: 2,000 "
        "bootstrap samples of items.",
        *(
            f"{title(run)}: {name} failed for {run.unscored(name)} items; there it keeps the first"
            for run in runs.largest
            for name in run.recorded
            if run.unscored(name)
        ),
    ]
    return Result(rows, tables, _figure(rows), notes)


def _table(model: str, rows: list[dict[str, Any]]) -> Table:
    setups = list(
        dict.fromkeys((r["benchmark"], r["N"]) for r in rows if r["benchmark"] != "Average")
    )
    setups.append(("Average", 0))
    cells = {(r["method"], r["benchmark"], r["N"]): r for r in rows if np.isfinite(r["value"])}
    names = method_names()
    methods = [m for m in names if any(key[0] == m for key in cells)]
    columns = []
    for benchmark, n in setups:
        here = [cells.get((m, benchmark, n)) for m in methods if m != "oracle"]
        marked = ranked(
            [r["value"] if r else np.nan for r in here],
            notes=[f" [{r['low']:.1f}, {r['high']:.1f}]" if r else "" for r in here],
        )
        top = cells.get(("oracle", benchmark, n))
        columns.append([*marked, *(ranked([top["value"]]) if top else ["-"])])
    lines = [[names[m], *(c[i] for c in columns)] for i, m in enumerate(methods)]
    for line in lines[-1:]:  # the ceiling is no rival
        line[1:] = [cell if isinstance(cell, str) else cell.text for cell in line[1:]]
    heads = [("", "Method"), *((b, f"N={n}" if n else "") for b, n in setups)]
    caption = f"Best-of-N selection with {model}: per cent [95 % interval]."
    rules = [len([m for m in methods if m in METHODS]), len(methods) - 1]
    return Table(heads, lines, caption, "tab:main_results", rules)


def _leads(model: str, rows: list[dict[str, Any]]) -> Table:
    """How far LookBack is ahead, averaged over benchmarks; samples are the same for both."""
    cells = {(r["method"], r["N"]): r for r in rows if r["benchmark"] == "Average"}
    budget = [*sorted({n for _, n in cells} - {0}), 0]
    lines = []
    for method, name in method_names().items():
        if method == "lookback" or not any(key[0] == method for key in cells):
            continue
        line = [f"over {name}"]
        for n in budget:
            r = cells.get((method, n))
            text = f"{r['lead']:+.2f} [{r['lead_low']:+.1f}, {r['lead_high']:+.1f}]" if r else "-"
            line.append(text)
        lines.append(line)
    heads = [("", "LookBack's lead"), *(("", f"N={n}" if n else "Average") for n in budget)]
    caption = f"LookBack's lead with {model}, mean over benchmarks: points [95 % interval]."
    return Table(heads, lines, caption)


def _figure(rows: list[dict[str, Any]]) -> Any:
    """The averages with their intervals, a panel a model."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = panels(1, len(models), width=4.6, height=3.2)
    for axis, model in zip(axes[0], models, strict=True):
        here = [
            r
            for r in rows
            if (r["model"], r["benchmark"], r["N"]) == (model, "Average", 0)
            and r["method"] != "oracle"
        ]
        here.sort(key=lambda r: r["value"])
        names = [method_names()[r["method"]] for r in here]
        values = np.array([r["value"] for r in here])
        colors = [COLORS.get(r["method"], "#94a3b8") for r in here]
        ends = [[r[end] for r in here] for end in ("low", "high")]
        axis.hlines(names, *ends, color=colors, linewidth=1.5)
        axis.scatter(values, names, color=colors, zorder=3)
        axis.grid(axis="x", color="#e5e7eb", linewidth=0.6)
        axis.set_xlabel("average over benchmarks and N, per cent")
        axis.set_title(model)
    return figure

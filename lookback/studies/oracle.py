"""tab:oracle_by_benchmark: the best that any selection could do, and what there is to gain."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.studies.common.base import Result, Runs, study, title
from lookback.studies.common.plots import INK, PALE, TWO_COLUMNS, add_legend, in_style, panels
from lookback.studies.common.selection import bootstrap_means, in_order, interval, outcome
from lookback.studies.common.tables import Table


@study("oracle", paper="tab:oracle_by_benchmark", title="Oracle", needs_quality=True)
def oracle(runs: Runs) -> Result:
    """The best candidate, the average one, and the gap between them, for each N."""
    rows = []
    for run in in_order(runs.largest):
        for n in runs.budgets(run):
            best, any_ = (100 * outcome(run, method, n) for method in ("oracle", "random"))
            row = _row(run.model, title(run), n, float(best.mean()), float(any_.mean()), len(best))
            rows.append(row | _ends(best, any_))
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    several = len(benchmarks) > 1
    for model, n in _setups(rows):
        here = [r for r in rows if (r["model"], r["N"]) == (model, n)]
        if several and len(here) == len(benchmarks):
            top, mean = (float(np.mean([r[key] for r in here])) for key in ("oracle", "mean"))
            rows.append(_row(model, "Average", n, top, mean, 0) | _ends())
    tables = [
        _table(rows, ("oracle",), "Oracle best of N, per cent."),
        _table(
            rows,
            ("mean", "gap"),
            "The mean over the N candidates, and the gap from there to the oracle, in points.",
        ),
    ]
    notes = [
        "The oracle takes the candidate of the highest quality; the mean is what a random pick is "
        "expected to give. The gap is what a selection can gain.",
        "Whiskers: 95 %, from 2,000 bootstrap samples of items.",
    ]
    if several:
        notes.append(
            "An average is over all benchmarks of the table; a model that lacks one has none."
        )
    return Result(rows, tables, _figure(rows), notes)


def _row(model: str, benchmark: str, n: int, top: float, mean: float, items: int) -> dict[str, Any]:
    numbers = {"oracle": top, "mean": mean, "gap": top - mean, "items": items}
    return {"model": model, "benchmark": benchmark, "N": n} | numbers


def _ends(*outcomes: Array) -> dict[str, float]:
    """The intervals of the oracle, the mean and the gap; NaN without the outcomes of both."""
    names = [f"{name}_{end}" for name in ("oracle", "mean", "gap") for end in ("low", "high")]
    if not outcomes:
        return dict.fromkeys(names, np.nan)
    top, mean = outcomes
    ends = [end for values in (top, mean, top - mean) for end in interval(bootstrap_means(values))]
    return dict(zip(names, ends, strict=True))


def _setups(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Models in their order, each with its N from small to large."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    found = {(row["model"], row["N"]) for row in rows}
    return sorted(found, key=lambda setup: (models.index(setup[0]), setup[1]))


def _table(rows: list[dict[str, Any]], keys: tuple[str, ...], caption: str) -> Table:
    """Benchmarks by models and N; the average is the last line."""
    setups = _setups(rows)
    cells = {(r["benchmark"], r["model"], r["N"]): r for r in rows}
    names = [name for name in dict.fromkeys(r["benchmark"] for r in rows) if name != "Average"]
    lines = []
    for name in (*names, "Average") if len(names) > 1 else names:
        found = [cells.get((name, *setup)) for setup in setups]
        lines.append([name, *(f"{r[key]:.2f}" if r else "-" for r in found for key in keys)])
    header = [
        (model, f"N={n}" if len(keys) == 1 else f"N={n} {key}")
        for model, n in setups
        for key in keys
    ]
    return Table(
        [("", "Benchmark"), *header], lines, caption, "tab:oracle_by_benchmark", [len(names)]
    )


@in_style
def _figure(rows: list[dict[str, Any]]) -> Any:
    """What there is to gain: from the mean to the oracle, a line per benchmark and N."""
    shown = [row for row in rows if row["benchmark"] != "Average"][::-1]
    names = [f"{r['benchmark']}, {r['model']}, N={r['N']}" for r in shown]
    figure, axes = panels(1, 1, TWO_COLUMNS, height=0.22 * len(names) + 0.8)
    mean, top = ([row[key] for row in shown] for key in ("mean", "oracle"))
    axis = axes[0, 0]
    axis.hlines(names, mean, top, color=PALE, linewidth=3)
    axis.scatter(mean, names, s=22, color=get_scorer("random").color, zorder=3, label="mean")
    axis.scatter(top, names, s=22, color=get_scorer("oracle").color, zorder=3, label="oracle")
    for key, values in (("mean", mean), ("oracle", top)):
        ends = np.array([[row[f"{key}_{end}"] for row in shown] for end in ("low", "high")])
        around = np.abs(ends - values)
        axis.errorbar(values, names, xerr=around, fmt="none", ecolor=INK, elinewidth=0.7, capsize=2)
    axis.margins(y=0.5 / len(names))
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("per cent")
    add_legend(figure, "upper", *axis.get_legend_handles_labels())
    return figure

"""fig:ablation: LookBack with more or less of alpha, and of lambda."""

from __future__ import annotations

from typing import Any

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import ALPHAS, LAMBDAS
from lookback.studies.common import plots
from lookback.studies.common.base import Result, Runs, one_budget, study, title
from lookback.studies.common.budgets import join_budgets
from lookback.studies.common.selection import estimate, in_order, sweep_items
from lookback.studies.common.tables import Table, mark_best, rows_of_columns

SYMBOLS = {"alpha": "α", "lam": "λ"}


@study("ablation", paper="fig:ablation", title="Ablation", needs_quality=True)
def ablation(runs: Runs, n: int | None = None) -> Result:
    """LookBack against alpha and against lambda, each with the other one off and as reported.

    Args:
        runs: the reported setting is each run's own.
        n: the first n candidates, or all of a smaller run; by default the N of all studies.
    """
    curves = [(run, _curves(run, one_budget(runs, run, n))) for run in in_order(runs.largest)]
    rows = [row for _, here in curves for row in here]
    notes = [
        "Dashed: the other setting is 0. Dotted: the reported value of the one that varies.",
        "With both at 0 the score is mean log p.",
        "Bands: 95 %, from 2,000 bootstrap samples of items, each curve by itself. All curves have "
        "the same items, so that a difference can be surer than bands that overlap suggest.",
    ]
    return Result(rows, [_table(curves)], _figure(curves), notes)


def _curves(run: Run, n: int) -> list[dict[str, Any]]:
    """The four curves; a row per point."""
    reported = run.defaults
    alphas = sorted({0.0, *ALPHAS, reported["alpha"]})
    lams = sorted({0.0, *LAMBDAS, reported["lam"]})
    (values,) = sweep_items(run, alphas, lams, [n])
    points = [("alpha", a, lam) for lam in (0.0, reported["lam"]) for a in alphas]
    points += [("lam", a, lam) for a in (0.0, reported["alpha"]) for lam in lams]
    labels = {"model": run.model, "benchmark": title(run), "N": n}
    rows = []
    for varied, a, lam in points:
        numbers = estimate(100 * values[:, alphas.index(a), lams.index(lam)])
        row = labels | {"varied": varied, "alpha": a, "lam": lam}
        rows.append(row | numbers | {"items": len(run.ids)})
    return rows


def _table(curves: list[tuple[Run, list[dict[str, Any]]]]) -> Table:
    """With and without each part, a column per run."""
    columns = []
    for run, rows in curves:
        values = {(r["alpha"], r["lam"]): r["value"] for r in rows}
        alpha, lam = run.defaults["alpha"], run.defaults["lam"]
        columns.append(mark_best([values[p] for p in ((0, 0), (alpha, 0), (0, lam), (alpha, lam))]))
    names = ("neither (mean log p)", "α alone", "λ alone", "both, as reported")
    header = [("", "Part"), *((run.model, title(run)) for run, _ in curves)]
    budgets = join_budgets(rows[0]["N"] for _, rows in curves)
    caption = f"What α and λ add, each at its reported value; per cent at N = {budgets}."
    return Table(header, rows_of_columns(names, columns), caption, "fig:ablation")


@plots.in_style
def _figure(curves: list[tuple[Run, list[dict[str, Any]]]]) -> Any:
    """A row per run: against alpha, and against lambda, on one scale."""
    figure, axes = plots.panels(len(curves), 2, plots.TWO_COLUMNS, height=1.6, sharey="row")
    for (run, rows), pair in zip(curves, axes, strict=True):
        pair[0].set_title(plots.heading(f"{title(run)}, {run.model}"), loc="left")
        pair[0].set_ylabel("per cent")
        for axis, varied, fixed in zip(pair, ("alpha", "lam"), ("lam", "alpha"), strict=True):
            for value, style in ((0, "--"), (run.defaults[fixed], "-")):
                curve = [r for r in rows if r["varied"] == varied and r[fixed] == value]
                _draw_curve(axis, curve, varied, style, f"{SYMBOLS[fixed]} = {value:g}")
            axis.axvline(run.defaults[varied], color=plots.MUTED, linestyle=":", linewidth=1)
            axis.set_xlabel(SYMBOLS[varied])
            axis.margins(x=0.02)
    plots.settle_labels(figure)
    return figure


def _draw_curve(axis: Any, curve: list[dict[str, Any]], varied: str, style: str, name: str) -> None:
    """A line with its band, named where it ends."""
    color = get_scorer("lookback" if style == "-" else "random").color
    x, y, low, high = ([row[key] for row in curve] for key in (varied, "value", "low", "high"))
    axis.plot(x, y, style, marker=".", color=color)
    axis.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    plots.label_end(axis, x, y, name, color)

"""fig:ablation: LookBack with more or less of alpha, and of lambda."""

from __future__ import annotations

from typing import Any

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import ALPHAS, LAMBDAS
from lookback.studies.shared.base import Result, Runs, one_budget, study, title
from lookback.studies.shared.budgets import join_budgets
from lookback.studies.shared.methods import in_order
from lookback.studies.shared.plots import tiles
from lookback.studies.shared.selection import sweep
from lookback.studies.shared.tables import Table, mark_best, rows_of_columns

SYMBOLS = {"alpha": "α", "lam": "λ"}


@study("ablation", paper="fig:ablation", title="Ablation", needs_quality=True)
def ablation(runs: Runs, n: int | None = None) -> Result:
    """LookBack against alpha and against lambda, each with the other one off and as reported.

    Args:
        runs: the reported setting is each run's own.
        n: the first n candidates, or all of a smaller run; by default the N of all studies.
    """
    found = [(run, _curves(run, one_budget(runs, run, n))) for run in in_order(runs.largest)]
    rows = [row for _, here in found for row in here]
    notes = [
        "Dashed: the other setting is 0. Dotted: the reported value of the one that varies.",
        "With both at 0 the score is mean log p.",
    ]
    return Result(rows, [_table(found)], _figure(found), notes)


def _curves(run: Run, n: int) -> list[dict[str, Any]]:
    """The four curves; a row per point."""
    reported = run.defaults
    alphas = sorted({0.0, *ALPHAS, reported["alpha"]})
    lams = sorted({0.0, *LAMBDAS, reported["lam"]})
    values = sweep(run, alphas, lams, [n])[0]
    points = [("alpha", a, lam) for lam in (0.0, reported["lam"]) for a in alphas]
    points += [("lam", a, lam) for a in (0.0, reported["alpha"]) for lam in lams]
    labels = {"model": run.model, "benchmark": title(run), "N": n}
    return [
        labels
        | {"varied": varied, "alpha": a, "lam": lam}
        | {"value": float(values[alphas.index(a), lams.index(lam)]), "items": len(run.ids)}
        for varied, a, lam in points
    ]


def _table(found: list[tuple[Run, list[dict[str, Any]]]]) -> Table:
    """With and without each part, a column per run."""
    columns = []
    for run, rows in found:
        values = {(r["alpha"], r["lam"]): r["value"] for r in rows}
        alpha, lam = run.defaults["alpha"], run.defaults["lam"]
        columns.append(mark_best([values[p] for p in ((0, 0), (alpha, 0), (0, lam), (alpha, lam))]))
    names = ("neither (mean log p)", "α alone", "λ alone", "both, as reported")
    header = [("", "Part"), *((run.model, title(run)) for run, _ in found)]
    budgets = join_budgets(rows[0]["N"] for _, rows in found)
    caption = f"What α and λ add, each at its reported value; per cent at N = {budgets}."
    return Table(header, rows_of_columns(names, columns), caption, "fig:ablation")


def _figure(found: list[tuple[Run, list[dict[str, Any]]]]) -> Any:
    ours, other = get_scorer("lookback").color, get_scorer("random").color
    figure, axes = tiles(len(found), high=2, width=3.4, height=2.5)
    for (run, rows), pair in zip(found, axes, strict=True):
        pair[0].set_title(f"{title(run)}\n{run.model}")
        for axis, varied, fixed in zip(pair, ("alpha", "lam"), ("lam", "alpha"), strict=True):
            for value, style in ((0, "--"), (run.defaults[fixed], "-")):
                curve = [r for r in rows if r["varied"] == varied and r[fixed] == value]
                axis.plot(
                    [r[varied] for r in curve],
                    [r["value"] for r in curve],
                    style,
                    marker=".",
                    color=ours if style == "-" else other,
                    label=f"{SYMBOLS[fixed]} = {value:g}",
                )
            axis.axvline(run.defaults[varied], color="#475569", linestyle=":", linewidth=1)
            axis.set_xlabel(SYMBOLS[varied])
            axis.set_ylabel("per cent")
            axis.legend()
    return figure

"""tab:appendix_hp_range and tab:appendix_global_hp: how much depends on alpha and lambda."""

from __future__ import annotations

from itertools import chain, product
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.formula import ALPHAS, LAMBDAS, Array
from lookback.studies.ablation import sweep
from lookback.studies.base import Result, Runs, study
from lookback.studies.plots import tiles
from lookback.studies.scaling import outcomes
from lookback.studies.selection import METHODS, budgets, in_order, percent, title
from lookback.studies.tables import Cell, Table, beside, ranked

BASELINES = [method for method in METHODS if method != "lookback"]
LINES = METHODS | {"lookback": "LookBack (global)", "reported": "LookBack (reported)"}


@study("sensitivity", paper="tab:appendix_hp_range, tab:appendix_global_hp")
def sensitivity(runs: Runs, alpha: float = 0.25, lam: float = 1.25) -> Result:
    """LookBack over the paper's whole grid of alpha and lambda, and with one setting for all.

    Args:
        runs: the reported setting is each run's own.
        alpha, lam: the setting for all models and benchmarks.
    """
    found = in_order(runs.largest)
    setups = [setup for run in found for setup in _setups(run, alpha, lam)]
    rows = [
        {"model": s["run"].model, "benchmark": title(s["run"]), "N": s["N"]}
        | {"alpha": a, "lam": b, "value": value, "items": len(s["run"].ids)}
        for s in setups
        for (a, b), value in zip(product(ALPHAS, LAMBDAS), s["grid"].ravel().tolist(), strict=True)
    ]
    inside = sum(s["grid"].min() <= s["reported"] <= s["grid"].max() for s in setups)
    near = sum(abs(s["reported"] - s["grid"].mean()) <= 2 * s["grid"].std() for s in setups)
    notes = [
        f"The grid has {len(ALPHAS)} x {len(LAMBDAS)} settings; Std is the population's, over it.",
        f"The reported value lies in the grid's range in {inside} of {len(setups)} settings, and "
        f"within two Std of its mean in {near}.",
        "A baseline that a run has no scores of takes no part.",
    ]
    tables = [_range(found, setups), _global(setups, alpha, lam)]
    return Result(rows, tables, _figure({s["run"]: s["grid"] for s in setups}), notes)


def _setups(run: Run, alpha: float, lam: float) -> list[dict[str, Any]]:
    """For each N the grid, and what each method gives; NaN where the run has no scores of it."""
    sizes = budgets(run)
    found = {m: outcomes(run, m, sizes) for m in BASELINES}
    found["lookback"] = outcomes(run, "lookback", sizes, alpha=alpha, lam=lam)
    found["reported"] = outcomes(run, "lookback", sizes)
    grids = sweep(run, ALPHAS, LAMBDAS, sizes).round(9)  # equal picks, equal numbers
    return [
        {"run": run, "N": n, "grid": grid}
        | {m: round(percent(v[n]), 9) if n in v else np.nan for m, v in found.items()}
        for n, grid in zip(sizes, grids, strict=True)
    ]


def _range(runs: list[Run], setups: list[dict[str, Any]]) -> Table:
    sizes = sorted({s["N"] for s in setups})
    cells = {(s["run"], s["N"]): _summary(s) for s in setups}
    lines = []
    for run in runs:
        parts = [cells.get((run, n), ["-"] * 5) for n in sizes]
        lines.append([run.model, title(run), *chain.from_iterable(parts)])
    names = ("Min", "Max", "Mean", "Std", "Reported")
    heads = [("", "Model"), ("", "Benchmark"), *((f"N={n}", name) for n in sizes for name in names)]
    caption = (
        f"LookBack over α from {ALPHAS[0]} to {ALPHAS[-1]:g} and λ from {LAMBDAS[0]} to "
        f"{LAMBDAS[-1]:g}, per cent. Means above all baselines are underlined, those above the "
        "reported value bold (where both hold, bold)."
    )
    rules = [i for i, run in enumerate(runs) if i and run.model != runs[i - 1].model]
    return Table(heads, lines, caption, "tab:appendix_hp_range", rules)


def _summary(setup: dict[str, Any]) -> list[Cell | str]:
    grid, rivals = setup["grid"], [setup[m] for m in BASELINES if np.isfinite(setup[m])]
    numbers = (grid.min(), grid.max(), grid.mean(), grid.std(), setup["reported"], max(rivals))
    low, high, mean, std, reported, rival = (f"{number:.2f}" for number in numbers)
    above = float(mean) > float(rival)  # as printed
    mark = "best" if float(mean) > float(reported) else "second" if above else ""
    return [low, high, Cell(mean, mark), std, reported]


def _global(setups: list[dict[str, Any]], alpha: float, lam: float) -> Table:
    """Averages over the benchmarks and N of each model, and over models; - where one lacks."""
    models = list(dict.fromkeys(s["run"].model for s in setups))
    of = [[s for s in setups if s["run"].model == model] for model in models]
    columns = [[np.mean([s[m] for s in here]) for m in LINES] for here in of]
    if len(models) > 1:
        columns.append(np.mean(columns, axis=0).tolist())
    # The reported setting stands below and takes no part in the ranking.
    cells: list[list[Cell | str]] = [[*ranked(c[:-1]), f"{c[-1]:.2f}"] for c in columns]
    heads = [("", name) for name in ("Method", *models, "Avg.")[: len(columns) + 1]]
    caption = f"One setting for all, α = {alpha:g} and λ = {lam:g}: averages over benchmarks and N."
    lines = beside(list(LINES.values()), cells)
    return Table(heads, lines, caption, "tab:appendix_global_hp", [len(LINES) - 1])


def _figure(grids: dict[Run, Array]) -> Any:
    """The grid at each run's largest N; a star at the reported setting."""
    figure, axes = tiles(len(grids), width=3.8, height=3.4)
    for (run, grid), (axis,) in zip(grids.items(), axes, strict=True):
        image = axis.imshow(grid, origin="lower", aspect="auto", cmap="viridis")
        x = np.interp(run.defaults["lam"], LAMBDAS, range(len(LAMBDAS)))
        y = np.interp(run.defaults["alpha"], ALPHAS, range(len(ALPHAS)))
        axis.plot(x, y, "*", color="white", markeredgecolor="black", markersize=12)
        axis.set_xticks(range(1, len(LAMBDAS), 2), [f"{v:g}" for v in LAMBDAS[1::2]])
        axis.set_yticks(range(len(ALPHAS)), [f"{v:g}" for v in ALPHAS])
        axis.set(xlabel="λ", ylabel="α", title=f"{title(run)}, N = {budgets(run)[-1]}\n{run.model}")
        axis.spines[:].set_visible(False)
        figure.colorbar(image, ax=axis, label="per cent")
    return figure

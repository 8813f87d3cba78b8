"""tab:appendix_hp_range and tab:appendix_global_hp: how much depends on alpha and lambda."""

from __future__ import annotations

from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import ALPHAS, LAMBDAS, Array
from lookback.studies.common.base import Result, Runs, study, title
from lookback.studies.common.plots import add_legend, heading, in_style, tiles
from lookback.studies.common.selection import (
    in_order,
    outcomes,
    own_methods,
    paper_methods,
    percent,
    sweep,
    titles,
)
from lookback.studies.common.tables import Cell, Table, mark_best, rows_of_columns

OCTAVES = [alpha for alpha in ALPHAS if np.log2(alpha).is_integer()]
"""What the figure writes at its axis."""


class Setup(NamedTuple):
    """One run and N, all numbers in per cent.

    Attributes:
        run, n: which.
        grid: (alphas, lams), LookBack with every setting.
        everywhere: LookBack with the setting for all.
        reported: LookBack with the run's own setting.
        baselines: the other methods by name; NaN where the run has no scores of one.
    """

    run: Run
    n: int
    grid: Array
    everywhere: float
    reported: float
    baselines: dict[str, float]


@study(
    "sensitivity",
    paper="tab:appendix_hp_range, tab:appendix_global_hp",
    title="Sensitivity",
    needs_quality=True,
)
def sensitivity(runs: Runs, alpha: float = 0.25, lam: float = 1.25) -> Result:
    """LookBack over the paper's whole grid of alpha and lambda, and with one setting for all.

    Args:
        runs: the reported setting is each run's own.
        alpha, lam: the setting for all models and benchmarks.
    """
    ordered = in_order(runs.largest)
    baselines = [m for m in (*paper_methods(), *own_methods(ordered)) if m != "lookback"]
    setups = [
        setup for run in ordered for setup in _setups(run, runs.budgets(run), baselines, alpha, lam)
    ]
    rows = [
        {"model": s.run.model, "benchmark": title(s.run), "N": s.n}
        | {"alpha": a, "lam": b, "value": value, "items": len(s.run.ids)}
        for s in setups
        for (a, b), value in zip(product(ALPHAS, LAMBDAS), s.grid.ravel().tolist(), strict=True)
    ]
    inside = sum(s.grid.min() <= s.reported <= s.grid.max() for s in setups)
    near = sum(abs(s.reported - s.grid.mean()) <= 2 * s.grid.std() for s in setups)
    notes = [
        f"The grid has {len(ALPHAS)} x {len(LAMBDAS)} settings; Std is the population's, over it.",
        f"The reported value lies in the grid's range in {inside} of {len(setups)} settings, and "
        f"within two Std of its mean in {near}.",
        "A baseline that a run has no scores of takes no part.",
        "Figure: a cell reaches half way to the next setting, on a log scale of α, whose steps are "
        "uneven. The star is the reported setting.",
    ]
    tables = [_range(ordered, setups), _global(setups, alpha, lam)]
    return Result(rows, tables, _figure({s.run: s for s in setups}), notes)


def _setups(
    run: Run, sizes: list[int], baselines: list[str], alpha: float, lam: float
) -> list[Setup]:
    """For each N the grid, and what each method gives."""

    def values(method: str, **params: float) -> list[float]:
        found = outcomes(run, method, sizes, **params)
        return [round(percent(found[n]), 9) if n in found else np.nan for n in sizes]

    rivals = {method: values(method) for method in baselines}
    grids = sweep(run, ALPHAS, LAMBDAS, sizes).round(9)  # equal picks, equal numbers
    ours = zip(values("lookback", alpha=alpha, lam=lam), values("lookback"), strict=True)
    return [
        Setup(run, n, grid, *both, {m: found[i] for m, found in rivals.items()})
        for i, (n, grid, both) in enumerate(zip(sizes, grids, ours, strict=True))
    ]


def _range(runs: list[Run], setups: list[Setup]) -> Table:
    sizes = sorted({s.n for s in setups})
    cells = {(s.run, s.n): _summary(s) for s in setups}
    lines = []
    for run in runs:
        parts = [cells.get((run, n), ["-"] * 5) for n in sizes]
        lines.append([run.model, title(run), *chain.from_iterable(parts)])
    names = ("Min", "Max", "Mean", "Std", "Reported")
    header = [("", "Model"), ("", "Benchmark")]
    header += [(f"N={n}", name) for n in sizes for name in names]
    caption = (
        f"LookBack over α from {ALPHAS[0]} to {ALPHAS[-1]:g} and λ from {LAMBDAS[0]} to "
        f"{LAMBDAS[-1]:g}, per cent. Means above all baselines are underlined, those above the "
        "reported value bold (where both hold, bold)."
    )
    rules = [i for i, run in enumerate(runs) if i and run.model != runs[i - 1].model]
    return Table(header, lines, caption, "tab:appendix_hp_range", rules)


def _summary(setup: Setup) -> list[Cell | str]:
    grid, rivals = setup.grid, [v for v in setup.baselines.values() if np.isfinite(v)]
    numbers = (grid.min(), grid.max(), grid.mean(), grid.std(), setup.reported, max(rivals))
    low, high, mean, std, reported, rival = (f"{number:.2f}" for number in numbers)
    above = float(mean) > float(rival)  # as printed
    mark = "best" if float(mean) > float(reported) else "second" if above else ""
    return [low, high, Cell(mean, mark), std, reported]


def _global(setups: list[Setup], alpha: float, lam: float) -> Table:
    """Averages over the benchmarks and N of each model, and over models; - where one lacks."""
    models = list(dict.fromkeys(s.run.model for s in setups))
    of = [[s for s in setups if s.run.model == model] for model in models]
    columns = [
        np.mean([[*s.baselines.values(), s.everywhere, s.reported] for s in here], axis=0).tolist()
        for here in of
    ]
    if len(models) > 1:
        columns.append(np.mean(columns, axis=0).tolist())
    # The reported setting stands below and takes no part in the ranking.
    cells: list[list[Cell | str]] = [[*mark_best(c[:-1]), f"{c[-1]:.2f}"] for c in columns]
    header = [("", name) for name in ("Method", *models, "Avg.")[: len(columns) + 1]]
    caption = f"One setting for all, α = {alpha:g} and λ = {lam:g}, per cent"
    caption += ": averages over benchmarks and N." if any(len(here) > 1 for here in of) else "."
    ours = get_scorer("lookback").title
    names = [*titles(list(setups[0].baselines)), f"{ours} (global)", f"{ours} (reported)"]
    lines = rows_of_columns(names, cells)
    return Table(header, lines, caption, "tab:appendix_global_hp", [len(names) - 1])


@in_style
def _figure(largest: dict[Run, Setup]) -> Any:
    """The grid at each run's largest N, drawn to scale; a star at the reported setting."""
    across = min(2, len(largest))
    figure, axes = tiles(len(largest), across=2, height=2.5)
    edges = _edges(LAMBDAS), 2 ** _edges(np.log2(ALPHAS))
    for (run, setup), (axis,) in zip(largest.items(), axes, strict=True):
        mesh = axis.pcolormesh(*edges, setup.grid, cmap="viridis", edgecolors="face", linewidth=0.2)
        star = _draw_setting(axis, run, *edges)
        axis.set_yscale("log", base=2)
        axis.set_yticks(OCTAVES, [f"{alpha:g}" for alpha in OCTAVES])
        axis.minorticks_off()
        name = heading(f"{title(run)}, N = {setup.n}", run.model, across=across)
        axis.set(xlabel="λ", ylabel="α (log scale)", title=name)
        axis.spines[:].set_visible(False)
        axis.grid(visible=False)
        figure.colorbar(mesh, ax=axis, label="per cent").outline.set_visible(False)
    add_legend(figure, "lower", [star], ["reported setting"])
    return figure


def _draw_setting(axis: Any, run: Run, lams: Array, alphas: Array) -> Any:
    """The run's own; on the border where the grid ends before it."""
    x = np.clip(run.defaults["lam"], lams[0], lams[-1])
    y = np.clip(run.defaults["alpha"], alphas[0], alphas[-1])
    look = {"color": "white", "mec": "black", "mew": 0.7, "markersize": 10, "clip_on": False}
    return axis.plot(x, y, "*", **look)[0]


def _edges(values: ArrayLike) -> Array:
    """Where the cells of a grid's values end: half way to the next, as far beyond the last."""
    centers = np.asarray(values, dtype=float)
    inner = (centers[1:] + centers[:-1]) / 2
    return np.array([2 * centers[0] - inner[0], *inner, 2 * centers[-1] - inner[-1]])

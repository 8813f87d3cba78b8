"""tab:appendix_seed: the same model and benchmark with other random seeds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.signals import BY_LAYER
from lookback.studies.common.base import Result, Runs, StudyError, study, title
from lookback.studies.common.budgets import join_budgets
from lookback.studies.common.plots import Dots, dots
from lookback.studies.common.selection import (
    has_scores,
    in_order,
    outcome,
    own_methods,
    paper_methods,
    percent,
    titles,
)
from lookback.studies.common.tables import Table, mark_best, rows_of_columns


@study("seeds", paper="tab:appendix_seed", title="Seeds", needs_quality=True)
def seeds(runs: Runs, n: int | None = None) -> Result:
    """The mean and the standard deviation of each method over seeds.

    Args:
        runs: those that differ in nothing but the seed and the number of candidates count as one
            group; of several groups of a model and benchmark the one with most seeds is taken.
        n: the first n candidates; by default the N of all studies that most seeds have, of
            several the largest.

    Raises:
        StudyError: no model and benchmark has two seeds.
    """
    if n is not None and n < 1:
        raise StudyError(f"n = {n}: must be at least 1")
    groups_by_n = _groups(runs, n)
    groups = [group for _, group in groups_by_n]
    methods = [*paper_methods(), *own_methods(run for group in groups for run in group)]
    rows = [row for count, group in groups_by_n for m in methods for row in _rows(group, m, count)]
    notes = ["Std, and the whiskers: the sample's (divided by the number of seeds - 1)."]
    for group in groups:
        named = ", ".join(str(run.seed) for run in group)
        notes.append(f"{title(group[0])}, {group[0].model}: seeds {named}.")
    return Result(rows, [_table(rows)], _figure(rows), notes)


def _groups(runs: Runs, n: int | None) -> list[tuple[int, list[Run]]]:
    """Of each model and benchmark an N and the runs of several seeds that have it, by seed."""
    alike: dict[str, list[Run]] = {}
    for run in runs.own:
        if run.seed is not None and run.n:
            alike.setdefault(_settings(run), []).append(run)
    best: dict[tuple[str, str], tuple[int, list[Run]]] = {}
    for same in alike.values():
        count, group = _most_seeds(same, _asked(runs, same, n))
        key = (same[0].model, same[0].benchmark)
        if len(group) > max(1, len(best[key][1]) if key in best else 0):
            best[key] = count, group
    if not best:
        least = min((c for same in alike.values() for c in _asked(runs, same, n)), default=n)
        raise StudyError(
            "no model and benchmark here has runs with two seeds"
            + ("" if least is None else f" and at least {least} candidates")
            + " that are otherwise the same: make another with `lookback run --seed 123 ...` and "
            "the settings of the one that is there, and give both"
        )
    ordered = in_order([group[0] for _, group in best.values()])
    return [best[run.model, run.benchmark] for run in ordered]


def _asked(runs: Runs, same: list[Run], n: int | None) -> list[int]:
    """The N that may be shown, from large to small."""
    if n is not None:
        return [n]
    return sorted(runs.ns or {count for run in same for count in runs.budgets(run)}, reverse=True)


def _most_seeds(same: list[Run], counts: list[int]) -> tuple[int, list[Run]]:
    """The N that most seeds have, of several the largest; and the first run of each seed, by it."""
    groups: list[tuple[int, list[Run]]] = []
    for count in counts:
        by_seed = {run.seed: run for run in reversed(same) if run.has_draw(count)}
        groups.append((count, [by_seed[seed] for seed in sorted(by_seed, key=lambda s: s or 0)]))
    return max(groups, key=lambda group: len(group[1]))  # the first of them


def _settings(run: Run) -> str:
    """All that decides a run's results, but the seed, and how much of them is kept."""
    sampling = {k: v for k, v in run.settings["sampling"].items() if k not in ("n", "seed")}
    settings = run.settings | {"sampling": sampling, BY_LAYER: None}
    return json.dumps(settings, sort_keys=True)


def _rows(group: list[Run], method: str, n: int) -> list[dict[str, Any]]:
    """A row per seed, with mean and standard deviation over all; NaN if one has no scores."""
    values = [
        percent(outcome(run, method, n)) if has_scores(run, method, n) else np.nan for run in group
    ]
    over = {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1))}
    labels = {"model": group[0].model, "benchmark": title(group[0]), "method": method, "N": n}
    return [
        labels | {"seed": run.seed, "value": value} | over | {"items": len(run.ids)}
        for run, value in zip(group, values, strict=True)
    ]


def _methods(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _table(rows: list[dict[str, Any]]) -> Table:
    cells = {(r["model"], r["benchmark"], r["method"]): r for r in rows}
    setups = list(dict.fromkeys((r["model"], r["benchmark"]) for r in rows))
    known = {key for key, row in cells.items() if np.isfinite(row["mean"])}
    methods = [m for m in _methods(rows) if any(key[2] == m for key in known)]
    columns = []
    for model, benchmark in setups:
        here = [cells[model, benchmark, m] for m in methods]
        tails = [f" ± {r['std']:.2f}" if np.isfinite(r["mean"]) else "" for r in here]
        columns.append(mark_best([r["mean"] for r in here], notes=tails))
    lines = rows_of_columns(titles(methods), columns)
    budgets = join_budgets(row["N"] for row in rows)
    caption = f"Best of {budgets} over random seeds: mean ± standard deviation, per cent."
    return Table([("", "Method"), *setups], lines, caption, "tab:appendix_seed")


def _figure(rows: list[dict[str, Any]]) -> Any:
    """Means with the standard deviation to either side."""
    groups = list(dict.fromkeys(f"{row['benchmark']}\n{row['model']}" for row in rows))
    series = []
    for method in _methods(rows):
        here = {(r["model"], r["benchmark"]): r for r in rows if r["method"] == method}.values()
        mean, std = (np.array([row[key] for row in here]) for key in ("mean", "std"))
        if np.isfinite(mean).any():
            scorer = get_scorer(method)
            series.append(Dots(scorer.title, scorer.color, mean, mean - std, mean + std))
    return dots(groups, series, "per cent")

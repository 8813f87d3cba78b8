"""tab:main_results: what each method's picks are worth, with 95 % bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.base import SCORERS
from lookback.scores.formula import Array
from lookback.studies.common.base import Result, Runs, study, title
from lookback.studies.common.budgets import AVERAGE
from lookback.studies.common.plots import heading, in_style, tiles
from lookback.studies.common.selection import (
    ENDS,
    GREEDY,
    all_methods,
    bootstrap_means,
    ceilings,
    color_of,
    greedy_outcome,
    greedy_run,
    has_scores,
    in_order,
    interval,
    outcome,
    paper_methods,
    percent,
    title_of,
    titles,
)
from lookback.studies.common.tables import Cell, Table, mark_best

NO_LEAD = {f"{name}{end}": np.nan for name in ("lead", "behind") for end in ENDS} | {"leader": ""}
"""What the CSV has for single benchmarks: its leads are those of averages."""


@study("main", paper="tab:main_results", title="Main", needs_quality=True)
def main(runs: Runs) -> Result:
    """Methods by benchmarks and N, with their average; best bold, second underlined.

    The average is over all benchmark-N combinations of a model; its interval resamples the items
    of each benchmark. Of one combination there is none. The oracle takes no part in the ranking.
    Greedy decoding has a row if there is a run at temperature 0 of the same model and items.
    """
    rows: list[dict[str, Any]] = []
    tables = []
    drawn = in_order(runs.largest)
    greedy = {run: other for run in drawn if (other := greedy_run(run, runs.own)) is not None}
    for model, found in outcome_rows(runs).items():
        rows += [row if row["benchmark"] == AVERAGE else row | NO_LEAD for row in found]
        tables += [_table(model, found), _leads(model, found)]
    notes = [
        "Random is the expectation over picks, USC the mean over its runs. Intervals: 95 %, "
        "from 2,000 bootstrap samples of items.",
        *(
            f"{title_of(GREEDY)} of {run.path.name}: {_source(greedy_outcome(run, other), other)}."
            for run, other in greedy.items()
        ),
        *(
            f"{title_of(GREEDY)} of {run.path.name}: no row, as no run here has it; repeat the "
            "run's command with -n 1 --temperature 0 and another --out."
            for run in drawn
            if run not in greedy and _is_sampled(run)
        ),
        *(
            f"{title(run)}: {name} failed for {run.unscored(name)} items; there it keeps the first"
            for run in runs.largest
            for name in run.recorded
            if run.unscored(name)
        ),
        *(
            f"{title(run)}: {name} was recorded with {key} = {value!r}, which is not its default."
            for run in runs.largest
            for name in run.recorded
            if name.partition("@")[0] in SCORERS.names()
            for key, value in run.changed_settings(name).items()
        ),
    ]
    return Result(rows, tables, _figure(rows), notes)


def outcome_rows(runs: Runs) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each model; `runs` are as `Study.prepare` returns them."""
    drawn = in_order(runs.largest)
    pairs = [(run, greedy_run(run, runs.own)) for run in drawn]
    greedy = {run.id: greedy_outcome(run, other) for run, other in pairs if other is not None}
    return {
        model: _method_rows(model, list(group), runs.budgets, greedy)
        for model, group in groupby(drawn, key=lambda run: run.model)
    }


def _method_rows(
    model: str,
    runs: list[Run],
    budgets: Callable[[Run], list[int]],
    greedy: Mapping[str, Array],
) -> list[dict[str, Any]]:
    """Return the rows of one model: a method, benchmark and N each, then each method's averages.

    Greedy decoding, where a run's id has outcomes of it, is a method whose outcome is the same at
    every N. An average is over the benchmarks, of one N or (N = 0) of all.

    `lead` is LookBack's outcome minus the row's, `behind` that of the `leader`: the highest there,
    but for scorers that know the truth. Their intervals are paired.
    """
    methods = all_methods(runs)
    if any(run.id in greedy for run in runs):
        methods.insert(len(methods) - len(ceilings()), GREEDY)
    # A seed per run: its methods and N see the same samples, other benchmarks samples of their own.
    setups = [(seed, run, n) for seed, run in enumerate(runs) for n in budgets(run)]
    outcomes: dict[tuple[str, str, int], tuple[float, Array]] = {}
    averages: dict[tuple[str, str, int], tuple[float, Array]] = {}
    for method in methods:
        for seed, run, n in setups:
            values = np.full(1, np.nan)
            if method == GREEDY:
                values = greedy.get(run.id, values)
            elif has_scores(run, method, n):
                values = outcome(run, method, n)
            draws = bootstrap_means(100 * values, seed)
            outcomes[method, title(run), n] = percent(values), draws
        for count in (*sorted({n for *_, n in setups}), 0):
            here = [outcomes[method, title(run), n] for _, run, n in setups if count in (0, n)]
            value = float(np.mean([one[0] for one in here]))
            if np.isfinite(value):
                averages[method, AVERAGE, count] = value, np.mean([one[1] for one in here], axis=0)
    outcomes |= averages
    items = {title(run): len(run.ids) for run in runs} | {AVERAGE: 0}
    rows = []
    for (method, benchmark, n), (value, draws) in outcomes.items():
        beside = {m: found for (m, *setup), found in outcomes.items() if setup == [benchmark, n]}
        leader = _leader({m: found[0] for m, found in beside.items()})
        row = {"model": model, "benchmark": benchmark, "method": method, "N": n}
        row |= _numbers(value, draws) | {"items": items[benchmark]}
        for name, (ours, our_draws) in (("lead", beside["lookback"]), ("behind", beside[leader])):
            row |= _numbers(ours - value, our_draws - draws, name, f"{name}_low", f"{name}_high")
        rows.append(row | {"leader": leader})
    return rows


def _leader(values: dict[str, float]) -> str:
    """Return the first of the highest, but for scorers that know the truth."""
    rivals = [m for m, value in values.items() if m not in ceilings() and np.isfinite(value)]
    return max(rivals, key=lambda method: values[method])


def _numbers(value: float, draws: Array, *names: str) -> dict[str, float]:
    return dict(zip(names or ("value", "low", "high"), (value, *interval(draws)), strict=True))


def _is_sampled(run: Run) -> bool:
    """Whether its answers were drawn at a temperature: neither given nor greedy themselves."""
    return bool((run.settings.get("sampling") or {}).get("temperature"))


def _source(greedy: Array, run: Run) -> str:
    missing = int(np.isnan(greedy).sum())
    if missing:
        return f"no row, as {run.path.name} lacks {missing} of its {len(greedy)} items"
    return f"from {run.path.name}, one answer per item"


def _table(model: str, rows: list[dict[str, Any]]) -> Table:
    """Methods by benchmarks and N; those that know the truth stand below, unmarked."""
    setups = list(
        dict.fromkeys((r["benchmark"], r["N"]) for r in rows if r["benchmark"] != AVERAGE)
    )
    if len(setups) > 1:  # of one it would say the same again
        setups.append((AVERAGE, 0))
    cells = {(r["method"], r["benchmark"], r["N"]): r for r in rows if np.isfinite(r["value"])}
    methods = list(dict.fromkeys(r["method"] for r in rows if np.isfinite(r["value"])))
    rivals = [m for m in methods if m not in ceilings()]
    columns: list[list[Cell | str]] = []
    for setup in setups:
        here = [cells.get((m, *setup)) for m in methods]
        marked = mark_best(
            [r["value"] if r else np.nan for r in here[: len(rivals)]],
            notes=[f" [{r['low']:.1f}, {r['high']:.1f}]" if r else "" for r in here[: len(rivals)]],
        )
        tops = [f"{r['value']:.2f}" if r else "-" for r in here[len(rivals) :]]
        columns.append([*marked, *tops])
    lines = [[title_of(m), *(c[i] for c in columns)] for i, m in enumerate(methods)]
    header = [("", "Method"), *((b, f"N={n}" if n else "") for b, n in setups)]
    caption = f"Best-of-N selection with {model}: per cent [95 % interval]."
    rules = [len([m for m in methods if m in paper_methods()]), len(rivals)]
    return Table(header, lines, caption, "tab:main_results", rules)


def _leads(model: str, rows: list[dict[str, Any]]) -> Table:
    """How far LookBack is ahead, averaged over benchmarks; samples are the same for both."""
    cells = {(r["method"], r["N"]): r for r in rows if r["benchmark"] == AVERAGE}
    budgets = sorted({n for _, n in cells} - {0})
    budgets += [0] if len(budgets) > 1 else []  # of one N the average is the same again
    lines = []
    for method in dict.fromkeys(r["method"] for r in rows):
        if method == "lookback" or not any(key[0] == method for key in cells):
            continue
        line = [f"over {title_of(method)}"]
        for n in budgets:
            r = cells.get((method, n))
            text = f"{r['lead']:+.2f} [{r['lead_low']:+.1f}, {r['lead_high']:+.1f}]" if r else "-"
            line.append(text)
        lines.append(line)
    ours = title_of("lookback")
    header = [("", f"{ours}'s lead"), *(("", f"N={n}" if n else AVERAGE) for n in budgets)]
    benchmarks = list(dict.fromkeys(r["benchmark"] for r in rows if r["benchmark"] != AVERAGE))
    where = f" on {benchmarks[0]}" if len(benchmarks) == 1 else ", mean over benchmarks"
    caption = f"{ours}'s lead with {model}{where}: points [95 % interval]."
    return Table(header, lines, caption)


@in_style
def _figure(rows: list[dict[str, Any]]) -> Any:
    """The averages with their intervals, a panel per model."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    count = len({r["method"] for r in rows if np.isfinite(r["value"])} - set(ceilings()))
    figure, axes = tiles(len(models), across=2, height=0.17 * count + 0.8, sharex="row")
    for (axis,), model in zip(axes, models, strict=True):
        here = [
            r
            for r in rows
            if (r["model"], r["benchmark"], r["N"]) == (model, AVERAGE, 0)
            and r["method"] not in ceilings()
        ]
        here.sort(key=lambda r: r["value"])
        methods = [r["method"] for r in here]
        names, colors = titles(methods), [color_of(m) for m in methods]
        values = np.array([r["value"] for r in here])
        ends = [[r[end] for r in here] for end in ("low", "high")]
        axis.hlines(names, *ends, color=colors, linewidth=1.5)
        axis.scatter(values, names, s=22, color=colors, zorder=3)
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("average over benchmarks and N, per cent")
        axis.set_title(heading(model))
    return figure

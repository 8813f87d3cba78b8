"""fig:computation: what scoring costs after generation, in milliseconds per response."""

from __future__ import annotations

from dataclasses import replace
from timeit import repeat
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.base import GREY, SCORERS, get_scorer
from lookback.signals import PRUNED, Candidates
from lookback.studies.common.base import Result, Runs, StudyError, study, title
from lookback.studies.common.plots import INK, PALE, SMALL, heading, in_style, tiles
from lookback.studies.common.selection import in_order, other_methods, own_methods, paper_methods
from lookback.studies.common.tables import Table

ROUNDS = 3


@study("overhead", paper="fig:computation", title="Overhead")
def overhead(runs: Runs, items: int = 50) -> Result:
    """Milliseconds per response of each scorer, and how many times LookBack's that is.

    Args:
        runs: those that looked again have their times recorded.
        items: on how many items, at most, those that are arithmetic are timed now.
    """
    if items < 1:
        raise StudyError(f"items = {items}: must be at least 1")
    timed = [(run, _rows(run, items, runs.budget(run))) for run in in_order(runs.largest)]
    rows = [row for _, here in timed for row in here]
    notes = [
        "Times of scorers that look again were recorded by the run: they are of its machine and "
        "threads. Those of the others are of this machine, now: one item at a time, the best of "
        f"{ROUNDS} rounds.",
        "Generation is not counted; recording signals is a part of it. Error bars and Std: the "
        "population's, over items.",
        "The paper's times are of other machines, and those of LLaVA-1.5 of another one than those "
        "of the other models: compare scorers within a run.",
    ]
    for run, _ in timed:
        timings = run.read_timings()
        if run.recorded and timings.unrecorded:
            notes.append(
                f"{title(run)}, {run.model}: {timings.unrecorded} of {timings.of} files of "
                "recorded times have no checksum: the run was begun by an older version."
            )
    return Result(rows, [_table(*pair) for pair in timed], _figure(timed), notes)


def _rows(run: Run, items: int, n: int) -> list[dict[str, Any]]:
    """A row per scorer, from the cheapest; "name@N" where the other candidates matter."""
    times = {name: ("measured now", values) for name, values in _measured(run, items, n).items()}
    times |= {name: ("recorded", values) for name, values in _recorded(run).items()}
    base = float(np.mean(times["lookback"][1]))
    rows = []
    for name, (source, values) in times.items():
        ms, std = float(np.mean(values)), float(np.std(values))
        of = n if source == "measured now" else int(name.partition("@")[2] or run.n)
        labels = {"model": run.model, "benchmark": title(run), "scorer": name, "source": source}
        rows.append(
            labels | {"N": of, "ms": ms, "std": std, "ratio": ms / base, "items": len(values)}
        )
    return sorted(rows, key=lambda row: row["ms"])


def _recorded(run: Run) -> dict[str, list[float]]:
    """Of each recorded scorer the milliseconds per response, an item each."""
    times: dict[str, list[float]] = {name: [] for name in run.recorded}
    for row in run.timings():
        if row["stage"] in times and row["responses"]:
            times[row["stage"]].append(row["ms"] / row["responses"])
    return {name: values for name, values in times.items() if values}


def _measured(run: Run, items: int, n: int) -> dict[str, list[float]]:
    """The same, now, of each scorer that is arithmetic on signals."""
    some = [_complete(run.candidates(row)[:n]) for row in range(min(items, len(run.places)))]
    names = measured_methods(run)
    for name in names:
        some[0].scores(name)  # the first call loads and warms what the others need not
    # All scorers on an item, then the next: what else the machine does hits them alike.
    times = [{name: _best(candidates, name) for name in names} for candidates in some]
    return {name: [timing[name] for timing in times] for name in names}


def _complete(candidates: Candidates) -> Candidates:
    return replace(candidates, items=tuple(c for c in candidates if c.finish != PRUNED))


def measured_methods(run: Run) -> list[str]:
    """Those that are arithmetic on signals; not random selection, which needs no scores."""
    scorers = map(get_scorer, (*paper_methods(), *other_methods(), *own_methods([run])))
    return [s.name for s in scorers if s.from_signals and s.expected != "uniform"]


def _best(candidates: Candidates, name: str) -> float:
    took = repeat(lambda: candidates.scores(name), number=1, repeat=ROUNDS)
    return 1000 * min(took) / len(candidates)


def _look(name: str) -> tuple[str, str]:
    """The label and the colour of a scorer; of one that is recorded, but not known here, its name.

    Args:
        name: as `Run.recorded` has it.
    """
    base, _, count = name.partition("@")
    scorer = get_scorer(base) if base in SCORERS.names() else None
    label = (scorer.title if scorer else base) + (f" (N={count})" if count else "")
    # Bars of scorers that name no colour are pale: the grey of dots is too heavy for them.
    return label, PALE if scorer is None or scorer.color == GREY else scorer.color


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _table(run: Run, rows: list[dict[str, Any]]) -> Table:
    header = [("", name) for name in ("Scorer", "ms per response", "Std", "x LookBack", "Timed")]
    lines = [
        [_look(r["scorer"])[0], *(_number(r[k]) for k in ("ms", "std", "ratio")), r["source"]]
        for r in rows
    ]
    budget = next(row["N"] for row in rows if row["scorer"] == "lookback")
    caption = f"Scoring after generation on {title(run)} with {run.model}, N = {budget}."
    return Table(header, lines, caption, "fig:computation")


@in_style
def _figure(timed: list[tuple[Run, list[dict[str, Any]]]]) -> Any:
    most = max(len(rows) for _, rows in timed)
    figure, axes = tiles(len(timed), across=2, height=0.16 * most + 1, sharex="row")
    every = [row["ms"] for _, rows in timed for row in rows]
    log = max(every) > 100 * min(every)  # one scale for all panels
    for (run, rows), (axis,) in zip(timed, axes, strict=True):
        ms, std = np.array([[r["ms"], r["std"]] for r in rows]).T
        low = np.minimum(std, 0.9 * ms)  # a log axis has no zero
        names, colors = zip(*(_look(r["scorer"]) for r in rows), strict=True)
        look = {"elinewidth": 0.7, "capsize": 1.5}
        axis.barh(names, ms, xerr=[low, std], color=colors, ecolor=INK, error_kw=look)
        for y, value in enumerate(ms):
            words = f" {_number(value)}"
            axis.annotate(words, (value + std[y], y), va="center", fontsize=SMALL)
        if log:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter("{x:g}")
            axis.minorticks_off()
        axis.margins(x=0.2)
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("ms per response" + (" (log scale)" if log else ""))
        axis.set_title(heading(title(run), run.model, across=2))
    return figure

"""fig:computation: what scoring costs after generation, in milliseconds a response."""

from __future__ import annotations

from timeit import repeat
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.signals import Candidates
from lookback.studies.base import Result, Runs, StudyError, study
from lookback.studies.plots import COLORS, tiles
from lookback.studies.selection import METHODS, OTHERS, in_order, title
from lookback.studies.tables import Table

NAMES = METHODS | OTHERS
ROUNDS = 3


@study("overhead", paper="fig:computation")
def overhead(runs: Runs, items: int = 50) -> Result:
    """Milliseconds a response of each scorer, and how many times LookBack's that is.

    Args:
        runs: those that looked again have their times recorded.
        items: on how many items, at most, those that are arithmetic are timed now.
    """
    if items < 1:
        raise StudyError(f"items = {items}: must be at least 1")
    found = [(run, _rows(run, items)) for run in in_order(runs.largest)]
    rows = [row for _, here in found for row in here]
    notes = [
        "Times of scorers that look again were recorded by the run: they are of its machine and "
        "threads. Those of the others are of this machine, now: one item at a time, the best of "
        f"{ROUNDS} rounds.",
        "Generation is not counted; recording signals is a part of it. Error bars and Std: the "
        "population's, over items.",
        "The paper's times are of other machines, and those of LLaVA-1.5 of another one than those "
        "of the other models: compare scorers within a run.",
    ]
    return Result(rows, [_table(*one) for one in found], _figure(found), notes)


def _rows(run: Run, items: int) -> list[dict[str, Any]]:
    """A row a scorer, from the cheapest; where the other candidates matter, its name is name@N."""
    times = {name: ("measured now", values) for name, values in _measured(run, items).items()}
    times |= {name: ("recorded", values) for name, values in _recorded(run).items()}
    base = float(np.mean(times["lookback"][1]))
    rows = []
    for name, (source, values) in times.items():
        ms, std = float(np.mean(values)), float(np.std(values))
        head = {"model": run.model, "benchmark": title(run), "scorer": name, "source": source}
        rows.append(head | {"ms": ms, "std": std, "ratio": ms / base, "items": len(values)})
    return sorted(rows, key=lambda row: row["ms"])


def _recorded(run: Run) -> dict[str, list[float]]:
    """Of each recorded scorer the milliseconds a response, an item each."""
    found: dict[str, list[float]] = {name: [] for name in run.recorded}
    for row in run.timings():
        if row["stage"] in found and row["responses"]:
            found[row["stage"]].append(row["ms"] / row["responses"])
    return {name: values for name, values in found.items() if values}


def _measured(run: Run, items: int) -> dict[str, list[float]]:
    """The same, now, of each scorer that is arithmetic on signals."""
    some = [run.candidates(row) for row in range(min(items, len(run.places)))]
    names = [m for m in NAMES if m != "random" and get_scorer(m).from_signals]
    for name in names:
        some[0].scores(name)  # the first call loads and warms what the others need not
    # All scorers on an item, then the next: what else the machine does hits them alike.
    times = [{name: _best(candidates, name) for name in names} for candidates in some]
    return {name: [one[name] for one in times] for name in names}


def _best(candidates: Candidates, name: str) -> float:
    took = repeat(lambda: candidates.scores(name), number=1, repeat=ROUNDS)
    return 1000 * min(took) / len(candidates)


def _label(name: str) -> str:
    base, _, count = name.partition("@")
    return NAMES.get(base, base) + (f" (N={count})" if count else "")


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _table(run: Run, rows: list[dict[str, Any]]) -> Table:
    heads = [("", name) for name in ("Scorer", "ms a response", "Std", "x LookBack", "Timed")]
    lines = [
        [_label(r["scorer"]), *(_number(r[k]) for k in ("ms", "std", "ratio")), r["source"]]
        for r in rows
    ]
    caption = f"Scoring after generation on {title(run)} with {run.model}."
    return Table(heads, lines, caption, "fig:computation")


def _figure(found: list[tuple[Run, list[dict[str, Any]]]]) -> Any:
    figure, axes = tiles(len(found), across=3, width=4.6, height=3.4)
    for (run, rows), (axis,) in zip(found, axes, strict=True):
        ms, std = np.array([[r["ms"], r["std"]] for r in rows]).T
        colors = [COLORS.get(r["scorer"].partition("@")[0], "#cbd5e1") for r in rows]
        low = np.minimum(std, 0.9 * ms)  # a log axis has no zero
        names = [_label(r["scorer"]) for r in rows]
        axis.barh(names, ms, xerr=[low, std], color=colors, ecolor="#475569", capsize=2)
        for y, value in enumerate(ms):
            axis.annotate(f" {_number(value)}", (value + std[y], y), va="center", fontsize=8)
        log = ms.max() > 100 * ms.min()
        if log:
            axis.set_xscale("log")
        axis.margins(x=0.15)
        axis.set_xlabel("milliseconds a response" + (" (log scale)" if log else ""))
        axis.set_title(f"{title(run)}\n{run.model}")
    return figure

"""tab:appendix_judge: the model as a judge of its own responses, pair by pair, beside USC."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.asking import judge_choice, usc_choice
from lookback.studies.base import Result, Runs, StudyError, study
from lookback.studies.plots import COLORS, Dots, dots
from lookback.studies.selection import (
    METHODS,
    OTHERS,
    has,
    in_order,
    interval,
    outcome,
    percent,
    resampled,
    title,
)
from lookback.studies.tables import Table, beside, ranked

NAMES = {m: (METHODS | OTHERS)[m] for m in ("random", "usc", "judge", "lookback")}
ASKED = ("usc", "judge")


@study("judge", paper="tab:appendix_judge")
def judge(runs: Runs, n: int = 5) -> Result:
    """Random, USC, the pairwise judge and LookBack; and how many replies could not be read.

    Args:
        runs: of each model and benchmark the first that has the judge's scores.
        n: the first n candidates.

    Raises:
        StudyError: no run has the judge's scores for n candidates.
    """
    judged: dict[tuple[str, str], Run] = {}
    for run in runs.own:
        if has(run, "judge", n):
            judged.setdefault((run.model, run.benchmark), run)
    if not judged:
        raise StudyError(
            f"no run here has recorded judge@{n}: run its command again with --scorers judge@{n} "
            f"(and --scorers usc@{n} for the comparison)"
        )
    rows: list[dict[str, Any]] = []
    tables = []
    for model, group in groupby(in_order(list(judged.values())), key=lambda run: run.model):
        here = [_row(run, method, n) for run in group for method in NAMES]
        rows += here
        caption = f"Best of {n} with {model} as its own judge, per cent."
        tables.append(_table(here, "value", tuple(NAMES), caption))
        caption = f"Replies of {model} that could not be read, per cent."
        tables.append(_table(here, "unread", ASKED, caption))
    notes = [
        "Where a reply of USC cannot be read the first candidate gets the vote; where one of the "
        "judge cannot, the winner so far stays.",
        "Random is the expectation over picks. Intervals: 2,000 bootstrap samples of items.",
    ]
    return Result(rows, tables, _figure(rows), notes)


def _row(run: Run, method: str, n: int) -> dict[str, Any]:
    values = outcome(run, method, n) if has(run, method, n) else np.full(1, np.nan)
    low, high = interval(resampled(100 * values))
    unread, replies = unparsed(run, method, n) if method in ASKED else (0, 0)
    head = {"model": run.model, "benchmark": title(run), "method": method, "N": n}
    numbers = {"value": percent(values), "low": low, "high": high, "items": len(run.ids)}
    share = 100 * unread / replies if replies else np.nan
    return head | numbers | {"replies": replies, "unread": share}


def unparsed(run: Run, method: str, n: int) -> tuple[int, int]:
    """How many of the model's replies name no candidate, and how many replies there are."""
    name = run.recording(method, n)
    if name is None:
        return 0, 0
    replies = run.replies(name)
    # Empty responses were not shown to the model.
    shown = np.nansum(run.grid((run.lengths > 0).astype(np.float64), n), axis=1).astype(int)
    choices = [
        judge_choice(reply) if method == "judge" else usc_choice(reply, count)
        for said, count in zip(replies, shown.tolist(), strict=True)
        for reply in said or []  # none where asking failed
    ]
    return choices.count(None), len(choices)


def _table(rows: list[dict[str, Any]], key: str, methods: tuple[str, ...], caption: str) -> Table:
    """Methods by benchmarks, and their average where none lacks."""
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    cells = {(row["method"], row["benchmark"]): row[key] for row in rows}
    numbers = np.array([[cells[m, b] for b in benchmarks] for m in methods])
    numbers = np.column_stack([numbers, numbers.mean(axis=1)])
    columns: list[list[Any]] = [ranked(column) for column in numbers.T]
    if key == "unread":  # no contest
        columns = [[cell.text for cell in column] for column in columns]
    lines = beside([NAMES[m] for m in methods], columns)
    heads = [("", name) for name in ("Method", *benchmarks, "Avg.")]
    return Table(heads, lines, caption, "tab:appendix_judge")


def _figure(rows: list[dict[str, Any]]) -> Any:
    groups = list(dict.fromkeys(f"{row['benchmark']}\n{row['model']}" for row in rows))
    series = {}
    for method, name in NAMES.items():
        here = [row for row in rows if row["method"] == method]
        value, low, high = ([row[key] for row in here] for key in ("value", "low", "high"))
        series[name] = Dots(COLORS[method], value, low, high)
    return dots(groups, series, "per cent")

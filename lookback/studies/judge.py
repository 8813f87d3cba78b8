"""tab:appendix_judge: the model as a judge of its own responses, pair by pair, and USC."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.judges import judge_choice, usc_choice
from lookback.studies.common.base import Result, Runs, StudyError, other_run_note, study, title
from lookback.studies.common.budgets import join_budgets
from lookback.studies.common.plots import Dots, dots
from lookback.studies.common.selection import (
    bootstrap_means,
    has_scores,
    in_order,
    interval,
    outcome,
    own_methods,
    percent,
    titles,
)
from lookback.studies.common.tables import Table, mark_best, rows_of_columns

COMPARED = ("random", "usc", "judge", "lookback")
ASKED = ("usc", "judge")


@study("judge", paper="tab:appendix_judge", title="Judge", needs_quality=True)
def judge(runs: Runs, n: int | None = None) -> Result:
    """Random, USC, the pairwise judge and LookBack; and how many replies could not be read.

    Args:
        runs: of each model and benchmark the largest or, if it has no scores of the judge, the
            first that has.
        n: the first n candidates; by default the largest N of all studies that was judged.

    Raises:
        StudyError: no run has the judge's scores for n candidates.
    """
    judged, notes = _judged(runs, n)
    sizes = dict(judged)
    methods = [*COMPARED, *own_methods(sizes)]
    rows: list[dict[str, Any]] = []
    tables = []
    for model, group in groupby(in_order(list(sizes)), key=lambda run: run.model):
        here = [_row(run, method, sizes[run]) for run in group for method in methods]
        rows += here
        budgets = join_budgets(row["N"] for row in here)
        caption = f"Best of {budgets} with {model} as its own judge, per cent."
        tables.append(_table(here, "value", methods, caption))
        caption = f"Replies of {model} that could not be read, per cent."
        tables.append(_table(here, "unread", ASKED, caption))
    notes += [
        "Where a reply of USC cannot be read the first candidate gets the vote; where one of the "
        "judge cannot, the winner so far stays.",
        "Random is the expectation over picks. Intervals: 95 %, from 2,000 bootstrap samples of "
        "items.",
    ]
    return Result(rows, tables, _figure(rows), notes)


def _judged(runs: Runs, n: int | None) -> tuple[list[tuple[Run, int]], list[str]]:
    """Of each model and benchmark the run that was judged, and for which N; and notes on them."""
    found: dict[tuple[str, str], tuple[Run, int]] = {}
    for run in (*runs.largest, *runs.own):
        asked = runs.budgets(run) if n is None else [n]
        counts = [count for count in asked if has_scores(run, "judge", count)]
        if counts:
            found.setdefault((run.model, run.benchmark), (run, max(counts)))
    if not found:
        raise StudyError(_unjudged(runs, n))
    others = [run for run, _ in found.values() if run not in runs.largest]
    return list(found.values()), [other_run_note(run, "the judge's scores") for run in others]


def _unjudged(runs: Runs, n: int | None) -> str:
    """Which recordings are wanted, and which there are for another N."""
    asked = {count for run in runs.largest for count in runs.budgets(run)} if n is None else {n}
    wanted = join_budgets(asked)
    there = sorted({r for run in runs.own for r in run.recorded if r.partition("@")[0] == "judge"})
    else_n = f" ({', '.join(there)} is there: ask for that N with --n)" if there else ""
    least = min(asked)
    return (
        f"no run here has recorded the judge for N = {wanted}{else_n}: run its command again with "
        f"--scorers judge@{least} (and --scorers usc@{least} for the comparison)"
    )


def _row(run: Run, method: str, n: int) -> dict[str, Any]:
    values = outcome(run, method, n) if has_scores(run, method, n) else np.full(1, np.nan)
    low, high = interval(bootstrap_means(100 * values))
    unread, replies = count_unparsed(run, method, n) if method in ASKED else (0, 0)
    labels = {"model": run.model, "benchmark": title(run), "method": method, "N": n}
    numbers = {"value": percent(values), "low": low, "high": high, "items": len(run.ids)}
    share = 100 * unread / replies if replies else np.nan
    return labels | numbers | {"replies": replies, "unread": share}


def count_unparsed(run: Run, method: str, n: int) -> tuple[int, int]:
    """How many of the model's replies name no candidate, and how many replies there are."""
    name = run.recording(method, n)
    if name is None:
        return 0, 0
    replies = run.replies(name)
    # Empty responses were not shown to the model.
    shown = np.nansum(run.grid((run.lengths > 0).astype(np.float64), n), axis=1).astype(int)
    choices = [
        judge_choice(reply) if method == "judge" else usc_choice(reply, count)
        for texts, count in zip(replies, shown.tolist(), strict=True)
        for reply in texts or []  # none where asking failed
    ]
    return choices.count(None), len(choices)


def _table(rows: list[dict[str, Any]], key: str, methods: Sequence[str], caption: str) -> Table:
    """Methods by benchmarks, and their average where none lacks."""
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    cells = {(row["method"], row["benchmark"]): row[key] for row in rows}
    numbers = np.array([[cells[m, b] for b in benchmarks] for m in methods])
    average = ["Avg."] if len(benchmarks) > 1 else []  # of one it would say the same again
    if average:
        numbers = np.column_stack([numbers, numbers.mean(axis=1)])
    columns: list[list[Any]] = [mark_best(column) for column in numbers.T]
    if key == "unread":  # no contest
        columns = [[cell.text for cell in column] for column in columns]
    lines = rows_of_columns(titles(methods), columns)
    header = [("", name) for name in ("Method", *benchmarks, *average)]
    return Table(header, lines, caption, "tab:appendix_judge")


def _figure(rows: list[dict[str, Any]]) -> Any:
    groups = list(dict.fromkeys(f"{row['benchmark']}\n{row['model']}" for row in rows))
    series = []
    for method in dict.fromkeys(row["method"] for row in rows):
        here = [row for row in rows if row["method"] == method]
        value, low, high = ([row[key] for row in here] for key in ("value", "low", "high"))
        scorer = get_scorer(method)
        series.append(Dots(scorer.title, scorer.color, value, low, high))
    return dots(groups, series, "per cent")

"""fig:motivation_pos and fig:appendix_pos: which words draw A_t, and which Self-Certainty."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.benchmarks import english
from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.studies.common import plots
from lookback.studies.common.base import Result, Runs, study, title
from lookback.studies.common.selection import in_order
from lookback.studies.common.tables import Table, rows_of_columns
from lookback.studies.common.words import (
    NOTES,
    SETS,
    TAGS,
    find_words,
    item_of_tokens,
    sample_responses,
    word_means,
    words_interval,
    z_scores,
)

SIGNALS = {"A": "visual_lookback", "SC": "self_certainty"}
FEW = 30
"""Fewer words than this tell little: they are drawn grey, with their number."""


@study("pos", paper="fig:motivation_pos, fig:appendix_pos", title="Parts of speech")
def pos(runs: Runs, responses: int = 2000) -> Result:
    """A_t and Self-Certainty by part of speech, as mean z-scores of words.

    Args:
        runs: each is analysed by itself.
        responses: the most responses of a run to analyse; of more, so many are drawn by lot.
    """
    notes = [
        *NOTES,
        "Intervals: 95 %, from 2,000 bootstrap samples of items, with the z-scores as they are. "
        f"Grey in the figure, with their number: groups of fewer than {FEW} words.",
        f"Tagged by spaCy with {english.model_name()}.",
    ]
    results = []
    for run in in_order(runs.largest):
        n = runs.budget(run)
        known = np.flatnonzero((run.lengths > 0) & (run.index < n))
        chosen = sample_responses(known, responses)
        results.append((run, _rows(run, n, chosen)))
        tokens = int(run.lengths[chosen].sum())
        notes.append(f"{title(run)}, {run.model}: {len(chosen)} responses, {tokens} tokens.")
    rows = [row for _, here in results for row in here]
    tables = [
        _table(list(group)) for _, group in groupby(results, key=lambda result: result[0].model)
    ]
    return Result(rows, tables, _figure(results), notes)


def _rows(run: Run, n: int, chosen: NDArray[np.intp]) -> list[dict[str, Any]]:
    """A row per set, and a row per part of speech."""
    words = find_words(run, chosen)
    scores = {
        name: word_means(z_scores(run.signal(signal)[words.tokens]), words.ranges)
        for name, signal in SIGNALS.items()
    }
    items, rows = item_of_tokens(run, chosen), []
    for group, members in (SETS | {tag: (tag,) for tag in TAGS}).items():
        here = words.within(members)
        of = items[words.ranges[here, 0]]
        row: dict[str, Any] = {"model": run.model, "benchmark": title(run), "N": n, "group": group}
        means = {n: float(v[here].mean()) if here.any() else np.nan for n, v in scores.items()}
        row |= means | {"words": int(here.sum())}
        for name, values in scores.items():
            low, high = words_interval(values[here], of, len(run.sizes))
            row |= {f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    return rows


def _table(results: list[tuple[Run, list[dict[str, Any]]]]) -> Table:
    """Groups by benchmarks, of one model."""
    columns, header = [], [("", "Words")]
    for run, rows in results:
        for name in SIGNALS:
            columns.append(["-" if not r["words"] else f"{r[name]:+.2f}" for r in rows])
        columns.append([str(row["words"]) for row in rows])
        header += [(title(run), name) for name in (*SIGNALS, "words")]
    lines = rows_of_columns([row["group"] for row in results[0][1]], columns)
    caption = f"Mean z-scores of words by part of speech: {results[0][0].model}."
    return Table(header, lines, caption, "fig:appendix_pos", [len(SETS)])


@plots.in_style
def _figure(results: list[tuple[Run, list[dict[str, Any]]]]) -> Any:
    """The two sets above, parts of speech below, a pair of panels per run."""
    from matplotlib.patches import Patch

    figure, axes = plots.tiles(len(results), high=2, across=2, height=1.8, sharey="row")
    for number, ((run, rows), pair) in enumerate(zip(results, axes, strict=True)):
        pair[0].set_title(plots.heading(f"{title(run)}, {run.model}"))
        for axis, groups, tilt in zip(pair, (SETS, TAGS), (0, 60), strict=True):
            here = [row for row in rows if row["group"] in groups and row["words"]]
            _draw_groups(axis, here)
            axis.set_xticks(range(len(here)), [row["group"] for row in here], rotation=tilt)
            axis.set_ylabel("" if number % 2 else "mean z-score")
    handles = [Patch(color=get_scorer(signal).color) for signal in SIGNALS.values()]
    names = [get_scorer(signal).title for signal in SIGNALS.values()]
    plots.add_legend(figure, "lower", handles, names)
    return figure


def _draw_groups(axis: Any, rows: list[dict[str, Any]]) -> None:
    """Bars of both signals side by side; groups of few words are grey, with their number."""
    x = np.arange(len(rows))
    for (name, method), shift, grey in zip(
        SIGNALS.items(), (-0.2, 0.2), (plots.PALE, plots.MUTED), strict=True
    ):
        color = get_scorer(method).color
        ends = [[row[f"{name}{end}"] for row in rows] for end in ("", "_low", "_high")]
        colors = [color if row["words"] >= FEW else grey for row in rows]
        axis.bar(x + shift, ends[0], 0.38, color=colors)
        plots.whiskers(axis, x + shift, *ends)
    for at, row in zip(x, rows, strict=True):
        if row["words"] < FEW:
            top = max(0.0, *(row[f"{name}_high"] for name in SIGNALS))
            axis.annotate(
                f"n={row['words']}", (at, top), (0, 1), textcoords="offset points",
                ha="center", va="bottom", fontsize=6, color=plots.MUTED,
            )  # fmt: skip
    axis.axhline(0, color=plots.INK, linewidth=0.6)
    axis.grid(visible=False, axis="x")

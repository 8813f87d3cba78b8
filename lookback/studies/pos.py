"""fig:motivation_pos and fig:appendix_pos: which words draw A_t, and which Self-Certainty."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.benchmarks import english
from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.studies.shared.base import Result, Runs, study, title
from lookback.studies.shared.methods import in_order
from lookback.studies.shared.plots import panels
from lookback.studies.shared.speech import NOTES, SETS, TAGS, find_words, z_scores
from lookback.studies.shared.tables import Table, rows_of_columns
from lookback.studies.shared.words import sample_responses, word_means

SIGNALS = {"A": "visual_lookback", "SC": "self_certainty"}


@study("pos", paper="fig:motivation_pos, fig:appendix_pos", title="Parts of speech")
def pos(runs: Runs, responses: int = 2000) -> Result:
    """A_t and Self-Certainty by part of speech, as mean z-scores of words.

    Args:
        runs: each is analysed by itself.
        responses: the most responses of a run to analyse; of more, so many are drawn by lot.
    """
    notes = [*NOTES, f"Tagged by spaCy with {english.model_name()}."]
    found = []
    for run in in_order(runs.largest):
        n = runs.budget(run)
        known = np.flatnonzero((run.lengths > 0) & (run.index < n))
        chosen = sample_responses(known, responses)
        found.append((run, _rows(run, n, chosen)))
        tokens = int(run.lengths[chosen].sum())
        notes.append(f"{title(run)}, {run.model}: {len(chosen)} responses, {tokens} tokens.")
    rows = [row for _, here in found for row in here]
    tables = [_table(list(group)) for _, group in groupby(found, key=lambda one: one[0].model)]
    return Result(rows, tables, _figure(found), notes)


def _rows(run: Run, n: int, chosen: NDArray[np.intp]) -> list[dict[str, Any]]:
    """A row per set, and a row per part of speech."""
    words = find_words(run, chosen)
    scores = {
        name: word_means(z_scores(run.signal(signal)[words.tokens]), words.ranges)
        for name, signal in SIGNALS.items()
    }
    rows = []
    for group, members in (SETS | {tag: (tag,) for tag in TAGS}).items():
        here = words.within(members)
        row = {"model": run.model, "benchmark": title(run), "N": n, "group": group}
        means = {n: float(v[here].mean()) if here.any() else np.nan for n, v in scores.items()}
        rows.append(row | means | {"words": int(here.sum())})
    return rows


def _table(found: list[tuple[Run, list[dict[str, Any]]]]) -> Table:
    """Groups by benchmarks, of one model."""
    columns, header = [], [("", "Words")]
    for run, rows in found:
        for name in SIGNALS:
            columns.append(["-" if not r["words"] else f"{r[name]:+.2f}" for r in rows])
        columns.append([str(row["words"]) for row in rows])
        header += [(title(run), name) for name in (*SIGNALS, "words")]
    lines = rows_of_columns([row["group"] for row in found[0][1]], columns)
    caption = f"Mean z-scores of words by part of speech: {found[0][0].model}."
    return Table(header, lines, caption, "fig:appendix_pos", [len(SETS)])


def _figure(found: list[tuple[Run, list[dict[str, Any]]]]) -> Any:
    """The two sets above, parts of speech below, a column per run."""
    figure, axes = panels(2, len(found), width=4.4, height=2.4, sharey="row")
    looks = (("A", "visual_lookback", -0.2), ("SC", "self_certainty", 0.2))
    for (run, rows), column in zip(found, axes.T, strict=True):
        column[0].set_title(f"{title(run)}, {run.model}")
        for axis, groups, tilt in zip(column, (SETS, TAGS), (0, 60), strict=True):
            here = [row for row in rows if row["group"] in groups and row["words"]]
            x = np.arange(len(here))
            for name, method, shift in looks:
                values, scorer = [row[name] for row in here], get_scorer(method)
                axis.bar(x + shift, values, 0.38, label=scorer.title, color=scorer.color)
            axis.axhline(0, color="#111827", linewidth=0.8)
            axis.set_xticks(x, [row["group"] for row in here], rotation=tilt)
    for axis in axes[:, 0]:
        axis.set_ylabel("mean z-score")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2)
    return figure

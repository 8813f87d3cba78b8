"""fig:motivation_pos and fig:appendix_pos: which words draw A_t, and which Self-Certainty."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lookback.benchmarks import english
from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.studies.shared.base import Result, Runs, StudyError, study, title
from lookback.studies.shared.methods import in_order
from lookback.studies.shared.plots import panels
from lookback.studies.shared.tables import Table, rows_of_columns
from lookback.studies.shared.words import Spans, sample_responses, token_ranges, word_means

VISUAL = ("NOUN", "PROPN", "ADJ", "NUM")
TEXTUAL = ("AUX", "DET", "PRON", "CCONJ", "SCONJ")
TAGS = (*VISUAL, "VERB", "ADV", "INTJ", "ADP", "PART", *TEXTUAL)
"""All that count as words; PUNCT, SPACE, SYM and X do not."""
SETS = {"visual set": VISUAL, "textual set": TEXTUAL}
SIGNALS = {"A": "visual_lookback", "SC": "self_certainty"}


@study("pos", paper="fig:motivation_pos, fig:appendix_pos", title="Parts of speech")
def pos(runs: Runs, responses: int = 2000) -> Result:
    """A_t and Self-Certainty by part of speech, as mean z-scores of words.

    Args:
        runs: each is analysed by itself.
        responses: the most responses of a run to analyse; of more, so many are drawn by lot.
    """
    notes = [
        "Each signal is z-scored over all tokens analysed; a word has the mean of its sub-tokens.",
        f"Visual set: {', '.join(VISUAL)}. Textual set: {', '.join(TEXTUAL)}. The other parts of "
        "speech, ADP and PART too, are in neither. Left out: PUNCT, SPACE, SYM and X.",
        f"Tagged by spaCy with {english.model_name()}.",
    ]
    found = []
    for run in in_order(runs.largest):
        chosen = sample_responses(np.flatnonzero(run.lengths > 0), responses)
        found.append((run, _rows(run, chosen)))
        tokens = int(run.lengths[chosen].sum())
        notes.append(f"{title(run)}, {run.model}: {len(chosen)} responses, {tokens} tokens.")
    rows = [row for _, here in found for row in here]
    tables = [_table(list(group)) for _, group in groupby(found, key=lambda one: one[0].model)]
    return Result(rows, tables, _figure(found), notes)


def tag_words(texts: Sequence[str]) -> tuple[Spans, NDArray[np.str_]]:
    """The words of some texts and their parts of speech; texts that are the same are read once."""
    nlp = english.model()
    ruler: Any = nlp.get_pipe("attribute_ruler")  # from the tagger's tags to parts of speech
    distinct = list(dict.fromkeys(texts))
    read = {
        text: [(word.idx, word.idx + len(word), word.pos_) for word in ruler(doc)]
        for text, doc in zip(distinct, nlp.pipe(distinct, batch_size=english.BATCH), strict=True)
    }
    found = [(i, *word) for i, text in enumerate(texts) for word in read[text] if word[2] in TAGS]
    spans = np.array([word[:3] for word in found], dtype=np.int64).reshape(-1, 3)
    return spans, np.array([word[3] for word in found], dtype=str)


def z_scores(values: Array) -> Array:
    """How many standard deviations each value is above the mean.

    Raises:
        StudyError: they are all the same.
    """
    if values.min() == values.max():
        raise StudyError("a signal is the same for all tokens: it has no z-scores")
    return np.asarray((values - values.mean()) / values.std())


def _rows(run: Run, chosen: NDArray[np.intp]) -> list[dict[str, Any]]:
    """A row per set, and a row per part of speech."""
    texts = [run.texts[i] for i in chosen]
    spans, tags = tag_words(texts)
    ranges = token_ranges(run.tokens().take(pa.array(chosen)), texts, spans)
    tokens = np.repeat(np.isin(np.arange(len(run.lengths)), chosen), run.lengths)
    scores = {
        name: word_means(z_scores(run.signal(signal)[tokens]), ranges)
        for name, signal in SIGNALS.items()
    }
    rows = []
    for group, members in (SETS | {tag: (tag,) for tag in TAGS}).items():
        here = np.isin(tags, members) & (ranges[:, 1] > ranges[:, 0])
        row = {"model": run.model, "benchmark": title(run), "group": group}
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

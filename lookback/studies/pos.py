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
from lookback.scores.formula import Array
from lookback.studies.base import Result, Runs, StudyError, study
from lookback.studies.plots import COLORS, panels
from lookback.studies.selection import in_order, title
from lookback.studies.tables import Table
from lookback.studies.words import Spans, drawn, pieces, token_ranges, word_means

VISUAL = ("NOUN", "PROPN", "ADJ", "NUM")
TEXTUAL = ("AUX", "DET", "PRON", "CCONJ", "SCONJ")
TAGS = (*VISUAL, "VERB", "ADV", "INTJ", "ADP", "PART", *TEXTUAL)
"""All that count as words; PUNCT, SPACE, SYM and X do not."""
SETS = {"visual set": VISUAL, "textual set": TEXTUAL}
SIGNALS = {"A": "lookback", "SC": "self_certainty"}


@study("pos", paper="fig:motivation_pos, fig:appendix_pos")
def pos(runs: Runs, responses: int = 2000) -> Result:
    """A_t and Self-Certainty by part of speech, as mean z-scores of words.

    Args:
        runs: each is analysed by itself.
        responses: the most responses of a run to analyse; of more, so many are drawn by lot.
    """
    notes = [
        f"Each signal is z-scored over all tokens analysed; a word has the mean of its sub-tokens. "
        f"Visual set: {', '.join(VISUAL)}. Textual set: {', '.join(TEXTUAL)}. Verbs, adverbs, "
        "interjections, ADP and PART are in neither; punctuation, symbols and unknown words are "
        f"left out. Tagged by spaCy's {english.model_name()}.",
    ]
    found = []
    for run in in_order(runs.largest):
        chosen = drawn(np.flatnonzero(run.lengths > 0), responses)
        found.append((run, _rows(run, chosen)))
        tokens = int(run.lengths[chosen].sum())
        notes.append(f"{title(run)}, {run.model}: {len(chosen)} responses, {tokens} tokens.")
    rows = [row for _, here in found for row in here]
    models = groupby(found, key=lambda one: one[0].model)
    tables = [_table(model, [here for _, here in group]) for model, group in models]
    return Result(rows, tables, _figure(found), notes)


def tagged(texts: Sequence[str]) -> tuple[Spans, NDArray[np.str_]]:
    """The words of some texts with their parts of speech; texts that are the same are read once."""
    nlp = english.model()
    ruler = nlp.get_pipe("attribute_ruler")  # from the tagger's tags to parts of speech
    distinct = list(dict.fromkeys(texts))
    read: dict[str, list[tuple[int, int, str]]] = {}
    for doc in nlp.pipe(distinct, batch_size=english.BATCH):
        words = ruler(doc)
        read[doc.text] = [(w.idx, w.idx + len(w), w.pos_) for w in words if w.pos_ in TAGS]
    found = [(i, *word) for i, text in enumerate(texts) for word in read[text]]
    spans = np.array([word[:3] for word in found], dtype=np.int64).reshape(-1, 3)
    return spans, np.array([word[3] for word in found], dtype=str)


def z_scores(values: Array) -> Array:
    """How many standard deviations each value is above the mean.

    Raises:
        StudyError: they are all the same.
    """
    spread = values.std()
    if not spread > 0:
        raise StudyError("a signal is the same for all tokens: there are no z-scores")
    return np.asarray((values - values.mean()) / spread)


def _rows(run: Run, chosen: NDArray[np.intp]) -> list[dict[str, Any]]:
    """A row a set and a row a part of speech that occurs."""
    texts = [run.texts[i] for i in chosen]
    spans, tags = tagged(texts)
    ranges = token_ranges(pieces(run).take(pa.array(chosen)), texts, spans)
    kept = np.zeros(len(run.lengths), dtype=bool)
    kept[chosen] = True
    tokens = np.repeat(kept, run.lengths)
    words = {
        name: word_means(z_scores(run.signal(signal)[tokens]), ranges)
        for name, signal in SIGNALS.items()
    }
    written = ranges[:, 1] > ranges[:, 0]
    rows = []
    for group, members in (SETS | {tag: (tag,) for tag in TAGS}).items():
        here = np.isin(tags, members) & written
        row = {
            "model": run.model,
            "benchmark": title(run),
            "group": group,
            "words": int(here.sum()),
        }
        rows.append(
            row | {n: float(v[here].mean()) if here.any() else np.nan for n, v in words.items()}
        )
    return rows


def _table(model: str, found: list[list[dict[str, Any]]]) -> Table:
    """Groups by benchmarks, of one model."""
    lines = []
    for same in zip(*found, strict=True):
        cells = [same[0]["group"]]
        for row in same:
            numbers = ["-" if np.isnan(row[name]) else f"{row[name]:+.2f}" for name in SIGNALS]
            cells += [*numbers, str(row["words"])]
        lines.append(cells)
    heads = [(rows[0]["benchmark"], name) for rows in found for name in (*SIGNALS, "words")]
    caption = f"Mean z-scores of words by part of speech: {model}."
    return Table([("", "Words"), *heads], lines, caption, "fig:appendix_pos", [len(SETS)])


def _figure(found: list[tuple[Run, list[dict[str, Any]]]]) -> Any:
    """The two sets above, parts of speech below, a column a run."""
    figure, axes = panels(2, len(found), width=4.6, height=2.5, sharey="row")
    looks = {"A": (-0.2, COLORS["visual_lookback"]), "SC": (0.2, COLORS["self_certainty"])}
    names = {"A": "visual lookback", "SC": "Self-Certainty"}
    for (run, rows), column in zip(found, axes.T, strict=True):
        for axis, groups in zip(column, (list(SETS), list(TAGS)), strict=True):
            here = [r for r in rows if r["group"] in groups and r["words"]]
            places = np.arange(len(here))
            for name, (shift, color) in looks.items():
                values = [row[name] for row in here]
                axis.bar(places + shift, values, 0.38, color=color, label=names[name])
            axis.axhline(0, color="#111827", linewidth=0.8)
            tilt = 0 if len(groups) == len(SETS) else 60
            axis.set_xticks(places, [row["group"] for row in here], rotation=tilt)
        column[0].set_title(f"{title(run)}, {run.model}")
    for axis in axes[:, 0]:
        axis.set_ylabel("mean z-score")
    axes[0, 0].legend(fontsize=8)
    return figure

"""Where LookBack's gain comes from: log p and A_t, each under the own and under a random image."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookback.scores.base import get_scorer
from lookback.scores.formula import Array, lookback_scores
from lookback.studies.common.base import Result, Runs, study, title
from lookback.studies.common.budgets import join_budgets
from lookback.studies.common.controls import Pair, control_pairs, fewer_notes
from lookback.studies.common.plots import MUTED, add_legend, heading, in_style, tiles
from lookback.studies.common.selection import estimate, quality_of_picks
from lookback.studies.common.tables import Table
from lookback.studies.common.words import find_mentions, mention_aucs, mentioning_benchmark

SWAPS = {
    "none": ("own", "own"),
    "log p": ("random", "own"),
    "A": ("own", "random"),
    "both": ("random", "random"),
}
"""What is taken from the random image: with it, the image of log p and the image of A."""
NOTES = [
    "All four combinations have the run's alpha and lambda. A drop is against both factors from "
    "the own image. Intervals: 95 %, from 2,000 bootstrap samples of items, the same for all; "
    "in the figure those of the outcomes, and of random selection the band.",
    "AUC: the probability that a right mention of an object has the higher value than a wrong one, "
    "ties half; a mention's value is the mean over its sub-tokens. 0.5 tells nothing. What tells "
    "as much under a random image is not read off the image.",
]


@study("decomposition", title="Decomposition", needs_quality=True)
def decomposition(runs: Runs, responses: int = 5000) -> Result:
    """Which of LookBack's two factors carries its gain, and which tells right objects from wrong.

    Args:
        runs: with controls that looked at a random image.
        responses: the most responses of a run whose mentions of objects are read.
    """
    pairs = control_pairs(runs, "random")
    notes = [*NOTES, *fewer_notes(pairs)]
    rows: list[dict[str, Any]] = []
    drops, mention_lines = [], []
    for pair in pairs:
        name = f"{title(pair.run)}, {pair.run.model}"
        benchmark = mentioning_benchmark(pair.run)
        here = _selection(pair)
        rows += here
        drops.append([name, *_drops(here)])
        if benchmark is None:
            notes.append(f"{name}: the benchmark cannot tell right mentions from wrong; no AUC.")
            continue
        found = find_mentions(pair.run, benchmark, pair.candidates, responses)
        notes.append(f"{name}: mentions of {found.responses} responses.")
        notes += [f"{name}: {note}." for note in benchmark.notes]
        counts = {"right": int(found.right.sum()), "wrong": int((~found.right).sum())}
        values = mention_aucs(pair, found)
        for (factor, image), value in values.items():
            rows.append(_row(pair, "AUC", f"{factor}, {image} image") | {"value": value} | counts)
        printed = ["-" if np.isnan(value) else f"{value:.3f}" for value in values.values()]
        mention_lines.append([name, *map(str, counts.values()), *printed])
    tables = [Table(DROP_HEADER, drops, _caption(pairs))]
    if mention_lines:
        caption = "Right against wrong mentions of objects, by image."
        tables.append(Table(AUC_HEADER, mention_lines, caption))
    return Result(rows, tables, _figure(pairs, rows), notes)


def swap_factors(pair: Pair) -> dict[str, Array]:
    """(items, n) for each of `SWAPS`: LookBack with its factors from the one or the other image."""
    lengths = pair.run.lengths[pair.candidates]
    log_prob, a = pair.signal("log_prob"), pair.signal("visual_lookback")
    alpha, lam = pair.run.defaults["alpha"], pair.run.defaults["lam"]
    found, filled = {}, lengths > 0
    for name, (first, second) in SWAPS.items():
        scores = np.full(len(lengths), np.nan)
        scores[filled] = lookback_scores(log_prob[first], a[second], lengths[filled], alpha, lam)
        found[name] = pair.grid(scores)
    return found


def _row(pair: Pair, measure: str, what: str) -> dict[str, Any]:
    labels = {"model": pair.run.model, "benchmark": title(pair.run), "N": pair.n}
    labels |= {"items": len(pair.rows), "measure": measure, "what": what}
    numbers = ("value", "low", "high", "drop", "drop_low", "drop_high", "right", "wrong")
    return labels | dict.fromkeys((*numbers, "over_a", "over_a_low", "over_a_high"), np.nan)


def _selection(pair: Pair) -> list[dict[str, Any]]:
    """A row per combination, and one for random selection.

    `over_a` is how much more it costs than A from the random image.
    """
    quality = 100 * pair.quality()
    outcomes = {name: quality_of_picks(s, quality) for name, s in swap_factors(pair).items()}
    rows = []
    for name, values in (outcomes | {"random selection": np.nanmean(quality, axis=1)}).items():
        row = _row(pair, "outcome", name) | estimate(values)
        row |= estimate(outcomes["none"] - values, "drop")
        rows.append(row | estimate(outcomes["A"] - values, "over_a"))
    return rows


DROP_HEADER = [("", "Benchmark"), ("", "Random"), ("", "LookBack")]
DROP_HEADER += [
    (f"random image for {swap}", name)
    for swap in ("log p", "A", "both")
    for name in ("outcome", "drop")
]
AUC_HEADER = [("", "Benchmark"), ("Mentions", "right"), ("Mentions", "wrong")]
AUC_HEADER += [(f"AUC of {name}", image) for name in ("A", "log p") for image in ("own", "random")]


def _caption(pairs: list[Pair]) -> str:
    budgets = join_budgets(pair.n for pair in pairs)
    return f"LookBack with factors from a random image, N = {budgets}, per cent."


def _drops(rows: list[dict[str, Any]]) -> list[str]:
    """The cells of one run."""
    ours, *swaps, floor = rows
    cells = [f"{floor['value']:.2f}", f"{ours['value']:.2f}"]
    for row in swaps:
        around = f"[{row['drop_low']:.2f}, {row['drop_high']:.2f}]"
        cells += [f"{row['value']:.2f}", f"{row['drop']:.2f} {around}"]
    return cells


@in_style
def _figure(pairs: list[Pair], rows: list[dict[str, Any]]) -> Any:
    """The four outcomes with their intervals, a panel per run."""
    across = min(4, len(pairs))
    figure, axes = tiles(len(pairs), height=2.1, sharey="row")
    methods = ("lookback", "mean_log_prob", "visual_lookback", "random")
    colors = [get_scorer(method).color for method in methods]
    outcomes = [row for row in rows if row["measure"] == "outcome"]
    for number, (pair, (axis,)) in enumerate(zip(pairs, axes, strict=True)):
        *shown, floor = outcomes[5 * number : 5 * number + 5]
        value, low, high = (np.array([row[k] for row in shown]) for k in ("value", "low", "high"))
        axis.vlines(list(SWAPS), low, high, color=colors, linewidth=1.5)
        axis.scatter(list(SWAPS), value, s=22, color=colors, zorder=3)
        line = axis.axhline(floor["value"], color=MUTED, linestyle="--", linewidth=1)
        axis.axhspan(floor["low"], floor["high"], color=MUTED, alpha=0.12, linewidth=0)
        axis.margins(x=0.15)
        axis.grid(visible=False, axis="x")
        axis.set_title(heading(title(pair.run), pair.run.model, across=across))
    for row in range(0, len(axes), across):
        axes[row][0].set_ylabel("per cent")
    figure.supxlabel("taken from the random image", fontsize="medium")
    add_legend(figure, "upper", [line], ["random selection"])
    return figure

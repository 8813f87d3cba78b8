"""fig:motivation_output_dist and fig:motivation_agreement: scoring with the image and without."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.studies.common import plots
from lookback.studies.common.base import Result, Runs, study, title
from lookback.studies.common.controls import (
    BINS,
    Pair,
    control_pairs,
    fewer_notes,
    histograms,
    ks_distance,
    mean_agreement,
    overlap,
    same_picks,
)
from lookback.studies.common.selection import bootstrap_means, interval, own_methods, titles
from lookback.studies.common.tables import Table

COMPARED = ("self_certainty", "mean_log_prob", "lookback")
SIGNALS = ("self_certainty", "visual_lookback")
"""Compared with each other, both with the image."""
WITHOUT = "without image"
NOTES = [
    "Agreement: the share of items of which both scorings pick the same of the N candidates; by "
    "chance 1/N (same_text: the same text, whichever candidate has it). Intervals: 95 %, from "
    "2,000 bootstrap samples of items.",
    f"Overlap: the area that the two histograms of {BINS} bins share, 1 if they are the same. KS: "
    "the largest difference of the two cumulative distributions. Both are over responses.",
    "Figure: dotted lines are means; whiskers the intervals of the agreement.",
    "Without an image A_t is 0 for every token. LookBack is then mean log p plus a constant, and "
    "picks what mean log p without image picks; visual lookback ranks nothing.",
]


@study(
    "image-sensitivity",
    paper="fig:motivation_output_dist, fig:motivation_agreement",
    title="Image sensitivity",
)
def image_sensitivity(runs: Runs) -> Result:
    """How much a score changes when the image is taken away, and how often its pick does."""
    pairs = control_pairs(runs, "none")
    own = own_methods(run for pair in pairs for run in (pair.run, pair.control))
    rows = [row for pair in pairs for row in _rows(pair, own)]
    own = [method for method in own if any(row["first"] == method for row in rows)]
    tables = [_table(list(group), own) for _, group in groupby(rows, key=lambda row: row["model"])]
    notes = [*NOTES, *fewer_notes(pairs)]
    return Result(rows, tables, _figure(pairs, rows, own), notes)


def _rows(pair: Pair, own: list[str]) -> list[dict[str, Any]]:
    """A row per comparison: scorers with and without image; SC and visual lookback, with it."""
    sc, looked = (pair.scores(name)[0] for name in SIGNALS)
    compared = [(name, WITHOUT, *pair.scores(name)) for name in COMPARED]
    compared.append((*SIGNALS, sc, looked))
    compared += [(name, WITHOUT, *pair.scores(name)) for name in own if pair.has_scores(name)]
    texts, rows = pair.texts(), []
    for first, second, a, b in compared:
        same = same_picks(a, b)
        low, high = interval(bootstrap_means(same)) if len(same) else (np.nan, np.nan)
        row = {"model": pair.run.model, "benchmark": title(pair.run), "N": pair.n}
        row |= {"first": first, "second": second, "items": len(same)}
        row |= {"agreement": mean_agreement(same), "low": low, "high": high}
        row["same_text"] = mean_agreement(same_picks(a, b, texts))
        row["chance"] = float((1 / pair.sizes).mean())
        rows.append(row | _distributions(*_responses(a, b), comparable=second == WITHOUT))
    return rows


def _responses(first: Array, second: Array) -> tuple[Array, Array]:
    """The scores of the responses that have both."""
    both = np.isfinite(first) & np.isfinite(second)
    return first[both], second[both]


def _distributions(first: Array, second: Array, comparable: bool) -> dict[str, float]:
    """Their means and, if they are on the same scale, how far they are apart; NaN without any."""
    numbers = dict.fromkeys(("mean", "second_mean", "overlap", "ks"), np.nan)
    if len(first):
        numbers |= {"mean": float(first.mean()), "second_mean": float(second.mean())}
    if len(first) and comparable:
        numbers |= {"overlap": overlap(first, second), "ks": ks_distance(first, second)}
    return {"responses": len(first)} | numbers


def _table(rows: list[dict[str, Any]], own: list[str]) -> Table:
    """Of one model."""
    lines = []
    for benchmark, group in groupby(rows, key=lambda row: row["benchmark"]):
        by_name = {(row["first"], row["second"]): row for row in group}
        sc = by_name["self_certainty", WITHOUT]
        shapes = [f"{sc[key]:.3f}" for key in ("mean", "second_mean", "overlap", "ks")]
        compared = [(name, WITHOUT) for name in COMPARED]
        compared += [SIGNALS, *((name, WITHOUT) for name in own)]
        agreed = [_printed(by_name.get(key)) for key in compared]
        lines.append([f"{benchmark}, N={sc['N']}", *shapes, *agreed, f"{sc['chance']:.3f}"])
    certainty, looked = titles(SIGNALS)
    header = [("", "Benchmark")]
    header += [(certainty, name) for name in ("image", "no image", "overlap", "KS")]
    names = (*titles(COMPARED), f"{certainty} / {looked.lower()}", *titles(own), "1/N")
    header += [("Top-1 agreement", name) for name in names]
    caption = f"Scoring with and without the image: {rows[0]['model']}."
    return Table(header, lines, caption, "fig:motivation_agreement")


def _printed(row: dict[str, Any] | None) -> str:
    return "-" if row is None or np.isnan(row["agreement"]) else f"{row['agreement']:.3f}"


@plots.in_style
def _figure(pairs: list[Pair], rows: list[dict[str, Any]], own: list[str]) -> Any:
    """SC's distributions above, a panel per run; agreement below."""
    across = min(4, len(pairs))
    above = -(-len(pairs) // across)
    figure, axes = plots.panels(above + 1, across, height=1.9, sharex="row", sharey="row")
    for axis, pair in zip(axes.flat, pairs, strict=False):
        _draw_distributions(axis, pair)
        axis.set_title(plots.heading(title(pair.run), pair.run.model, across=across))
    for axis in axes.flat[len(pairs) :]:
        axis.remove()
    for line in axes[:above]:
        line[0].set_ylabel("density")
    plots.add_legend(figure, "upper", *axes[0, 0].get_legend_handles_labels())
    bars = figure.add_subplot(axes[0, 0].get_gridspec()[above, :])
    _bars(bars, rows, [f"{title(pair.run)}\n{pair.run.model}" for pair in pairs], own)
    plots.add_legend(figure, "lower", *bars.get_legend_handles_labels())
    return figure


def _draw_distributions(axis: Any, pair: Pair) -> None:
    """SC of all responses with the image and without, their means dotted."""
    sc = get_scorer("self_certainty")
    both = _responses(*pair.scores(sc.name))
    edges, *shares = histograms(*both)
    labels = (f"{sc.title} with image", f"{sc.title} without image")
    looks = zip((sc.color, plots.INK), labels, ("-", "--"), strict=True)
    for values, share, (color, label, style) in zip(both, shares, looks, strict=True):
        density = share / np.diff(edges)
        axis.stairs(density, edges, fill=True, alpha=0.2, color=color, linewidth=0)
        axis.stairs(density, edges, color=color, label=label, linestyle=style, linewidth=0.9)
        axis.axvline(values.mean(), color=color, linestyle=":", linewidth=1)
    axis.set(xlabel=f"{sc.title} of a response", yticks=[])
    axis.locator_params(axis="x", nbins=5)


def _bars(axis: Any, rows: list[dict[str, Any]], setups: list[str], own: list[str]) -> None:
    """Agreement of SC with itself without image (solid), and with visual lookback (hatched).

    Users' own scorers follow, each with itself without image.
    """
    cells = {(f"{r['benchmark']}\n{r['model']}", r["first"], r["second"]): r for r in rows}
    sc, looked, *others = (get_scorer(name) for name in (*SIGNALS, *own))
    hatched = {"color": "white", "edgecolor": looked.color, "hatch": "////"}
    bars = [
        (f"{sc.title} with and without image", (sc.name, WITHOUT), {"color": sc.color}),
        (f"{sc.title} and {looked.title.lower()}", SIGNALS, hatched),
    ]
    for scorer in others:
        name = f"{scorer.title} with and without image"
        bars.append((name, (scorer.name, WITHOUT), {"color": scorer.color}))
    x, step = np.arange(len(setups)), 0.72 / len(bars)
    chance = [cells[setup, sc.name, WITHOUT]["chance"] for setup in setups]
    for number, (label, key, look) in enumerate(bars):
        at = x + (number - (len(bars) - 1) / 2) * step
        here = [cells.get((setup, *key)) for setup in setups]
        ends = [[np.nan if r is None else r[k] for r in here] for k in ("agreement", "low", "high")]
        axis.bar(at, ends[0], step - 0.02, label=label, **look)
        plots.whiskers(axis, at, *ends)
        for center, height, _, high, line in zip(at, *ends, chance, strict=True):
            if np.isfinite(height):
                _write_above(axis, center, max(high, line), f"{height:.2f}")
    axis.hlines(chance, x - 0.4, x + 0.4, plots.INK, "--", linewidth=1, label="random, 1/N")
    axis.set_xticks(x, [plots.heading(*s.split("\n"), across=len(setups)) for s in setups])
    axis.set(ylabel="top-1 agreement", xlim=(-0.6, len(setups) - 0.4))
    axis.grid(visible=False, axis="x")
    axis.margins(y=0.15)


def _write_above(axis: Any, x: float, y: float, words: str) -> None:
    """A number above a bar, its whisker and the line of chance: on none of them."""
    look = {"ha": "center", "va": "bottom", "fontsize": plots.SMALL}
    axis.annotate(words, (x, y), (0, 2), textcoords="offset points", **look)

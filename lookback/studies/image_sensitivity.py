"""fig:motivation_output_dist and fig:motivation_agreement: scoring with the image and without."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from lookback.scores.formula import Array
from lookback.studies.base import Result, Runs, study
from lookback.studies.distributions import BINS, histograms, ks_distance, overlap
from lookback.studies.pairs import Pair, controlled, same_picks
from lookback.studies.plots import COLORS, panels
from lookback.studies.selection import interval, resampled, title
from lookback.studies.tables import Table

SCORERS = ("self_certainty", "mean_log_prob", "lookback")
WITHOUT = "without image"
NOTES = [
    "Agreement: the share of items of which both scorings pick the same of the N candidates; by "
    "chance 1/N (same_text: the same text, whichever candidate has it). Intervals: 95 %, from "
    "2,000 bootstrap samples of items.",
    f"Overlap: the area that the two histograms of {BINS} bins share, 1 if they are the same. KS: "
    "the largest difference of the two cumulative distributions. Both are over responses.",
    "Without an image A_t is 0 for every token. LookBack is then mean log p plus a constant, and "
    "picks what mean log p without image picks; visual lookback ranks nothing.",
]


@study("image-sensitivity", paper="fig:motivation_output_dist, fig:motivation_agreement")
def image_sensitivity(runs: Runs) -> Result:
    """How much a score changes when the image is taken away, and how often its pick does."""
    pairs = controlled(runs, "none")
    rows = [row for pair in pairs for row in _rows(pair)]
    tables = [_table(list(group)) for _, group in groupby(rows, key=lambda row: row["model"])]
    return Result(rows, tables, _figure(pairs, rows), NOTES)


def _rows(pair: Pair) -> list[dict[str, Any]]:
    """A row a comparison: each scorer with and without image; SC and visual lookback, with it."""
    scores = {name: pair.scores(name) for name in (*SCORERS, "visual_lookback")}
    compared = [(name, WITHOUT, *scores[name]) for name in SCORERS]
    signals = scores["self_certainty"][0], scores["visual_lookback"][0]
    compared.append(("self_certainty", "visual_lookback", *signals))
    texts, rows = pair.texts(), []
    for first, second, a, b in compared:
        same = same_picks(a, b)
        low, high = interval(resampled(same))
        row = {"model": pair.run.model, "benchmark": title(pair.run), "N": pair.n}
        row |= {"first": first, "second": second, "items": len(same)}
        row |= {"agreement": float(same.mean()), "low": low, "high": high}
        row["same_text"] = float(same_picks(a, b, texts).mean())
        row["chance"] = float((1 / pair.run.sizes[pair.rows]).mean())
        rows.append(row | _distributions(*_responses(a, b), comparable=second == WITHOUT))
    return rows


def _responses(first: Array, second: Array) -> tuple[Array, Array]:
    """The scores of the responses that have both."""
    both = np.isfinite(first) & np.isfinite(second)
    return first[both], second[both]


def _distributions(first: Array, second: Array, comparable: bool) -> dict[str, float]:
    """Their means and, if they are on the same scale, how far they are apart."""
    apart = (overlap(first, second), ks_distance(first, second)) if comparable else (np.nan, np.nan)
    means = {"mean": float(first.mean()), "second_mean": float(second.mean())}
    return {"responses": len(first)} | means | {"overlap": apart[0], "ks": apart[1]}


def _table(rows: list[dict[str, Any]]) -> Table:
    """Of one model."""
    lines = []
    for benchmark, group in groupby(rows, key=lambda row: row["benchmark"]):
        sc, *others = group
        shapes = [f"{sc[key]:.3f}" for key in ("mean", "second_mean", "overlap", "ks")]
        agreed = [f"{row['agreement']:.3f}" for row in (sc, *others)]
        lines.append([f"{benchmark}, N={sc['N']}", *shapes, *agreed, f"{sc['chance']:.3f}"])
    heads = [("", "Benchmark"), *(("SC", name) for name in ("image", "no image", "overlap", "KS"))]
    names = ("SC", "Mean log p", "LookBack", "SC / visual lookback", "1/N")
    heads += [("Top-1 agreement", name) for name in names]
    caption = f"Scoring with and without the image: {rows[0]['model']}."
    return Table(heads, lines, caption, "fig:motivation_agreement")


def _figure(pairs: list[Pair], rows: list[dict[str, Any]]) -> Any:
    """SC's distributions above, a panel a run; agreement below."""
    figure, axes = panels(2, len(pairs), width=max(2.8, 4.6 / len(pairs)), height=2.4)
    blue, dark = COLORS["self_certainty"], COLORS["oracle"]
    setups = [f"{title(pair.run)}\n{pair.run.model}" for pair in pairs]
    for axis, pair, name in zip(axes[0], pairs, setups, strict=True):
        axis.set(title=name, xlabel="SC of a response", yticks=[])
        both = _responses(*pair.scores("self_certainty"))
        edges, *shares = histograms(*both)
        looks = ((blue, "SC with image"), (dark, "SC without image"))
        for values, share, (color, label) in zip(both, shares, looks, strict=True):
            axis.stairs(share / np.diff(edges), edges, fill=True, alpha=0.25, color=color)
            axis.stairs(share / np.diff(edges), edges, color=color, label=label)
            axis.axvline(values.mean(), color=color, linestyle=":", label=f"{label}, mean")
    axes[0, 0].set_ylabel("density")
    grid = axes[1, 0].get_gridspec()
    for axis in axes[1]:
        axis.remove()
    bars = figure.add_subplot(grid[1, :])
    _bars(bars, [row for row in rows if row["first"] == "self_certainty"], setups)
    found = [axis.get_legend_handles_labels() for axis in (axes[0, 0], bars)]
    handles, names = ([*a, *b] for a, b in zip(*found, strict=True))
    figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=7)
    return figure


def _bars(axis: Any, rows: list[dict[str, Any]], setups: list[str]) -> None:
    """Agreement of SC with itself without image (solid), and with visual lookback (hatched)."""
    places = np.arange(len(setups))
    hatched = {"color": "white", "edgecolor": COLORS["visual_lookback"], "hatch": "////"}
    solid = {"color": COLORS["self_certainty"]}
    for here, shift, name, look in (
        (rows[::2], -0.18, "SC with and without image", solid),
        (rows[1::2], 0.18, "SC and visual lookback", hatched),
    ):
        axis.bar(places + shift, [row["agreement"] for row in here], 0.34, label=name, **look)
        for place, row in zip(places + shift, here, strict=True):
            high = max(row["agreement"], row["chance"])  # above the line, too
            axis.text(place, high, f"{row['agreement']:.2f}", ha="center", va="bottom", fontsize=7)
    chance = [row["chance"] for row in rows[::2]]
    axis.hlines(chance, places - 0.4, places + 0.4, COLORS["oracle"], "--", label="random, 1/N")
    axis.set_xticks(places, setups)
    axis.set(ylabel="top-1 agreement", xlim=(-0.6, len(setups) - 0.4))
    axis.margins(y=0.15)

"""Bars of three verdicts each: one scorer's pick is better, neither, the other's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from lookback.scores.formula import Array
from lookback.studies.shared.plots import (
    INK,
    PALE,
    SMALL,
    TWO_COLUMNS,
    add_legend,
    in_style,
    panels,
)
from lookback.studies.shared.selection import interval, item_counts

DARK = "#475569"


class Named(Protocol):
    """A title and a colour: a scorer, or what a key says of it."""

    @property
    def title(self) -> str:
        """As in legends."""

    @property
    def color(self) -> str:
        """As #rrggbb."""


@in_style
def verdict_bars(groups: Mapping[str, Array], first: Named, second: Named, xlabel: str) -> Any:
    """A figure of a bar per group.

    Whiskers above a bar are of the first one's share, those below of the second one's, from
    bootstrap samples of cases.

    Args:
        groups: name -> (cases, 3): how many verdicts of each kind a case has.
        first, second: the scorers.
        xlabel: per cent of what.
    """
    figure, axes = panels(1, 1, TWO_COLUMNS, height=0.36 * len(groups) + 0.8)
    axis, left = axes[0, 0], np.zeros(len(groups))
    labels = (f"{first.title} better", "Tie", f"{second.title} better")
    colors = (first.color, PALE, DARK if second.color == first.color else second.color)
    totals = np.array([100 * one.sum(axis=0) / one.sum() for one in groups.values()])  # (groups, 3)
    for width, label, color in zip(totals.T, labels, colors, strict=True):
        bars = axis.barh(list(groups), width, left=left, height=0.5, color=color, label=label)
        words = [f"{w:.0f} %" if w >= 6 else "" for w in width]
        ink = INK if color == PALE else "white"
        axis.bar_label(bars, words, label_type="center", fontsize=SMALL, color=ink)
        left += width
    for number, counts in enumerate(groups.values()):
        _draw_interval(axis, number - 0.36, counts, 1, colors[0])
        _draw_interval(axis, number + 0.36, counts, 2, colors[2])
    axis.set(xlabel=xlabel, xlim=(0, 100))
    axis.grid(visible=False)
    axis.invert_yaxis()
    add_legend(figure, "upper", *axis.get_legend_handles_labels())
    return figure


def share_draws(counts: Array, kinds: int) -> Array:
    """(draws,): the share of the first `kinds` verdicts, in per cent, in samples of cases."""
    drawn = item_counts(len(counts)) @ counts  # (draws, 3)
    return np.asarray(100 * drawn[:, :kinds].sum(axis=1) / drawn.sum(axis=1))


def _draw_interval(axis: Any, y: float, counts: Array, kinds: int, color: str) -> None:
    """The interval of the share of the verdicts that are drawn from the left."""
    share = 100 * counts[:, :kinds].sum() / counts.sum()
    low, high = interval(share_draws(counts, kinds))
    around = np.abs([[share - low], [high - share]])
    axis.errorbar([share], [y], xerr=around, fmt="|", color=color, elinewidth=1, capsize=2)

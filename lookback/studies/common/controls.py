"""A run and its control, item by item: the same candidates, scored with another image or none.

And what a scorer's picks are worth when it looks at that image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lookback.runs import Run
from lookback.runs.part import Part
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.scores.visual import gain
from lookback.signals import SIGNALS
from lookback.studies.common.base import Runs, StudyError, title
from lookback.studies.common.selection import (
    bootstrap_means,
    has_scores,
    in_order,
    interval,
    item_counts,
    outcome_of,
    percent,
    picks,
)


@dataclass(frozen=True, eq=False)
class Pair:
    """The items that have candidates in both.

    Attributes:
        run: with each item's own image.
        control: the same candidates, scored again.
        rows: the items' rows in the run's arrays.
        others: their rows in the control's.
        most: of how many candidates of an item, at most, it is: the first ones; None is all.
    """

    run: Run
    control: Run
    rows: NDArray[np.intp]
    others: NDArray[np.intp]
    most: int | None = None

    @property
    def n(self) -> int:
        """The most candidates that one of the items has here."""
        if self.run.steered:  # so many were begun, whatever is left of them
            return self.run.n
        largest = int(self.run.sizes[self.rows].max())
        return largest if self.most is None else min(self.most, largest)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """(items,): how many candidates each has here."""
        return np.minimum(self.run.sizes[self.rows], self.n)

    def has_scores(self, method: str) -> bool:
        """Whether both have what a method needs."""
        return all(has_scores(run, method, self.n) for run in (self.run, self.control))

    def scores(self, method: str) -> tuple[Array, Array]:
        """(items, n) twice: the scores in the run and in the control."""
        own = self.run.scores(method, self.n)[self.rows]
        return own, self.control.scores(method, self.n)[self.others]

    def quality(self) -> Array:
        """(items, n): of the candidates."""
        return self.run.quality(self.n)[self.rows]

    def texts(self) -> Array:
        """(items, n): a number per text, the same for the same text."""
        numbers: dict[str, int] = {}
        values = [numbers.setdefault(text, len(numbers)) for text in self.run.texts]
        return self.run.grid(values, self.n)[self.rows]

    @cached_property
    def candidates(self) -> NDArray[np.intp]:
        """Which of the run's candidates are among the first n of these items."""
        return np.flatnonzero(_of_items(self.run, self.rows, self.n))

    def signal(self, name: str) -> dict[str, Array]:
        """A signal of all tokens of `candidates`: with the "own" image, and with the "random" one.

        Raises:
            StudyError: the control split them into other tokens.
        """
        mine = _of_items(self.run, self.rows, self.n)
        theirs = _of_items(self.control, self.others, self.n)
        if not np.array_equal(self.run.lengths[mine], self.control.lengths[theirs]):
            raise StudyError(
                f"{self.control.path} has other numbers of tokens than {self.run.path}: it was "
                "scored with another tokenizer; make it again with the same model"
            )
        return {
            "own": self.run.signal(name)[np.repeat(mine, self.run.lengths)],
            self.control.image: self.control.signal(name)[np.repeat(theirs, self.control.lengths)],
        }

    def grid(self, values: Array) -> Array:
        """(items, n): a number for each of `candidates`."""
        full = np.full(len(self.run.index), np.nan)
        full[self.candidates] = values
        return self.run.grid(full, self.n)[self.rows]


def control_pairs(runs: Runs, image: str) -> list[Pair]:
    """The largest runs that have a control with that image, in the order of tables.

    Raises:
        StudyError: none has, or a control does not fit its run.
    """
    controls = {run.id: control for run, control in runs.with_control(image)}
    ordered = in_order([run for run in runs.largest if run.id in controls])
    return [match_items(run, controls[run.id], runs.budget(run)) for run in ordered]


def fewer_notes(pairs: list[Pair]) -> list[str]:
    """A note per control that lacks items of its run: numbers are then of fewer than elsewhere."""
    return [
        f"{title(pair.run)}, {pair.run.model}: of the {len(pair.rows)} of {len(pair.run.places)} "
        f"items that {pair.control.path.name} has too."
        for pair in pairs
        if len(pair.rows) < len(pair.run.places)
    ]


def match_items(run: Run, control: Run, n: int | None = None) -> Pair:
    """The items of a run and its control.

    Args:
        run: with each item's own image.
        control: of the same candidates.
        n: of how many candidates of an item; of all by default.

    Raises:
        StudyError: they share none, or the control has other candidates.
    """
    positions, rows, others = np.intersect1d(run.places, control.places, return_indices=True)
    if not len(positions):
        raise StudyError(f"{run.path} and its control {control.path} have no item in common")
    if _texts(run, rows) != _texts(control, others):
        raise StudyError(
            f"{control.path} has other candidates than {run.path}: make it again with `lookback "
            f"run --candidates {run.path} --image {control.image} --out DIR`"
        )
    return Pair(run, control, rows, others, n)


def same_picks(first: Array, second: Array, texts: Array | None = None) -> Array:
    """1 for each item of which two scorings pick the same candidate, else 0.

    Items of which one of them scores no candidate are left out.

    Args:
        first, second: (items, n), scores.
        texts: (items, n), as `Pair.texts`; to ask for the same text, not the same candidate.
    """
    scored = ~(np.isnan(first).all(axis=1) | np.isnan(second).all(axis=1))
    a, b = picks(first[scored]), picks(second[scored])
    if texts is None:
        return np.asarray(a == b, dtype=np.float64)
    rows, kept = np.arange(len(a)), texts[scored]
    return np.asarray(kept[rows, a] == kept[rows, b], dtype=np.float64)


def share_removed(original: float, replaced: float, random: float) -> float:
    """The share, in per cent, of a gain over random selection that is gone; NaN without a gain."""
    gain = original - random
    return 100 * (original - replaced) / gain if gain > 0 else float("nan")


def mean_agreement(same: Array) -> float:
    """The mean of what `same_picks` gives; NaN if it compared no item."""
    return float(same.mean()) if len(same) else float("nan")


def replacement_row(pair: Pair, method: str) -> dict[str, Any]:
    """The row of one method: agreement, outcomes with both images, what is removed."""
    own, other = pair.scores(method)
    quality, scorer = pair.quality(), get_scorer(method)
    original, replaced = (outcome_of(scorer, scores, quality) for scores in (own, other))
    floor = np.nanmean(quality, axis=1)
    random = percent(floor)
    low, high = interval(bootstrap_means(100 * (original - replaced)))
    return {
        "model": pair.run.model,
        "benchmark": title(pair.run),
        "N": pair.n,
        "method": method,
        "items": len(quality),
        "agreement": mean_agreement(same_picks(own, other)),
        "same_text": mean_agreement(same_picks(own, other, pair.texts())),
        "random": random,
        "original": percent(original),
        "replaced": percent(replaced),
        "drop": percent(original - replaced),
        "low": low,
        "high": high,
        "removed": share_removed(percent(original), percent(replaced), random),
        **_ends("random", floor),
        **_ends("original", original),
        **_ends("replaced", replaced),
    }


def _ends(name: str, values: Array) -> dict[str, float]:
    """The 95 % interval of an outcome in per cent, named after it."""
    low, high = interval(bootstrap_means(100 * values))
    return {f"{name}_low": low, f"{name}_high": high}


def _of_items(run: Run, rows: NDArray[np.intp], n: int) -> NDArray[np.bool_]:
    """(R,): which candidates of a run are among the first n of the items in some rows."""
    chosen = np.zeros(len(run.sizes), dtype=bool)
    chosen[rows] = True
    return np.asarray(np.repeat(chosen, run.sizes) & (run.index < n))


def _texts(run: Run, rows: NDArray[np.intp]) -> list[tuple[int, str]]:
    return [(int(run.index[i]), run.texts[i]) for i in np.flatnonzero(_of_items(run, rows, run.n))]


NAME = "visual_gain"


class WithGain(Part):
    """A run that has visual gains, by what its control says.

    Args:
        run: the run, or part of it.
        control: scores all of its candidates without an image.
    """

    def __init__(self, run: Run, control: Run) -> None:
        super().__init__(run, run.places)
        self.control = control
        self._scores = run._scores  # of the same candidates: nothing is computed twice

    @property
    def recorded(self) -> list[str]:
        """What was recorded, and this."""
        return sorted([*super().recorded, NAME])

    @cached_property
    def head(self) -> pa.Table:
        """As the whole has it."""
        return self._whole.head

    def signals(self, names: Sequence[str] = SIGNALS) -> dict[str, Array]:
        """As the whole has them."""
        return self._whole.signals(names)

    def _table_of(self, name: str) -> dict[int, dict[str, Any]]:
        return self._gains if name == NAME else self._whole._table_of(name)

    @cached_property
    def _gains(self) -> dict[int, dict[str, Any]]:
        """A row per item, as a scorer writes it."""
        pair = match_items(self, self.control)
        lengths = self.lengths[pair.candidates]
        of = np.repeat(np.arange(len(lengths)), lengths)
        with np.errstate(invalid="ignore"):  # an empty response has no mean, and no score
            seen, unseen = (
                np.bincount(of, values, len(lengths)) / lengths
                for values in pair.signal("log_prob").values()
            )
        scores = pair.grid(gain(seen, unseen, get_scorer(NAME).defaults["beta"]))
        return {
            place: {"item": place, "scores": row, "replies": [], "error": None}
            for place, row in zip(self.places[pair.rows].tolist(), scores.tolist(), strict=True)
        }


def with_gains(runs: Runs) -> Runs:
    """Return the same runs; those with a whole control without an image have visual gains too."""
    return Runs([_with_gain(runs, run) for run in runs], runs.notes, runs.ns)


def gain_notes(runs: Runs, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return notes that name the controls of visual gains, if a result's rows have such gains."""
    keys = ("method", "first", "second")
    if not any(NAME in map(row.get, keys) for row in rows):
        return []
    name = get_scorer(NAME).title
    return [
        f"{name} of {run.path.name}: from its control {run.control.path.name}."
        for run in runs
        if isinstance(run, WithGain)
    ]


def _with_gain(runs: Runs, run: Run) -> Run:
    if run.image != "own" or not run.n or any(n.partition("@")[0] == NAME for n in run.recorded):
        return run
    control = runs.control(run, "none")
    if control is None or not np.isin(run.places, control.places).all():
        return run
    return WithGain(run, control)


BINS = 50


def histograms(first: Array, second: Array) -> tuple[Array, Array, Array]:
    """The edges of bins of equal width over both, and the share of each sample in each bin."""
    edges = np.histogram_bin_edges(np.concatenate([first, second]), BINS)
    a, b = (np.histogram(values, edges)[0] / len(values) for values in (first, second))
    return edges, a, b


def overlap(first: Array, second: Array) -> float:
    """The area that the two histograms share: 1 if they are the same, 0 if they are apart."""
    _, a, b = histograms(first, second)
    return float(np.minimum(a, b).sum())


def ks_distance(first: Array, second: Array) -> float:
    """The Kolmogorov-Smirnov distance: the largest difference of the cumulative distributions."""
    everything = np.concatenate([first, second])
    a, b = (
        np.searchsorted(np.sort(values), everything, side="right") / len(values)
        for values in (first, second)
    )
    return float(np.abs(a - b).max())


def auc(values: Array, right: NDArray[np.bool_]) -> float:
    """The probability that a right one has the higher value than a wrong one; a tie counts half.

    NaN if there are no right ones or no wrong ones.
    """
    n_right = int(right.sum())
    n_wrong = len(right) - n_right
    if not n_right or not n_wrong:
        return float("nan")
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # from 1; equal values share their mean rank
    above = ranks[which][right].sum() - n_right * (n_right + 1) / 2
    return float(above / (n_right * n_wrong))


def bootstrap_aucs(
    values: Array, right: NDArray[np.bool_], items: NDArray[np.intp], count: int
) -> Array:
    """(draws,): the `auc` in bootstrap samples of items; samples that have none are left out.

    Args:
        values, right: as for `auc`.
        items: of which item each value is.
        count: how many items there are.
    """
    counts = item_counts(count)
    wins = np.zeros((count, count))  # of the right ones of an item over the wrong ones of another
    for item in np.unique(items[~right]):
        wrong = np.sort(values[~right & (items == item)])
        below = [np.searchsorted(wrong, values[right], side) for side in ("left", "right")]
        wins[:, item] = np.bincount(items[right], np.mean(below, axis=0), count)
    pairs = np.prod([counts @ np.bincount(items[w], minlength=count) for w in (right, ~right)], 0)
    won = ((counts @ wins) * counts).sum(axis=1)
    return np.asarray(won[pairs > 0] / pairs[pairs > 0])

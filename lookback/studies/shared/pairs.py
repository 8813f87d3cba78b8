"""A run and its control, item by item: the same candidates, scored with another image or none.

And what a scorer's picks are worth when it looks at that image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.studies.shared.base import Runs, StudyError, title
from lookback.studies.shared.methods import in_order
from lookback.studies.shared.selection import (
    bootstrap_means,
    has_scores,
    interval,
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

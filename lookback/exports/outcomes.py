"""How good each scorer's picks are: the numbers of `lookback study main`, item by item."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lookback.exports.entries import Entry
from lookback.exports.request import Request, Written
from lookback.runs import Run
from lookback.runs.part import Complete, items_with_quality
from lookback.scores.base import Scorer, get_scorer
from lookback.studies.shared.selection import outcome_of


@dataclass
class Tally:
    """How many items and candidates there were, and the outcomes of each scorer.

    Outcomes are of the items all of whose candidates have a quality.

    Attributes:
        scorers: those asked for, by name.
        known: the positions of these items.
        values: what was added, by scorer.
        items, failed, candidates: how many were added.
    """

    scorers: dict[str, Scorer]
    known: set[int]
    values: dict[str, list[float]] = field(default_factory=dict)
    items: int = 0
    failed: int = 0
    candidates: int = 0

    @classmethod
    def of(cls, request: Request) -> Tally:
        """Nothing counted yet."""
        scorers = {name: get_scorer(name) for name in request.scorers}
        return cls(scorers, places_with_quality(request.run), {name: [] for name in scorers})

    def add(self, entry: Entry) -> dict[str, float]:
        """Count an item; the outcome of each scorer on it, nothing where no quality is known."""
        self.items += 1
        self.failed += entry.item["error"] is not None
        self.candidates += len(entry.candidates)
        if entry.item["item"] not in self.known:
            return {}
        found = {name: outcome(scorer, entry) for name, scorer in self.scorers.items()}
        for name, value in found.items():
            self.values[name].append(value)
        return found

    def means(self) -> dict[str, float | None]:
        """The mean of each scorer's outcomes; None if no quality is known."""
        return {name: float(np.mean(v)) if v else None for name, v in self.values.items()}

    def written(self, images: int | None = None, notes: tuple[str, ...] = ()) -> Written:
        """What was written, if all that was added was."""
        return Written(self.items, self.failed, self.candidates, images, self.means(), notes)

    def stderr(self, scorer: str) -> float:
        """The standard error of its mean; 0 of one item, as Inspect has it."""
        values = self.values[scorer]
        return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def places_with_quality(run: Run) -> set[int]:
    """The positions of the items all of whose candidates, but for pruned ones, have a quality."""
    if not run.n:
        return set()
    return set(items_with_quality(Complete(run) if run.steered else run).places.tolist())


def outcome(scorer: Scorer, entry: Entry) -> float:
    """The quality of a scorer's pick, or its expectation where the scorer says so."""
    quality = _row([one["quality"] for one in entry.candidates])
    if scorer.needs == "truth" and not scorer.own:  # the best, even if it is an empty response
        return float(np.nanmax(quality))
    if scorer.expected is not None:
        scores = _row([one["scores"][scorer.name] for one in entry.candidates])
        return float(outcome_of(scorer, scores, quality)[0])
    pick = entry.pick(scorer.name)
    assert pick is not None  # an item whose quality is known has candidates
    return float(np.nan if pick["quality"] is None else pick["quality"])


def _row(values: list[float | None]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """(1, N), with NaN for what is not there."""
    return np.array([[np.nan if value is None else value for value in values]], dtype=np.float64)

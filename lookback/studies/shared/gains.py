"""Visual gain without a model: a run's log p, less that of its control without an image.

A control that scores every candidate of a run without the image holds all that the scorer would ask
a model for. So a run with such a control has these scores, as if they had been recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lookback.runs.part import Part
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.scores.looking import gain
from lookback.signals import SIGNALS

if TYPE_CHECKING:
    from lookback.runs import Run
    from lookback.studies.shared.base import Runs

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
        from lookback.studies.shared.pairs import match_items

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


def with_gains(runs: Runs) -> list[Run]:
    """The same runs; those with a whole control without an image have visual gains too."""
    return [_with_gain(runs, run) for run in runs]


def gain_notes(runs: Runs) -> list[str]:
    """From which controls they are, for a result that shows them."""
    title = get_scorer(NAME).title
    found = [run for run in runs if isinstance(run, WithGain)]
    return [
        f"{title} of {run.path.name}: from its control {run.control.path.name}." for run in found
    ]


def _with_gain(runs: Runs, run: Run) -> Run:
    if run.image != "own" or not run.n or any(n.partition("@")[0] == NAME for n in run.recorded):
        return run
    control = runs.control(run, "none")
    if control is None or not np.isin(run.places, control.places).all():
        return run
    return WithGain(run, control)

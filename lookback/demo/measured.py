"""How good each scorer's picks are on the whole tasks: measured on runs, kept beside this file.

measured.json is written by `make reproduce` (tools/measured.py), never by hand:

weights    the fingerprint of the embedded model that answered
n, items   answers per item, items per task
tasks      by name: `scorers`: {scorer: [per cent, low, high]}, the interval that of 95 %;
           `apart`: how many items the rule takes, and on how many of them LookBack is ahead
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "measured.json"
SHOWN = {
    "lookback": "LookBack",
    "self_certainty": "self-certainty",
    "mean_log_prob": "mean log p",
    "random": "random",
}
"""The scorers that are told, with the names that readers see."""


@dataclass(frozen=True)
class Measured:
    """The numbers of all tasks, and what the rule takes of one.

    Attributes:
        n: answers per item.
        items: how many items of each task.
        values: by task and scorer, its picks' mean quality in per cent with the 95 % interval.
        apart: how many of one task's items the rule takes, and on how many of them LookBack is
            ahead.
    """

    n: int
    items: int
    values: Mapping[str, Mapping[str, tuple[float, float, float]]]
    apart: tuple[int, int]

    def words(self) -> str:
        """What it is of: one sentence before the numbers."""
        return (
            f"How good the picks are on the whole: mean quality over {self.items} held-out items "
            f"of each task, {self.n} answers each, in per cent; ±: half of the 95 % interval."
        )

    def fairness(self) -> str:
        """Which way items go that the rule takes, so that one of them is not read as the rule."""
        taken, ahead = self.apart
        return (
            f"Of {self.items} items {taken} are such; LookBack is ahead on {ahead} of them, "
            f"self-certainty on {taken - ahead}."
        )

    def heads(self) -> list[str]:
        """The tasks, without what their names share."""
        return [task.removeprefix("scenes-") for task in self.values]

    def lines(self) -> list[tuple[str, list[str]]]:
        """Each scorer's name and its number on each task."""
        return [
            (name, [_number(*numbers[scorer]) for numbers in self.values.values()])
            for scorer, name in SHOWN.items()
        ]


def _number(mean: float, low: float, high: float) -> str:
    return f"{mean:.1f} ±{(high - low) / 2:.1f}"


def read_measured(task: str, weights: str | None, file: Path = FILE) -> Measured | str:
    """What was measured, or why there is no number to show.

    Args:
        task: the benchmark's name, whose items the rule takes.
        weights: the fingerprint of the model that answers now.
        file: where the numbers are.
    """
    data = json.loads(file.read_text(encoding="utf-8"))
    if data["weights"] != weights:
        return (
            f"How good the picks are on the whole was measured with other weights "
            f"({data['weights']}, these are {weights}): make reproduce"
        )
    values = {
        name: {scorer: tuple(numbers) for scorer, numbers in found["scorers"].items()}
        for name, found in data["tasks"].items()
    }
    return Measured(data["n"], data["items"], values, tuple(data["tasks"][task]["apart"]))

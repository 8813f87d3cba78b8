"""How good each scorer's picks are on a whole task: measured on runs, kept beside this file.

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
    """One task's numbers.

    Attributes:
        n: answers per item.
        items: how many items.
        values: by scorer, the mean quality of its picks in per cent, and its 95 % interval.
        apart: how many of the items the rule takes, and on how many of them LookBack is ahead.
    """

    n: int
    items: int
    values: Mapping[str, tuple[float, float, float]]
    apart: tuple[int, int]

    def words(self, task: str, measure: str) -> str:
        """What it is of: one sentence before the numbers."""
        return (
            f"How good the picks are on the whole: mean quality ({measure}) over {self.items} "
            f"held-out items of {task}, {self.n} answers each, per cent [95 % interval]:"
        )

    def fairness(self) -> str:
        """Which way items go that the rule takes, so that one of them is not read as the rule."""
        taken, ahead = self.apart
        return (
            f"Of {self.items} items {taken} are such; LookBack is ahead on {ahead} of them, "
            f"self-certainty on {taken - ahead}."
        )

    def lines(self) -> list[tuple[str, str]]:
        """Each scorer's name and its number."""
        return [
            (name, f"{mean:.1f} [{low:.1f}, {high:.1f}]")
            for name, (mean, low, high) in ((SHOWN[s], self.values[s]) for s in SHOWN)
        ]


def read_measured(task: str, weights: str | None, file: Path = FILE) -> Measured | str:
    """What was measured of a task, or why there is no number to show.

    Args:
        task: the benchmark's name.
        weights: the fingerprint of the model that answers now.
        file: where the numbers are.
    """
    data = json.loads(file.read_text(encoding="utf-8"))
    if data["weights"] != weights:
        return (
            f"How good the picks are on the whole task was measured with other weights "
            f"({data['weights']}, these are {weights}): make reproduce"
        )
    found = data["tasks"][task]
    values = {name: tuple(numbers) for name, numbers in found["scorers"].items()}
    return Measured(data["n"], data["items"], values, tuple(found["apart"]))

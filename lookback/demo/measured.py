"""How good each scorer's picks are on the whole tasks: measured on runs, kept beside this file.

measured.json is written by `make reproduce` (tools/measured.py), never by hand:

weights    the fingerprint of the embedded model that answered
n, items   answers per item, items per task
tasks      by name: `scorers`: {scorer: [per cent, low, high]}, the interval that of 95 %; `gain`:
           LookBack's lead over random selection, [points, low, high]; `apart`: how many items the
           rule takes, and on how many of them LookBack is ahead
leads      LookBack's lead over each, mean over the tasks: {scorer: [points, low, high]}

"greedy" among the scorers is one greedy answer, where the others pick one of n.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "measured.json"
Numbers = tuple[float, float, float]
"""A mean with its 95 % interval."""
SHOWN = {
    "lookback": "LookBack",
    "mean_log_prob": "mean log p",
    "consensus": "consensus",
    "greedy": "greedy answer",
    "self_certainty": "self-certainty",
    "random": "random",
}
"""What is compared, with the names that readers see."""


@dataclass(frozen=True)
class Measured:
    """The numbers of all tasks, and what the rule takes of one.

    Attributes:
        n: answers per item.
        items: how many items of each task.
        values: by task and scorer, its picks' mean quality in per cent.
        gains: by task, LookBack's lead over random selection in points.
        leads: by scorer, LookBack's lead over it in points, mean over the tasks.
        apart: how many of one task's items the rule takes, and on how many of them LookBack is
            ahead.
    """

    n: int
    items: int
    values: Mapping[str, Mapping[str, Numbers]]
    gains: Mapping[str, Numbers]
    leads: Mapping[str, Numbers]
    apart: tuple[int, int]

    def words(self) -> str:
        """What it is of: one sentence before the numbers."""
        return (
            f"Mean quality of the picks over {self.items} held-out items of each task, {self.n} "
            "answers each, in per cent; ± is half of the 95 % interval. Greedy answer: one answer "
            "at temperature 0, nothing is picked. Consensus: the answer that shares most words "
            "with the others."
        )

    def lead_lines(self) -> list[tuple[str, str]]:
        """Each other name, and LookBack's lead over it."""
        return [(SHOWN[scorer], _points(*lead)) for scorer, lead in self.leads.items()]

    def useless(self) -> list[str]:
        """A sentence per task on which LookBack has no clear lead over random selection."""
        return [
            f"No clear gain over random on {short(task)}: {_points(*gain)} points. To see one of "
            f"its items:\n  lookback demo --task {task}"
            for task, gain in self.gains.items()
            if gain[1] <= 0
        ]

    def fairness(self) -> str:
        """Which way items go that the rule takes, so that one of them is not read as the rule."""
        taken, ahead = self.apart
        return (
            f"{taken} of {self.items} items are like this: LookBack is ahead on {ahead} of them, "
            f"self-certainty on {taken - ahead}."
        )

    def heads(self) -> list[str]:
        """The tasks, without what their names share."""
        return [short(task) for task in self.values]

    def lines(self) -> list[tuple[str, list[str]]]:
        """Each scorer's name and its number on each task."""
        return [
            (name, [_number(*numbers[scorer]) for numbers in self.values.values()])
            for scorer, name in SHOWN.items()
        ]


def short(task: str) -> str:
    """A task's name without what all of them share."""
    return task.removeprefix("scenes-")


def _points(mean: float, low: float, high: float) -> str:
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


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
            f"The picks' quality over whole tasks was measured with other weights "
            f"({data['weights']}, these are {weights}): make reproduce"
        )
    tasks = data["tasks"]
    values = {name: found["scorers"] for name, found in tasks.items()}
    gains = {name: found["gain"] for name, found in tasks.items()}
    apart = tuple(tasks[task]["apart"])
    return Measured(data["n"], data["items"], values, gains, data["leads"], apart)

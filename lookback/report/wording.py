"""The words of findings: differences as far as their intervals tell, methods, lists."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from lookback.scores.base import SCORERS, get_scorer

FEWEST = 6
"""Items below which an interval is none: even if all of fewer agree, chance may do that (in 1 of 16
times or more, by a sign test)."""
NAMES = {
    "self_certainty": "self-certainty",
    "random": "random selection",
    "mean_log_prob": "mean log p",
    "sum_log_prob": "sum log p",
    "visual_lookback": "visual lookback",
    "visual_gain": "visual gain",
    "consensus": "consensus",
    "greedy": "greedy decoding",
}
"""Methods inside a sentence; others by their titles."""


class Difference(NamedTuple):
    """A number of points with its 95 % interval, of so many items."""

    value: float
    low: float
    high: float
    items: int

    @property
    def known(self) -> bool:
        """Whether it is a number."""
        return math.isfinite(self.value)

    @property
    def judged(self) -> bool:
        """Whether there is an interval to judge it by."""
        return self.items >= FEWEST and math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def sign(self) -> int:
        """1 if the interval, as printed, is above 0, -1 if below; 0 if it tells neither."""
        if not self.judged:
            return 0
        return int(round(self.low, 2) > 0) - int(round(self.high, 2) < 0)

    def __neg__(self) -> Difference:
        """The other way round."""
        return Difference(-self.value, -self.high, -self.low, self.items)

    def __str__(self) -> str:
        """`1.20 points [0.30, 2.10]`."""
        return f"{number_of(self.value)} points{self.interval}"

    @property
    def interval(self) -> str:
        """With a blank before it; empty if there is none."""
        return f" [{number_of(self.low)}, {number_of(self.high)}]" if self.judged else ""


def compare(by: Difference, other: str) -> str:
    """How something fares against another, as far as the interval of the difference tells."""
    if not by.judged:
        way = "above" if by.value > 0 else "below" if by.value < 0 else "from"
        return f"is {number_of(abs(by.value))} points {way} {other} ({why_unjudged(by)})"
    comma = "," if ", " in other else ""  # that ends what is said of the other
    if by.sign > 0:
        return f"leads {other}{comma} by {by}"
    if by.sign < 0:
        return f"loses to {other}{comma} by {-by}"
    return f"cannot be told apart from {other} ({by})"


def name_of(method: str) -> str:
    """What a sentence calls a method."""
    known = method in SCORERS.names()
    return NAMES.get(method, get_scorer(method).title if known else method)


def number_of(value: float) -> str:
    """With two places; no minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def why_unjudged(by: Difference) -> str:
    """Why there is no interval."""
    if by.items >= FEWEST:
        return "no interval"
    return f"{by.items} item{'s' * (by.items != 1)}: too few for an interval"


def join(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing of nothing."""
    found = list(parts)
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)

"""What the studies found, in sentences that say no more than their intervals allow.

A sentence is made of a study's rows alone. Of a difference it says "leads" or "loses" only if the
95 % interval leaves out 0, "cannot be told apart" if it does not, and of one without an interval
nothing but its size. What a study could not do, or what is NaN, has no sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lookback.scores.base import SCORERS, get_scorer
from lookback.studies import Result
from lookback.studies.shared.budgets import AVERAGE, budget_words
from lookback.studies.shared.methods import ceilings

FEWEST = 6
"""Items below which an interval is none: even if all of fewer agree, chance may do that (in 1 of 16
times or more, by a sign test)."""
NAMES = {
    "self_certainty": "self-certainty",
    "random": "random selection",
    "mean_log_prob": "mean log p",
    "sum_log_prob": "sum log p",
    "visual_lookback": "visual lookback",
}
"""Methods inside a sentence; others by their titles."""
Row = Mapping[str, Any]


class Finding(NamedTuple):
    """A sentence or two, and the study that they are read off."""

    text: str
    study: str


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
        return f"{_number(self.value)} points{self.interval}"

    @property
    def interval(self) -> str:
        """With a blank before it; empty if there is none."""
        return f" [{_number(self.low)}, {_number(self.high)}]" if self.judged else ""


def find(results: Mapping[str, Result | str]) -> list[Finding]:
    """The findings of a report, in its order; several models have theirs one after another.

    Args:
        results: what each study gave, by its name; a string says why it could not be done.
    """
    rows = {name: r.rows for name, r in results.items() if not isinstance(r, str)}
    models = list(dict.fromkeys(r["model"] for here in rows.values() for r in here if "model" in r))
    found = []
    for model in models:
        mine = {n: [r for r in here if r.get("model") == model] for n, here in rows.items()}
        prefix = f"{model}: " if len(models) > 1 else ""
        for study, sentences in SENTENCES:
            found += [Finding(prefix + _capital(text), study) for text in sentences(mine)]
    return found


def compare(by: Difference, other: str) -> str:
    """How something fares against another, as far as the interval of the difference tells."""
    if not by.judged:
        way = "above" if by.value > 0 else "below" if by.value < 0 else "from"
        return f"is {_number(abs(by.value))} points {way} {other} ({_unjudged(by)})"
    comma = "," if ", " in other else ""  # that ends what is said of the other
    if by.sign > 0:
        return f"leads {other}{comma} by {by}"
    if by.sign < 0:
        return f"loses to {other}{comma} by {-by}"
    return f"cannot be told apart from {other} ({by})"


def leader_sentences(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Who is highest on average, and by how much over the next."""
    averages, items = _averages(rows.get("main", ()))
    if len(averages) < 2:
        return []
    first, second = _ranked(averages)[:2]
    by = _difference(averages[second], "behind", items)
    if not by.known:
        return []
    best = "best" if by.sign > 0 else "highest"
    value = _number(averages[first]["value"])
    text = (
        f"{name_of(first)} has the {best} outcome of {len(averages)} methods, {value} per cent "
        f"{_extent(rows['main'])}. It {compare(by, f'{name_of(second)}, which comes next')}."
    )
    if len(averages) > 2 and by.judged:
        text += (
            " Each interval is of two methods, and not corrected for the choice among "
            f"{len(averages)}."
        )
    return [text]


def lookback_sentences(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """How LookBack fares against the leader, self-certainty and random selection."""
    averages, items = _averages(rows.get("main", ()))
    if "lookback" not in averages:
        return []
    first, *rest = _ranked(averages)
    said = {first, rest[0]} if rest else {first}
    parts = []
    for rival in dict.fromkeys((first, "self_certainty", "random")):
        if rival not in averages or rival == "lookback" or {rival, "lookback"} == said:
            continue
        by = _difference(averages[rival], "lead", items)
        if by.known:
            parts.append(compare(by, name_of(rival)))
    return [f"{name_of('lookback')} {_list(parts)}."] if parts else []


def random_image_sentences(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """What a random image takes from LookBack, and from the leader if that is another."""
    here, averages = rows.get("random-image", ()), _averages(rows.get("main", ()))[0]
    texts = []
    for method in dict.fromkeys(("lookback", *_ranked(averages)[:1])):
        mine = [row for row in here if row["method"] == method and math.isfinite(row["drop"])]
        if mine:
            texts.append(f"{name_of(method)} {_list(map(_cost, mine))}")
    return [f"scored with a random image, {'; '.join(texts)}."] if texts else []


def _cost(row: Row) -> str:
    """What a random image takes from a method on one benchmark."""
    by = Difference(row["drop"], row["low"], row["high"], row["items"])
    where = f"on {row['benchmark']}"
    if by.sign > 0:
        above = _number(row["original"] - row["random"])
        return f"loses {by} {where} (it was {above} above random selection)"
    if by.sign < 0:
        return f"gains {-by} {where}"
    return f"{compare(-by, 'what it was')} {where}"


def no_image_sentences(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """How often a pick changes when the image is taken away."""
    here = [row for row in rows.get("image-sensitivity", ()) if row["second"] == "without image"]
    here = [row for row in here if math.isfinite(row["agreement"])]
    ours, others = (
        _list(f"{_changed(row)} on {row['benchmark']}" for row in here if row["first"] == method)
        for method in ("lookback", "self_certainty")
    )
    if not ours:
        return []
    beside = f"; {name_of('self_certainty')}'s for {others}" if others else ""
    chances = _list(dict.fromkeys(f"{100 * (1 - row['chance']):.0f} %" for row in here))
    text = f"without an image {name_of('lookback')}'s pick changes for this share of the items: "
    return [f"{text}{ours}{beside}; a pick by lot would for {chances}."]


def _changed(row: Row) -> str:
    """The share of items whose pick changes, with its interval if there is one."""
    share, low, high = (100 * (1 - row[key]) for key in ("agreement", "high", "low"))
    judged = Difference(share, low, high, row["items"]).judged
    return f"{share:.0f} %" + (f" [{low:.0f}, {high:.0f}]" if judged else "")


def factor_sentences(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Which of LookBack's two factors carries its outcome, benchmark by benchmark."""
    outcomes = [row for row in rows.get("decomposition", ()) if row["measure"] == "outcome"]
    parts = []
    for benchmark in dict.fromkeys(row["benchmark"] for row in outcomes):
        by_swap = {row["what"]: row for row in outcomes if row["benchmark"] == benchmark}
        log_p, a = (
            _difference(by_swap[what], "drop", by_swap[what]["items"]) for what in ("log p", "A")
        )
        more = _difference(by_swap["log p"], "over_a", by_swap["log p"]["items"])
        if log_p.known and a.known:
            costs = f"a random image for log p costs {log_p}, for A {a}"
            parts.append(f"on {benchmark} {_carrier(log_p, a, more)} ({costs})")
    return [f"which factor carries {name_of('lookback')}: {_list(parts)}."] if parts else []


def _carrier(log_p: Difference, a: Difference, more: Difference) -> str:
    """What the losses without each factor, and the interval of their difference, allow to say."""
    if not (log_p.judged and a.judged and more.judged):
        return f"that cannot be told, {_unjudged(more)}"
    if log_p.sign > 0 and more.sign > 0:
        return "log p carries more than A"
    if a.sign > 0 and more.sign < 0:
        return "A carries more than log p"
    if log_p.sign > 0 or a.sign > 0:
        return "log p and A cannot be told apart"
    return "neither loss can be told from none"


def time_sentences(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """How long scoring took; numbers alone."""
    here = [row for row in rows.get("overhead", ()) if math.isfinite(row["ms"])]
    ours = [row for row in here if row["scorer"] == "lookback"]
    if not ours:
        return []
    text = f"scoring a response with {name_of('lookback')} took {_range(ours)} ms after generation"
    recorded = [row for row in here if row["source"] == "recorded"]
    if recorded:
        dearest = max(recorded, key=lambda row: row["ms"])["scorer"]
        base, _, count = dearest.partition("@")
        name = name_of(base) + (f" at N = {count}" if count else "")
        took = _range([row for row in recorded if row["scorer"] == dearest])
        text += f"; with {name}, the dearest that was recorded, {took} ms"
    return [f"{text}."]


SENTENCES: tuple[tuple[str, Callable[[Mapping[str, Sequence[Row]]], list[str]]], ...] = (
    ("main", leader_sentences),
    ("main", lookback_sentences),
    ("random-image", random_image_sentences),
    ("image-sensitivity", no_image_sentences),
    ("decomposition", factor_sentences),
    ("overhead", time_sentences),
)
"""In the order of the report: which study each is of, and what makes it of a model's rows."""


def name_of(method: str) -> str:
    """What a sentence calls a method."""
    known = method in SCORERS.names()
    return NAMES.get(method, get_scorer(method).title if known else method)


def _averages(rows: Sequence[Row]) -> tuple[dict[str, Row], int]:
    """By method its mean over all benchmarks and N; and the items of the smallest benchmark.

    Methods that know the truth are no rivals.
    """
    items = min((row["items"] for row in rows if row["benchmark"] != AVERAGE), default=0)
    found = {
        row["method"]: row
        for row in rows
        if (row["benchmark"], row["N"]) == (AVERAGE, 0) and math.isfinite(row["value"])
    }
    return {method: row for method, row in found.items() if method not in ceilings()}, items


def _ranked(averages: Mapping[str, Row]) -> list[str]:
    """From the highest; the leader that the rows name comes first among equals."""

    def key(method: str) -> tuple[float, bool]:
        return -averages[method]["value"], averages[method]["leader"] != method

    return sorted(averages, key=key)


def _extent(rows: Sequence[Row]) -> str:
    """Over what the outcomes of the main study are averages."""
    setups = [row for row in rows if row["benchmark"] != AVERAGE]
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in setups))
    where = f"on {benchmarks[0]}" if len(benchmarks) == 1 else f"over {len(benchmarks)} benchmarks"
    return f"{where} at N = {budget_words({row['N'] for row in setups})}"


def _difference(row: Row, name: str, items: int) -> Difference:
    return Difference(row[name], row[f"{name}_low"], row[f"{name}_high"], items)


def _range(rows: Sequence[Row]) -> str:
    """The milliseconds of some rows: one number, or from the least to the most."""
    least, most = (f"{pick(row['ms'] for row in rows):.2g}" for pick in (min, max))
    return least if least == most else f"{least} to {most}"


def _number(value: float) -> str:
    """With two places; no minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def _unjudged(by: Difference) -> str:
    """Why there is no interval."""
    if by.items >= FEWEST:
        return "no interval"
    return f"{by.items} item{'s' * (by.items != 1)}: too few for an interval"


def _list(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`; nothing of nothing."""
    found = list(parts)
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

"""What the studies found, in sentences that say no more than their intervals allow.

A sentence is made of a study's rows alone. Of a difference it says "leads" or "loses" only if the
95 % interval leaves out 0, "cannot be told apart" if it does not, and of one without an interval
nothing but its size. What a study could not do, or what is NaN, has no sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lookback.report.wording import Difference, compare, join, name_of, number_of, why_unjudged
from lookback.studies import Result
from lookback.studies.common.budgets import AVERAGE, budget_words
from lookback.studies.common.selection import GREEDY, ceilings

MANY = 3
"""Benchmarks from which on a sentence names the ends alone."""
CHANCE = 0.025
"""Of differences that are none, the share whose 95 % interval lies above 0."""
Row = Mapping[str, Any]


class Finding(NamedTuple):
    """A sentence or two, and the study that they are read off."""

    text: str
    study: str


def find(results: Mapping[str, Result | str]) -> list[Finding]:
    """The findings of a report, in its order; several models have theirs one after another.

    Args:
        results: what each study gave, by its name; a string says why it could not be done.
    """
    read = {study for study, _ in SENTENCES}  # others, as users' own, may call anything a model
    rows = {n: r.rows for n, r in results.items() if n in read and not isinstance(r, str)}
    models = list(dict.fromkeys(r["model"] for here in rows.values() for r in here if "model" in r))
    found = []
    for model in models:
        mine = {n: [r for r in here if r.get("model") == model] for n, here in rows.items()}
        prefix = f"{model}: " if len(models) > 1 else ""
        for study, sentences in SENTENCES:
            found += [Finding(prefix + _capital(text), study) for text in sentences(mine)]
    return found


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
    value = number_of(averages[first]["value"])
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
    """How LookBack fares against the leader and what everybody would compare it with."""
    averages, items = _averages(rows.get("main", ()))
    if "lookback" not in averages:
        return []
    first, *rest = _ranked(averages)
    said = {first, rest[0]} if rest else {first}
    parts = []
    for rival in dict.fromkeys((first, "mean_log_prob", GREEDY, "self_certainty", "random")):
        if rival not in averages or rival == "lookback" or {rival, "lookback"} == said:
            continue
        by = _difference(averages[rival], "lead", items)
        if by.known:
            parts.append(compare(by, name_of(rival)))
    return [f"{name_of('lookback')} {join(parts)}."] if parts else []


def random_image_sentences(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """What a random image takes from LookBack, and from the leader if that is another."""
    here, averages = rows.get("random-image", ()), _averages(rows.get("main", ()))[0]
    here = [row for row in here if math.isfinite(row["drop"])]
    texts = []
    for method in dict.fromkeys(("lookback", *_ranked(averages)[:1])):
        mine = [row for row in here if row["method"] == method]
        if mine:
            texts.append(f"{name_of(method)} {join(_costs(mine))}")
    return [f"scored with a random image at {_budgets(here)}, {'; '.join(texts)}."] if texts else []


def _costs(rows: Sequence[Row]) -> list[str]:
    """What a random image takes from a method, benchmark by benchmark; many losses together."""
    losses = [row for row in rows if _drop(row).sign > 0]
    if len(losses) < MANY:
        return [_cost(row) for row in rows]
    least, most = _ends(losses, "drop")
    ends = f"from {_drop(least)} on {least['benchmark']} to {_drop(most)} on {most['benchmark']}"
    others = [_cost(row) for row in rows if row not in losses]
    return [f"loses {ends} on {len(losses)} of {len(rows)} benchmarks", *others]


def _drop(row: Row) -> Difference:
    return Difference(row["drop"], row["low"], row["high"], row["items"])


def _cost(row: Row) -> str:
    """What a random image takes from a method on one benchmark."""
    by, where = _drop(row), f"on {row['benchmark']}"
    if by.sign > 0:
        above = number_of(row["original"] - row["random"])
        return f"loses {by} {where} (it was {above} above random selection)"
    if by.sign < 0:
        return f"gains {-by} {where}"
    return f"{compare(-by, 'what it was')} {where}"


def no_image_sentences(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """How often a pick changes when the image is taken away."""
    here = [row for row in rows.get("image-sensitivity", ()) if row["second"] == "without image"]
    here = [row for row in here if math.isfinite(row["agreement"])]
    ours, others = (
        _shares([row for row in here if row["first"] == method])
        for method in ("lookback", "self_certainty")
    )
    if not ours:
        return []
    beside = f"; {name_of('self_certainty')}'s for {others}" if others else ""
    chances = join(dict.fromkeys(f"{100 * (1 - row['chance']):.0f} %" for row in here))
    text = (
        f"without an image {name_of('lookback')}'s pick at {_budgets(here)} changes for this share"
    )
    return [f"{text} of the items: {ours}{beside}; a pick by lot would for {chances}."]


def _shares(rows: Sequence[Row]) -> str:
    """The share of each benchmark; of many the ends."""
    if len(rows) < MANY:
        return join(f"{_changed(row)} on {row['benchmark']}" for row in rows)
    most, least = _ends(rows, "agreement")
    first, last = (f"{_changed(row)} on {row['benchmark']}" for row in (least, most))
    return f"from {first} to {last}"


def _changed(row: Row) -> str:
    """The share of items whose pick changes, with its interval if there is one."""
    share, low, high = (100 * (1 - row[key]) for key in ("agreement", "high", "low"))
    judged = Difference(share, low, high, row["items"]).judged
    return f"{share:.0f} %" + (f" [{low:.0f}, {high:.0f}]" if judged else "")


def factor_sentences(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Which of LookBack's two factors carries its outcome, and on which benchmarks."""
    outcomes = [row for row in rows.get("decomposition", ()) if row["measure"] == "outcome"]
    found: dict[str, list[tuple[str, Difference, Difference]]] = {}
    for benchmark in dict.fromkeys(row["benchmark"] for row in outcomes):
        by_swap = {row["what"]: row for row in outcomes if row["benchmark"] == benchmark}
        first, second = (by_swap[what] for what in ("log p", "A"))
        log_p, a = (_difference(row, "drop", row["items"]) for row in (first, second))
        if log_p.known and a.known:
            told = _carrier(log_p, a, _difference(first, "over_a", first["items"]))
            found.setdefault(told, []).append((benchmark, log_p, a))
    parts = [f"{told} {_where(here)}" for told, here in found.items()]
    if not parts:
        return []
    return [f"of {name_of('lookback')}'s two factors, at {_budgets(outcomes)}, {'; '.join(parts)}."]


def _where(found: Sequence[tuple[str, Difference, Difference]]) -> str:
    """On which benchmarks, and what a random image for each factor costs there."""
    if len(found) < MANY:
        return join(
            f"on {name} (a random image for log p costs {log_p}, for A {a})"
            for name, log_p, a in found
        )
    ends = (
        f"{number_of(min(d.value for d in costs))} to {number_of(max(d.value for d in costs))}"
        for costs in zip(*(pair[1:] for pair in found), strict=True)
    )
    costs = "a random image for log p costs {} points, for A {}".format(*ends)
    return f"on {join(name for name, *_ in found)} ({costs})"


def _carrier(log_p: Difference, a: Difference, more: Difference) -> str:
    """What the losses without each factor, and the interval of their difference, allow to say."""
    if not (log_p.judged and a.judged and more.judged):
        return f"neither can be judged ({why_unjudged(more)})"
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


def pair_sentences(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """How many pairs of scorers add to the better of the two alone, and which adds most."""
    here = rows.get("combine", ())
    items = min((row["items"] for row in here if row["benchmark"] != AVERAGE), default=0)
    averages = [row for row in here if row["benchmark"] == AVERAGE] or here
    n = max((row["N"] for row in averages), default=0)
    pairs = [row for row in averages if row["N"] == n]
    gains = [_difference(row, "mix_gain", items) for row in pairs]
    # Several benchmarks of which no pair has all: they have no average to tell of.
    if len(pairs) < 2 or len({row["benchmark"] for row in pairs}) > 1 or not gains[0].judged:
        return []
    most, row = max(zip(gains, pairs, strict=True), key=lambda one: one[0].value)
    best = f"{name_of(row['first'])} with {name_of(row['second'])} ({most})"
    text = f"of {len(pairs)} pairs of scorers, each mixed as other items like it best, at N = {n}"
    adding = sum(gain.sign > 0 for gain in gains)
    if not adding:
        return [f"{text} none adds to the better of the two alone; highest is {best}."]
    verb = "adds" if adding == 1 else "add"
    chance = f"of so many, chance lets about {number_of(CHANCE * len(pairs))} seem to"
    return [f"{text} {adding} {verb} to the better of the two alone, most {best}; {chance}."]


SENTENCES: tuple[tuple[str, Callable[[Mapping[str, Sequence[Row]]], list[str]]], ...] = (
    ("main", leader_sentences),
    ("main", lookback_sentences),
    ("random-image", random_image_sentences),
    ("image-sensitivity", no_image_sentences),
    ("decomposition", factor_sentences),
    ("combine", pair_sentences),
    ("overhead", time_sentences),
)
"""In the order of the report: which study each is of, and what makes it of a model's rows."""


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
    return f"{where} at {_budgets(setups)}"


def _budgets(rows: Sequence[Row]) -> str:
    """Of which N some rows are: sentences of several N would else seem to contradict each other."""
    return f"N = {budget_words({row['N'] for row in rows})}"


def _difference(row: Row, name: str, items: int) -> Difference:
    return Difference(row[name], row[f"{name}_low"], row[f"{name}_high"], items)


def _ends(rows: Sequence[Row], name: str) -> tuple[Row, Row]:
    """The rows with the least and the most of something."""
    ordered = sorted(rows, key=lambda row: row[name])
    return ordered[0], ordered[-1]


def _range(rows: Sequence[Row]) -> str:
    """The milliseconds of some rows: one number, or from the least to the most."""
    least, most = (f"{pick(row['ms'] for row in rows):.2g}" for pick in (min, max))
    return least if least == most else f"{least} to {most}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

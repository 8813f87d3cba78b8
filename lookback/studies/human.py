"""tab:appendix_human: what people say of the cases on which two scorers disagree.

Of votes, not of runs: `lookback study human VOTES...`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lookback.annotation.cases import Key
from lookback.annotation.votes import Vote
from lookback.scores.formula import Array
from lookback.studies.common.base import Result
from lookback.studies.common.tables import Table
from lookback.studies.common.votes import (
    NO_VERDICT,
    VERDICTS,
    alpha_interval,
    fleiss_kappa,
    has_verdict,
    kappa_interval,
    krippendorff_alpha,
    read_ballots,
    sign_test,
    verdict,
    verdict_bars,
    verdict_counts,
)

ABOUT = "What people say of the disagreements: the paper's table, agreement, raters; of votes."
PAPER = "tab:appendix_human"
FEW = 3
"""Raters per case below which agreement says little."""


def human(paths: Sequence[str]) -> Result:
    """What people say of the cases.

    Args:
        paths: folders that `lookback annotate` served, their votes.sqlite, or JSON lines that the
            page saved.

    Raises:
        StudyError: votes or key are missing, or do not belong together.
    """
    key, votes = read_ballots(paths)
    rows = case_rows(key, votes)
    tables = [_outcome(key, rows, votes), _agreement(rows), _raters(key, votes)]
    return Result(rows, tables, _figure(key, rows), _notes(key, rows, votes))


def case_rows(key: Key, votes: Sequence[Vote]) -> list[dict[str, Any]]:
    """A row per case of the key: its votes of each kind, their majority, the measure's verdict.

    The majority is that of the votes that are no tie, as in the paper; equal numbers are a tie.
    """
    rows = []
    for place, case in sorted(key.cases.items()):
        here = [vote_for(key, vote) for vote in votes if (vote.set, vote.case) == place]
        counts = [here.count(kind) for kind in VERDICTS]
        majority = verdict(counts[0], counts[2]) if here else NO_VERDICT
        swap = case.scorers[0] != key.first.name
        pair = [np.nan if q is None else float(q) for q in case.quality]
        first, second = pair[swap], pair[not swap]
        row: dict[str, Any] = {"set": case.set, "case": case.case, "id": case.id}
        row |= dict(zip(VERDICTS, counts, strict=True))
        row |= {"votes": len(here), "majority": majority}
        row |= {"first_quality": first, "second_quality": second}
        rows.append(row | {"verdict": verdict(first, second)})
    return rows


def vote_for(key: Key, vote: Vote) -> str:
    """Whose pick a vote prefers: "first", "tie" or "second"."""
    if vote.answer is None:
        return VERDICTS[1]
    scorer = key.cases[vote.set, vote.case].scorers[vote.answer]
    return VERDICTS[0] if scorer == key.first.name else VERDICTS[2]


def _outcome(key: Key, rows: list[dict[str, Any]], votes: Sequence[Vote]) -> Table:
    """The paper's table."""
    lines = [["Automatic", *verdict_counts(rows)]]
    lines.append(["Human (per judgment)", *_count(vote_for(key, vote) for vote in votes)])
    lines.append(["Human (per sample)", *_count(row["majority"] for row in rows if row["votes"])])
    header = [("", name) for name in ("Evaluation", key.first.title, "Tie", key.second.title)]
    caption = (
        f"Whose pick is better: {key.first.title} or {key.second.title}, where they differ; "
        f"{key.benchmark}, {key.model}, N={key.n}."
    )
    return Table(header, lines, caption, PAPER)


def _count(verdicts: Any) -> list[str]:
    return verdict_counts([{"verdict": value} for value in verdicts])


class Agreement(NamedTuple):
    """How far the raters of some cases agree: each coefficient with the ends of its interval.

    Attributes:
        kappa: Fleiss', of the cases that have `size` votes.
        alpha: Krippendorff's, of all with two votes or more.
        size: the number of votes that most cases have.
        even: how many cases have it.
    """

    kappa: tuple[float, float, float]
    alpha: tuple[float, float, float]
    size: int
    even: int


def agreement(counts: Array) -> Agreement:
    """Of (cases, 3) votes; NaN where a coefficient is not defined."""
    none = (np.nan, np.nan, np.nan)
    totals = counts.sum(axis=1)
    sizes = [int(total) for total in totals if total >= 2]
    if not sizes:
        return Agreement(none, none, 0, 0)
    size = max(set(sizes), key=lambda votes: (sizes.count(votes), votes))
    even, paired = counts[totals == size], counts[totals >= 2]
    kappa = float(fleiss_kappa(even)), *kappa_interval(even)
    alpha = float(krippendorff_alpha(paired)), *alpha_interval(paired)
    return Agreement(kappa, alpha, size, len(even))


def _agreement(rows: list[dict[str, Any]]) -> Table:
    """A line per set, and one for all."""
    sets = sorted({row["set"] for row in rows})
    groups = [(f"Set {s}", [row for row in rows if row["set"] == s]) for s in sets]
    lines = []
    for name, here in groups + ([("All", rows)] if len(sets) > 1 else []):
        result = agreement(_votes(here))
        judged = sum(row["votes"] > 0 for row in here)
        votes = sum(row["votes"] for row in here)
        even = f"{result.even} x {result.size}" if result.even else "-"
        numbers = _with_interval(*result.kappa), _with_interval(*result.alpha)
        lines.append([name, f"{judged} of {len(here)}", str(votes), even, *numbers])
    names = ("Set", "Judged", "Votes", "κ over", "κ", "α")
    caption = (
        "Agreement of the raters: Fleiss' κ (over so many cases x votes) and Krippendorff's α, "
        "with 95 % intervals over cases."
    )
    return Table([("", name) for name in names], lines, caption)


def _votes(rows: list[dict[str, Any]]) -> Array:
    """(cases, 3)."""
    return np.array([[row[kind] for kind in VERDICTS] for row in rows], dtype=np.float64)


def _with_interval(value: float, low: float, high: float) -> str:
    if np.isnan(value):
        return "-"
    # Adding 0 to what is rounded makes of -0.0 a plain 0.
    ends = "" if np.isnan(low) else f" [{round(low, 2) + 0:.2f}, {round(high, 2) + 0:.2f}]"
    return f"{round(value, 3) + 0:.3f}{ends}"


def _raters(key: Key, votes: Sequence[Vote]) -> Table:
    """A line per rater and set: whom they prefer, how often the side called A, and with whom."""
    lines = []
    for set_, rater in sorted({(vote.set, vote.rater) for vote in votes}):
        mine = [vote for vote in votes if (vote.rater, vote.set) == (rater, set_)]
        others = [vote for vote in votes if vote.rater != rater]
        majority = {(r["set"], r["case"]): r["majority"] for r in case_rows(key, others)}
        shared = [vote for vote in mine if majority[vote.set, vote.case] != NO_VERDICT]
        same = sum(vote_for(key, vote) == majority[vote.set, vote.case] for vote in shared)
        chosen = [vote.choice for vote in mine if vote.choice != "tie"]
        liked = [vote_for(key, vote) for vote in mine]
        counts = [str(liked.count(kind)) for kind in VERDICTS]
        sides = f"{chosen.count('A')} of {len(chosen)}"
        lines.append([rater, str(set_), str(len(mine)), *counts, f"{same} of {len(shared)}", sides])
    titles = (key.first.title, "Tie", key.second.title)
    names = ("Rater", "Set", "Votes", *titles, "Majority", "Side A")
    caption = (
        "The raters: whom they prefer, how often they are with the majority of the others, and how "
        "often with the side called A (of votes that are no tie)."
    )
    return Table([("", name) for name in names], lines, caption)


def _notes(key: Key, rows: list[dict[str, Any]], votes: Sequence[Vote]) -> list[str]:
    judged = [row for row in rows if row["votes"]]
    wins = [sum(row["majority"] == kind for row in judged) for kind in VERDICTS]
    p = sign_test(wins[0], wins[2])
    notes = [
        f"Sign test over samples: {key.first.title} {wins[0]}, {key.second.title} {wins[2]} "
        f"({wins[1]} ties apart), p = {p:.3g}, two-sided and exact. Single judgments are not "
        "tested: those of one case, or of one rater, are not independent.",
        "Per sample: the side with more of the votes that are no tie; as many on both is a tie.",
        "Automatic: which text has the higher quality by the benchmark's measure.",
        "κ and α are 1 for perfect agreement, 0 for chance, over the three choices. Intervals are "
        "from 2,000 bootstrap samples of cases: they say how sure the number is for these raters, "
        "not how other raters would agree.",
    ]
    notes.append(
        "Whiskers above a bar are of the first one's share, those below of the second one's: 95 %, "
        "from bootstrap samples of cases, with all votes on each."
    )
    unjudged = sum(not has_verdict(row) for row in rows)
    if unjudged:
        notes.append(f"{unjudged} cases have no quality and are not counted in the first line.")
    return notes + _shortcomings(rows, judged, votes)


def _shortcomings(
    rows: list[dict[str, Any]], judged: list[dict[str, Any]], votes: Sequence[Vote]
) -> list[str]:
    """What a reader must know of these votes."""
    notes = []
    if len(judged) < len(rows):
        missing = len(rows) - len(judged)
        notes.append(f"{missing} of {len(rows)} cases have no vote: the lines of people lack them.")
    for set_ in sorted({row["set"] for row in judged}):
        here = [row["votes"] for row in judged if row["set"] == set_]
        if max(here) == 1:
            notes.append(f"Set {set_}: no case has a second vote, so agreement is not known.")
        elif max(here) < FEW:
            notes.append(f"Set {set_}: {max(here)} votes per case are few: κ and α say little.")
        if min(here) < max(here):
            notes.append(
                f"Set {set_}: cases have from {min(here)} to {max(here)} votes. α takes all with "
                "two or more, κ those with the number of votes that most cases have."
            )
    raters = sorted({vote.rater for vote in votes})
    both = [r for r in raters if len({vote.set for vote in votes if vote.rater == r}) > 1]
    if both:
        notes.append(f"In more than one set: {', '.join(both)}; the paper's raters are in one.")
    return notes


def _figure(key: Key, rows: list[dict[str, Any]]) -> Any:
    """The table's three lines as bars."""
    judged = [row for row in rows if row["votes"]]
    known = [row for row in rows if has_verdict(row)]
    counts = _votes(judged)
    groups = {
        f"Automatic (n={len(known)})": _one_hot(row["verdict"] for row in known),
        f"Per judgment (n={int(counts.sum())})": counts,
        f"Per sample (n={len(judged)})": _one_hot(row["majority"] for row in judged),
    }
    shown = {name: array for name, array in groups.items() if len(array)}
    return verdict_bars(shown, key.first, key.second, "per cent")


def _one_hot(verdicts: Any) -> Array:
    return np.array([[value == kind for kind in VERDICTS] for value in verdicts], dtype=np.float64)

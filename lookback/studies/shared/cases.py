"""Items of which two scorers pick different texts, drawn for people to judge."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.studies.shared.base import title
from lookback.studies.shared.selection import picks

VERDICTS = ("first", "tie", "second")
"""Whose pick the benchmark's own measure prefers."""
NO_VERDICT = "-"
"""Where the measure tells nothing of one of the picks."""


def has_verdict(row: dict[str, Any]) -> bool:
    """Whether the benchmark's own measure compares the picks."""
    return bool(row["verdict"] != NO_VERDICT)


def verdict_counts(rows: list[dict[str, Any]]) -> list[str]:
    """How often the first pick is better, neither, the second: numbers and per cent."""
    judged = [row for row in rows if has_verdict(row)]
    if rows and not judged:
        return [NO_VERDICT] * len(VERDICTS)
    counts = [sum(row["verdict"] == verdict for row in judged) for verdict in VERDICTS]
    return [f"{c} ({100 * c / len(judged):.1f}%)" if judged else "0" for c in counts]


def sample_cases(
    run: Run, n: int, first: str, second: str, most: int, seed: int
) -> list[dict[str, Any]]:
    """A row per disagreement, those of the sample first; the others have set 0 and case 0.

    Args:
        run: whose items.
        n: of how many candidates of each they pick.
        first, second: the scorers.
        most: how many disagreements to draw.
        seed: of the draw.
    """
    scores = run.scores(first, n), run.scores(second, n)
    sides = tuple(picks(s) for s in scores)
    scored = ~(np.isnan(scores[0]).all(axis=1) | np.isnan(scores[1]).all(axis=1))
    rows, quality = np.flatnonzero(scored), run.quality(n)
    place = run.grid(np.arange(float(len(run.texts))), n)  # among all of the run's candidates
    texts = [{i: run.texts[int(place[i, side[i]])] for i in rows.tolist()} for side in sides]
    differ = [i for i in rows.tolist() if texts[0][i] != texts[1][i]]
    rng = np.random.default_rng(seed)
    half = (min(most, len(differ)) + 1) // 2
    found = []
    for rank, item in enumerate(rng.permutation(differ).astype(int).tolist()):
        number = 0 if rank >= most else 1 + rank // half
        swap = int(rng.integers(2))
        row = {"model": run.model, "benchmark": title(run), "N": n, "set": number}
        row |= {
            "case": 1 + rank % half if number else 0,
            "id": run.ids[item],
            "item": int(run.places[item]),
        }
        row |= {
            "question": run.questions[item],
            "A1": texts[swap][item],
            "A2": texts[1 - swap][item],
        }
        row |= {"A1_scorer": (first, second)[swap], "A2_scorer": (second, first)[swap]}
        both = [float(quality[item, side[item]]) for side in sides]
        row |= {"A1_quality": both[swap], "A2_quality": both[1 - swap]}
        found.append(row | {"verdict": verdict(*both)})
    return found


def verdict(first: float, second: float) -> str:
    """Whose quality is higher; `NO_VERDICT` if one is NaN."""
    if np.isnan(first) or np.isnan(second):
        return NO_VERDICT
    return VERDICTS[1 - int(np.sign(first - second))]

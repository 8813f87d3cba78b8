"""Items of which two scorers pick different texts, drawn for people to judge."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.studies.selection import picks, title

VERDICTS = ("first", "tie", "second")
"""Whose pick the benchmark's own measure prefers."""


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """How often the first pick is better, neither, the second: numbers and per cent."""
    counts = [sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS]
    return [f"{c} ({100 * c / len(rows):.1f}%)" if rows else "0" for c in counts]


def draw(run: Run, first: str, second: str, most: int, seed: int) -> list[dict[str, Any]]:
    """A row a disagreement, those that are drawn first; the others have set 0 and case 0."""
    scores = run.scores(first), run.scores(second)
    sides = tuple(picks(s) for s in scores)
    scored = ~(np.isnan(scores[0]).all(axis=1) | np.isnan(scores[1]).all(axis=1))
    starts, quality = np.cumsum(run.sizes) - run.sizes, run.quality()
    texts = [[run.texts[i] for i in starts + side] for side in sides]
    differ = [i for i in np.flatnonzero(scored).tolist() if texts[0][i] != texts[1][i]]
    rng = np.random.default_rng(seed)
    half = (min(most, len(differ)) + 1) // 2
    rows = []
    for place, item in enumerate(rng.permutation(differ).astype(int).tolist()):
        number = 0 if place >= most else 1 + place // half
        better = np.sign(quality[item, sides[0][item]] - quality[item, sides[1][item]])
        swap = int(rng.integers(2))
        row = {"model": run.model, "benchmark": title(run), "set": number}
        row |= {
            "case": 1 + place % half if number else 0,
            "id": run.ids[item],
            "item": int(run.places[item]),
        }
        row |= {
            "question": run.questions[item],
            "A1": texts[swap][item],
            "A2": texts[1 - swap][item],
        }
        row |= {"A1_scorer": (first, second)[swap], "A2_scorer": (second, first)[swap]}
        rows.append(row | {"verdict": VERDICTS[1 - int(better)]})
    return rows

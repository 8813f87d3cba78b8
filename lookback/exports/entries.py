"""The items of a run with their candidates, one after another; tokens are read shard by shard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lookback.exports.request import Request
from lookback.plain import finite, plain
from lookback.runs import Run
from lookback.runs.layout import HEAD_COLUMNS, TOKEN_COLUMNS
from lookback.runs.part import by_shard
from lookback.scores.base import best_first
from lookback.signals import BY_LAYER

Row = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """An item with its candidates, as data that JSON can hold.

    Attributes:
        item: `item` (its position in the split), `id`, `question`, `messages`, `source`, `truth`,
            `image` (whose was shown), `error`.
        candidates: each with `index`, `text`, `finish`, `length`, `quality`, `scores` and `ranks`
            by scorer, and its tokens and signals if they were asked for. None of a failed item.
    """

    item: Row
    candidates: list[Row]

    def pick(self, scorer: str) -> Row | None:
        """The candidate with the highest score; None of a failed item."""
        return next((one for one in self.candidates if one["ranks"][scorer] == 1), None)


def entries(request: Request) -> Iterator[Entry]:
    """All items of a run's complete shards, failed ones too, in the split's order."""
    for part in by_shard(request.run):
        yield from _entries_of(part, request)


def _entries_of(part: Run, request: Request) -> Iterator[Entry]:
    found: dict[int, list[Row]] = {}
    for row in _candidate_rows(part, request):
        found.setdefault(row.pop("item"), []).append(row)
    if found:
        _add_scores(part, request, found)
    for row in part.items.to_pylist():
        yield Entry(_item(row), found.get(row["item"], []))


def _candidate_rows(part: Run, request: Request) -> list[Row]:
    """The rows of a shard's candidates, in order."""
    tokens = (*TOKEN_COLUMNS, *((BY_LAYER,) if part.has_layers else ()))
    names = (*HEAD_COLUMNS, *(tokens if request.signals else ()))
    rows: list[Row] = part.table("candidates", names).to_pylist()
    if request.n is not None:
        rows = [row for row in rows if row["index"] < request.n]
    for row in rows:
        row["quality"] = finite(row["quality"])
    return rows


def _add_scores(part: Run, request: Request, found: dict[int, list[Row]]) -> None:
    """Each scorer's score of each candidate, and its rank among those of its item."""
    tables = {
        name: part.scores(name, request.n, **request.params.get(name, {}))
        for name in request.scorers
    }
    for number, place in enumerate(part.places.tolist()):
        rows = found[place]
        for row in rows:
            row["scores"], row["ranks"] = {}, {}
        for name, table in tables.items():
            scores = table[number, : len(rows)]
            for rank, index in enumerate(best_first(scores), start=1):
                rows[index]["scores"][name] = finite(float(scores[index]))
                rows[index]["ranks"][name] = rank


def _item(row: Row) -> Row:
    read = {name: _read(row[name]) for name in ("messages", "source", "truth")}
    return {
        "item": row["item"],
        "id": row["id"],
        "question": row["question"],
        **read,
        "image": row["image"],
        "error": row["error"],
    }


def _read(text: str | None) -> Any:
    """What JSON of a run says: numbers that are none are null, half characters U+FFFD."""
    return None if text is None else plain(json.loads(text))

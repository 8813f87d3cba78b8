"""A run as lines of JSON: an item with its candidates each, or a candidate each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lookback.integrations.exports.base import Entry, Request, Tally, Written, entries
from lookback.io.json_values import plain
from lookback.runs.layout import replacing

if TYPE_CHECKING:
    from lookback.engines.common.options import Progress


def write(request: Request, progress: Progress) -> Written:
    """Write the file, item after item; it takes its name when it is whole."""
    run, out = request.run, request.out
    total, tally = len(run.items), Tally.of(request)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        for number, entry in enumerate(entries(request), start=1):
            tally.add(entry)
            for line in _lines(request, entry):
                file.write(to_json(line) + "\n")
            progress(number, total)
    return tally.written()


def _lines(request: Request, entry: Entry) -> Iterator[dict[str, Any]]:
    run = request.run
    whose = {"run": run.id, "model": run.model, "benchmark": run.benchmark}
    if not request.flat:
        yield whose | entry.item | {"candidates": entry.candidates}
        return
    item = {name: value for name, value in entry.item.items() if name != "error"}
    for one in entry.candidates:
        yield whose | item | one


def to_json(data: Any) -> str:
    """One line of JSON that every reader takes."""
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False)
    except ValueError:  # a signal of an old run that is no number
        return json.dumps(plain(data), ensure_ascii=False, allow_nan=False)

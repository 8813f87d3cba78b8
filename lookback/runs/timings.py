"""What took how long, read: compared with its records, and each number looked at.

    timings/sample-00003.json   [{"stage": "sample", "item": 30, "responses": 25, "ms": 41.2}, ...]
    timings/shards/00003.json   rows, bytes and sha256 of each stage's file

No other number comes from timings, so that damage of them does not keep a run from being opened: it
is an error where they are read. Runs that were begun before timings had records are read too, and
`Timings.unrecorded` says of how many files nothing vouches for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lookback.errors import one_line
from lookback.io.files import read_bytes
from lookback.io.storage import AnyPath, each, names_in
from lookback.runs.layout import SHARD
from lookback.runs.manifest import Manifest
from lookback.runs.records import (
    RECORDS,
    TIMINGS,
    Problem,
    Record,
    TableRecord,
    checksum_of,
    read_record,
    record_path,
    timing_path,
)

LEAVE_OUT = "the same `lookback run` as before leaves it out; the results do not depend on it"
MOVE = "move it away"
LONGEST = 1e12
"""Milliseconds that an item can have taken: thirty years."""


@dataclass(frozen=True)
class Timings:
    """What was found in the timings of a run's folder.

    Attributes:
        files: the rows of each file, by its name.
        problems: what is not as it was written.
        unrecorded: how many files have no record, so that nothing vouches for them.
        of: how many files there should be.
    """

    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unrecorded: int = 0
    of: int = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order of the files' names."""
        return [row for name in sorted(self.files) for row in self.files[name]]


def join(parts: Iterable[Timings]) -> Timings:
    """The timings of several shards or folders as one."""
    parts = list(parts)
    return Timings(
        {name: rows for part in parts for name, rows in part.files.items()},
        [problem for part in parts for problem in part.problems],
        sum(part.unrecorded for part in parts),
        sum(part.of for part in parts),
    )


def read_timings(folder: AnyPath, manifest: Manifest, records: Mapping[int, Record]) -> Timings:
    """Read the timings of a run's complete shards.

    Args:
        folder: of the run.
        manifest: the run's.
        records: of the shards that are there; a stage counts once its table is in them.
    """
    names = [name for name in names_in(folder / TIMINGS) if _is_shown(name)]
    expected = {
        timing_path(folder, stage, shard).name
        for shard in manifest.shards
        for stage in _stages(manifest.tables)
    }
    extra = [f"{TIMINGS}/{name}" for name in names if name not in expected]
    known = {record_path(folder, shard).name for shard in manifest.shards}
    recorded = filter(_is_shown, names_in(folder / TIMINGS / RECORDS))
    extra += [f"{TIMINGS}/{RECORDS}/{name}" for name in recorded if name not in known]
    found = Timings(problems=[Problem(name, "is no part of this run", MOVE) for name in extra])

    def read(shard: int) -> Timings:
        return _read_shard(folder, manifest.id, shard, _stages(records[shard].tables))

    return join([found, *each(folder, read, sorted(records))])


def _is_shown(name: str) -> bool:
    """Whether a file is one of timings, and not what a system left there."""
    return name.endswith(".json") and not name.startswith(".")


def _stages(tables: Mapping[str, Any] | tuple[str, ...]) -> list[str]:
    """The stages that make tables: items and candidates are made together."""
    named = {"items": "sample", "looks": "look"}
    others = (table for table in tables if table != "candidates")
    return [named.get(table, table.removeprefix("scores/")) for table in others]


def _read_shard(folder: AnyPath, run: str, shard: int, stages: list[str]) -> Timings:
    """The timings of one shard, of the stages that it has."""
    files: dict[str, list[dict[str, Any]]] = {}
    problems = []
    known: Mapping[str, TableRecord] = {}
    try:
        record = read_record(folder / TIMINGS, shard, needed=())
        wrong = record and record.misplaced(run, shard)
        known = record.tables if record and not wrong else {}
    except (ValueError, OSError) as error:
        wrong = f"cannot be read ({one_line(error, 100)})"
    if wrong:
        file = f"{TIMINGS}/{RECORDS}/{record_path(folder, shard).name}"
        problems.append(Problem(file, wrong, LEAVE_OUT, shard))
    for stage in stages:
        path = timing_path(folder, stage, shard)
        try:
            files[path.name] = _read_file(path, stage, shard, known.get(stage))
        except (ValueError, OSError) as error:
            missing = isinstance(error, FileNotFoundError)
            if not missing or stage in known:
                file, wrong = f"{TIMINGS}/{path.name}", "is missing" if missing else one_line(error)
                problems.append(Problem(file, wrong, LEAVE_OUT, shard, (stage,)))
    unrecorded = sum(stage not in known for stage in stages)
    return Timings(files, problems, unrecorded, len(stages))


def _read_file(
    path: AnyPath, stage: str, shard: int, known: TableRecord | None
) -> list[dict[str, Any]]:
    """The rows of a file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is not as it was written; the message goes on after its name.
    """
    try:
        data = read_bytes(path)
    except ValueError as error:
        raise ValueError(f"cannot be read ({error})") from None
    if known and len(data) != known.bytes:
        raise ValueError(f"is damaged ({len(data)} bytes, not {known.bytes})")
    if known and checksum_of(data) != known.sha256:
        raise ValueError("is damaged (its sha256 is not that of what was written)")
    try:
        rows = list(map(dict, json.loads(data.decode("utf-8"))))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"is damaged ({one_line(error, 100)})") from None
    for row in rows:
        wrong = _find_wrong(row, stage, shard)
        if wrong is not None:
            raise ValueError(f"is damaged ({wrong} is {row.get(wrong)!r:.40})")
    return rows


def _find_wrong(row: Mapping[str, Any], stage: str, shard: int) -> str | None:
    """The first entry of a row that no run writes; None if there is none."""
    ms, item, responses = (row.get(name) for name in ("ms", "item", "responses"))
    sound = {
        "stage": row.get("stage") == stage,
        "item": type(item) is int and item >= 0 and item // SHARD == shard,
        "responses": type(responses) is int and responses >= 0,
        "ms": isinstance(ms, (int, float)) and type(ms) is not bool and 0 <= ms <= LONGEST,
    }
    return next((name for name, right in sound.items() if not right), None)

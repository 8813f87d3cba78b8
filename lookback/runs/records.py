"""Records of what was written: a shard is complete when its record exists.

    shards/00003.json           which items it holds; of each table the rows, bytes and sha256
    timings/sample-00003.json   [{"stage": "sample", "item": 30, "responses": 25, "ms": 41.2}, ...]
    timings/shards/00003.json   rows, bytes and sha256 of each stage's file of timings

A shard's record is written after all its tables: a kill between two tables leaves a shard without a
record, which does not count. Scores of a scorer that is added later are added to the record.

Timings differ from one making to the next, so they have records of their own. No other number comes
from them: damaged timings do not keep a run from being opened, they are an error where they are
read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from lookback.errors import one_line
from lookback.io.files import read_bytes
from lookback.io.storage import AnyPath, each, names_in
from lookback.runs.layout import (
    REMAKE,
    SHARD,
    RunError,
    describe_invalid,
    shard_path,
    write_table,
    write_whole,
)
from lookback.runs.manifest import Manifest

RECORDS = "shards"
SAMPLED = ("items", "candidates")
"""The tables that every shard has."""
TIMINGS = "timings"
LEAVE_OUT = "the same `lookback run` as before leaves it out; the results do not depend on it"
MOVE = "move it away"
LONGEST_MS = 1e12
"""Milliseconds that an item can have taken: thirty years."""


@dataclass(frozen=True)
class Problem:
    """A file of a run that is not as it was written."""

    file: str  # its path in the run's folder
    problem: str
    remedy: str = REMAKE
    shard: int = -1  # that it belongs to; -1 if to none
    tables: tuple[str, ...] = ()  # of the shard that must be made again; of timings, the stages

    def __str__(self) -> str:
        return f"{self.file} {self.problem}: {self.remedy}"


@dataclass(frozen=True)
class TableRecord:
    """The rows, bytes and checksum of a written table."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Record:
    """A complete shard."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    run: str  # the id of the run that it belongs to
    first: int  # the position of its first item
    last: int
    tables: Mapping[str, TableRecord]

    def write(self, folder: AnyPath, shard: int) -> None:
        """Write it, whole or not at all."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        write_whole(record_path(folder, shard), text.encode("utf-8"))

    def misplaced(self, run: str, shard: int) -> str | None:
        """Return what else it is the record of; None if it is that of this run's shard."""
        if self.run != run:
            return f"is of another run ({self.run:.20})"
        if not self.first // SHARD == shard == self.last // SHARD:
            return f"is of another shard (items {self.first} to {self.last})"
        return None


_PARSER = TypeAdapter(Record)


def checksum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record_path(folder: AnyPath, shard: int) -> AnyPath:
    return folder / RECORDS / f"{shard:05d}.json"


def timing_path(folder: AnyPath, stage: str, shard: int) -> AnyPath:
    return folder / TIMINGS / f"{stage}-{shard:05d}.json"


def read_record(folder: AnyPath, shard: int, needed: Collection[str] = SAMPLED) -> Record | None:
    """Return the record of a shard; None if there is none.

    Raises:
        ValueError: it cannot be read, or lacks a table that is needed.
    """
    try:
        record = _PARSER.validate_json(read_bytes(record_path(folder, shard)), strict=True)
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ValueError(describe_invalid(error)) from None
    for table in needed:
        if table not in record.tables:
            raise ValueError(f"it has no {table}")
    return record


def _read_sound(folder: AnyPath, shard: int, needed: Collection[str]) -> Record | None:
    """Return the record of a shard; None also if it is damaged."""
    try:
        return read_record(folder, shard, needed)
    except ValueError:
        return None


def write_shard(
    folder: AnyPath,
    shard: int,
    tables: Mapping[str, list[dict[str, Any]]],
    timings: Mapping[str, list[dict[str, Any]]] | None = None,
    *,
    by_layer: bool = False,
) -> None:
    """Write tables of a shard, then its record: the first time items and candidates together.

    Args:
        folder: of the run, with its manifest.
        shard: its number.
        tables: the rows of each; other tables that the shard has stay.
        timings: what took how long, by stage.
        by_layer: candidates have signals by layer.
    """
    forget(folder, shard, tables)
    record = read_record(folder, shard)
    known = dict(record.tables) if record else {}
    for table, rows in tables.items():
        size, digest = write_table(folder, table, shard, rows, by_layer=by_layer)
        known[table] = TableRecord(len(rows), size, digest)
    places = [row["item"] for row in tables.get("items", [])]
    if places:
        record = Record(Manifest.read(folder).id, min(places), max(places), known)
    elif record is None:
        raise RunError(f"shard {shard} of {str(folder)!r} has no items yet")
    for stage, rows in (timings or {}).items():
        write_timings(folder, shard, record, stage, rows)
    replace(record, tables=known).write(folder, shard)


def forget(folder: AnyPath, shard: int, tables: Collection[str]) -> None:
    """Remove tables of a shard, first from its record.

    Without items or candidates nothing else of it is worth anything, and the whole shard goes.
    """
    record = _read_sound(folder, shard, SAMPLED)
    left = {} if record is None else {n: t for n, t in record.tables.items() if n not in tables}
    gone: Iterable[str] = tables
    if record is not None and set(SAMPLED) <= left.keys():
        if len(left) < len(record.tables):
            replace(record, tables=left).write(folder, shard)
    else:
        record_path(folder, shard).unlink(missing_ok=True)
        gone = [*SAMPLED, "looks", *(f"scores/{name}" for name in names_in(folder / "scores"))]
        record_path(folder / TIMINGS, shard).unlink(missing_ok=True)
        for name in names_in(folder / TIMINGS):
            if name.endswith(f"-{shard:05d}.json"):
                (folder / TIMINGS / name).unlink(missing_ok=True)
    for table in gone:
        shard_path(folder, table, shard).unlink(missing_ok=True)


def write_timings(
    folder: AnyPath, shard: int, record: Record, stage: str, rows: list[dict[str, Any]]
) -> None:
    """Write what a stage of a shard took, then the record of that."""
    data = json.dumps(rows).encode("utf-8")
    write_whole(timing_path(folder, stage, shard), data)
    before = _read_sound(folder / TIMINGS, shard, ())
    known = dict(before.tables) if before and before.run == record.run else {}
    known[stage] = TableRecord(len(rows), len(data), checksum_of(data))
    replace(record, tables=known).write(folder / TIMINGS, shard)


def forget_timings(folder: AnyPath, shard: int, stages: Collection[str]) -> None:
    """Remove stages of a shard's timings, first from their record.

    A record that is damaged, or has no stages to remove, is removed itself.
    """
    record = _read_sound(folder / TIMINGS, shard, ())
    if record is None or not stages:
        record_path(folder / TIMINGS, shard).unlink(missing_ok=True)
    else:
        left = {name: one for name, one in record.tables.items() if name not in stages}
        replace(record, tables=left).write(folder / TIMINGS, shard)
    for stage in stages:
        timing_path(folder, stage, shard).unlink(missing_ok=True)


@dataclass(frozen=True)
class Timings:
    """The timings of a run's folder."""

    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # rows by file name
    problems: list[Problem] = field(default_factory=list)
    unrecorded: int = 0  # files without a record, which cannot be verified
    of: int = 0  # files that there should be

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order of the files' names."""
        return [row for name in sorted(self.files) for row in self.files[name]]


def join_timings(parts: Iterable[Timings]) -> Timings:
    """Return the timings of several shards or folders as one."""
    parts = list(parts)
    return Timings(
        {name: rows for part in parts for name, rows in part.files.items()},
        [problem for part in parts for problem in part.problems],
        sum(part.unrecorded for part in parts),
        sum(part.of for part in parts),
    )


def read_timings(folder: AnyPath, manifest: Manifest, records: Mapping[int, Record]) -> Timings:
    """Read the timings of the stages whose tables are in the records of complete shards."""
    known = {record_path(folder, shard).name for shard in manifest.shards}
    expected = {
        timing_path(folder, stage, shard).name
        for shard in manifest.shards
        for stage in _stages(manifest.tables)
    }
    extra = [
        Problem(f"{place}/{name}", "is no part of this run", MOVE)
        for place, names in ((TIMINGS, expected), (f"{TIMINGS}/{RECORDS}", known))
        for name in names_in(folder / place)
        # Systems leave files that begin with a dot.
        if name.endswith(".json") and not name.startswith(".") and name not in names
    ]

    def read(shard: int) -> Timings:
        return _read_shard_timings(folder, manifest.id, shard, _stages(records[shard].tables))

    return join_timings([Timings(problems=extra), *each(folder, read, sorted(records))])


def _stages(tables: Iterable[str]) -> list[str]:
    """Return the stages that make tables: items and candidates are made together."""
    named = {"items": "sample", "looks": "look"}
    others = (table for table in tables if table != "candidates")
    return [named.get(table, table.removeprefix("scores/")) for table in others]


def _read_shard_timings(folder: AnyPath, run: str, shard: int, stages: list[str]) -> Timings:
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
            files[path.name] = _read_timing_file(path, stage, shard, known.get(stage))
        except (ValueError, OSError) as error:
            missing = isinstance(error, FileNotFoundError)
            if not missing or stage in known:
                file, wrong = f"{TIMINGS}/{path.name}", "is missing" if missing else one_line(error)
                problems.append(Problem(file, wrong, LEAVE_OUT, shard, (stage,)))
    unrecorded = sum(stage not in known for stage in stages)
    return Timings(files, problems, unrecorded, len(stages))


def _read_timing_file(
    path: AnyPath, stage: str, shard: int, known: TableRecord | None
) -> list[dict[str, Any]]:
    """Return the rows of a file.

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
    """Return the first entry of a row that no run writes; None if there is none."""
    ms, item, responses = (row.get(name) for name in ("ms", "item", "responses"))
    sound = {
        "stage": row.get("stage") == stage,
        "item": type(item) is int and item >= 0 and item // SHARD == shard,
        "responses": type(responses) is int and responses >= 0,
        "ms": isinstance(ms, (int, float)) and type(ms) is not bool and 0 <= ms <= LONGEST_MS,
    }
    return next((name for name, right in sound.items() if not right), None)

"""The record of a shard: written after all its tables, and what says that the shard is there.

    shards/00003.json   which items it holds, and of each table the rows, the bytes and the sha256

A kill between two tables leaves a shard without a record, which is none. Scores of a scorer that is
added later are added to the record.

    timings/shards/00003.json   the same of its timings, by stage; see timings.py

Timings differ from one making to the next: records of them beside those of the tables keep those
the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lookback.io.files import read_bytes
from lookback.io.storage import AnyPath, names_in
from lookback.runs.layout import (
    REMAKE,
    SHARD,
    RunError,
    shard_path,
    write_table,
    write_whole,
)
from lookback.runs.manifest import Manifest

RECORDS = "shards"
SAMPLED = ("items", "candidates")
"""The tables that every shard has."""
TIMINGS = "timings"


@dataclass(frozen=True)
class Problem:
    """A file of a run that is not as it was written.

    Attributes:
        file: its path in the run's folder.
        problem: what is wrong with it.
        remedy: what to do.
        shard: the shard that it belongs to; -1 if to none.
        tables: those of the shard that must be made again; of timings, the stages.
    """

    file: str
    problem: str
    remedy: str = REMAKE
    shard: int = -1
    tables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file} {self.problem}: {self.remedy}"


@dataclass(frozen=True)
class TableRecord:
    """What was written: so many rows in so many bytes, with this checksum."""

    rows: int
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        for value, kind in ((self.rows, int), (self.bytes, int), (self.sha256, str)):
            if type(value) is not kind:
                raise ValueError(f"{value!r:.60} is not of type {kind.__name__}")


@dataclass(frozen=True)
class Record:
    """A shard that is there.

    Attributes:
        run: the id of the run that it belongs to.
        first, last: the positions of its first and its last item.
        tables: what was written of each.
    """

    run: str
    first: int
    last: int
    tables: Mapping[str, TableRecord]

    def __post_init__(self) -> None:
        for value, kind in ((self.run, str), (self.first, int), (self.last, int)):
            if type(value) is not kind:
                raise ValueError(f"{value!r:.60} is not of type {kind.__name__}")

    @classmethod
    def from_json(cls, text: str) -> Record:
        """The record that `write` wrote.

        Raises:
            ValueError: it is none.
        """
        try:
            data = json.loads(text)
            tables = {name: TableRecord(**one) for name, one in data.pop("tables").items()}
            return cls(**data, tables=tables)
        except (TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None

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


def record_path(folder: AnyPath, shard: int) -> AnyPath:
    """The file of a shard's record."""
    return folder / RECORDS / f"{shard:05d}.json"


def read_record(folder: AnyPath, shard: int, needed: Collection[str] = SAMPLED) -> Record | None:
    """The record of a shard; None if there is none.

    Raises:
        ValueError: it cannot be read, or lacks a table that is needed.
    """
    try:
        record = Record.from_json(read_bytes(record_path(folder, shard)).decode("utf-8"))
    except FileNotFoundError:
        return None
    for table in needed:
        if table not in record.tables:
            raise ValueError(f"it has no {table}")
    return record


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
        folder: of the run; its manifest is there.
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


def timing_path(folder: AnyPath, stage: str, shard: int) -> AnyPath:
    """The file of one stage's timings of a shard."""
    return folder / TIMINGS / f"{stage}-{shard:05d}.json"


def write_timings(
    folder: AnyPath, shard: int, record: Record, stage: str, rows: list[dict[str, Any]]
) -> None:
    """Write what a stage of a shard took, then the record of that."""
    data = json.dumps(rows).encode("utf-8")
    write_whole(timing_path(folder, stage, shard), data)
    before = _timing_record(folder, shard)
    known = dict(before.tables) if before and before.run == record.run else {}
    known[stage] = TableRecord(len(rows), len(data), checksum_of(data))
    replace(record, tables=known).write(folder / TIMINGS, shard)


def forget_timings(folder: AnyPath, shard: int, stages: Collection[str]) -> None:
    """Take stages out of a shard's timings: the record says so before they are gone.

    A record that is damaged, or has no stages to take out, goes itself.
    """
    record = _timing_record(folder, shard)
    if record is None or not stages:
        record_path(folder / TIMINGS, shard).unlink(missing_ok=True)
    else:
        left = {name: one for name, one in record.tables.items() if name not in stages}
        replace(record, tables=left).write(folder / TIMINGS, shard)
    for stage in stages:
        timing_path(folder, stage, shard).unlink(missing_ok=True)


def _timing_record(folder: AnyPath, shard: int) -> Record | None:
    try:
        return read_record(folder / TIMINGS, shard, needed=())
    except ValueError:  # damaged: it vouches for nothing
        return None


def forget(folder: AnyPath, shard: int, tables: Collection[str]) -> None:
    """Take tables out of a shard: its record says so before they are gone.

    Without items or candidates nothing else of it is worth anything, and the whole shard goes.
    """
    try:
        record = read_record(folder, shard)
    except ValueError:  # damaged: it vouches for nothing
        record = None
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


def checksum_of(data: bytes) -> str:
    """The sha256 of a file's content."""
    return hashlib.sha256(data).hexdigest()

"""The record of a shard: written after all its tables, and what says that the shard is there.

    shards/00003.json   which items it holds, and of each table the rows, the bytes and the sha256

A kill between two tables leaves a shard without a record, which is none. Scores of a scorer that is
added later are added to the record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lookback.reading import read_bytes
from lookback.runs.layout import RunError, replacing, shard_path, write_table
from lookback.runs.manifest import Manifest
from lookback.storage import AnyPath, names_in

RECORDS = "shards"
SAMPLED = ("items", "candidates")
"""The tables that every shard has."""


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
        for table in SAMPLED:
            if table not in self.tables:
                raise ValueError(f"it has no {table}")

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
        path = record_path(folder, shard)
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def record_path(folder: AnyPath, shard: int) -> AnyPath:
    """The file of a shard's record."""
    return folder / RECORDS / f"{shard:05d}.json"


def read_record(folder: AnyPath, shard: int) -> Record | None:
    """The record of a shard; None if there is none.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        return Record.from_json(read_bytes(record_path(folder, shard)).decode("utf-8"))
    except FileNotFoundError:
        return None


def write_shard(
    folder: AnyPath,
    shard: int,
    tables: Mapping[str, list[dict[str, Any]]],
    *,
    by_layer: bool = False,
) -> None:
    """Write tables of a shard, then its record: the first time items and candidates together.

    Args:
        folder: of the run; its manifest is there.
        shard: its number.
        tables: the rows of each; other tables that the shard has stay.
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
    replace(record, tables=known).write(folder, shard)


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
    for table in gone:
        shard_path(folder, table, shard).unlink(missing_ok=True)


def checksum_of(data: bytes) -> str:
    """The sha256 of a file's content."""
    return hashlib.sha256(data).hexdigest()

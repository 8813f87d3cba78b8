"""Shards on their way between machines that share no disk: files by their path in the run's folder.

A worker elsewhere works in a folder of its own, which has of the run what its shards need, and
sends back what it wrote. The run's own process puts that into the run's folder: tables first,
records last, so that a shard is there exactly when its record is, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lookback.io.storage import AnyPath
from lookback.runs.layout import shard_path, write_whole
from lookback.runs.manifest import MANIFEST
from lookback.runs.records import RECORDS, SAMPLED, TIMINGS, read_record, record_path

Files = Mapping[str, bytes]


def pack_needed(folder: AnyPath, shards: Iterable[int]) -> dict[str, bytes]:
    """What a worker needs to make the tables that shards lack.

    Of a shard that is there already, that is its records, its items and its candidates.
    """
    names = [MANIFEST]
    for shard in shards:
        if record_path(folder, shard).exists():
            names += [_record(shard), *(_table(table, shard) for table in SAMPLED)]
        names += _timing_record(folder, shard)
    return _read(folder, names)


def pack_made(folder: AnyPath, shards: Iterable[int], given: Files) -> dict[str, bytes]:
    """What a worker wrote for shards: all there is of them but what it was given."""
    names: list[str] = []
    for shard in shards:
        record = read_record(folder, shard)
        tables = [_table(table, shard) for table in record.tables] if record else []
        names += [name for name in tables if (folder / name).exists()]  # others' scores are not
        timings = [path.name for path in (folder / TIMINGS).glob(f"*-{shard:05d}.json")]
        names += [f"{TIMINGS}/{name}" for name in sorted(timings)]
        names += [*_timing_record(folder, shard), _record(shard)]
    made = _read(folder, names)
    return {name: data for name, data in made.items() if given.get(name) != data}


def unpack(folder: AnyPath, files: Files) -> None:
    """Put files into a folder, each whole or not at all, and records after all else."""

    def order(name: str) -> tuple[bool, bool, str]:
        return name.startswith(f"{RECORDS}/"), f"/{RECORDS}/" in name, name

    for name in sorted(files, key=order):
        write_whole(folder / name, files[name])


def _record(shard: int) -> str:
    return str(record_path(Path(), shard))


def _timing_record(folder: AnyPath, shard: int) -> list[str]:
    """The record of a shard's timings, if it has any."""
    path = f"{TIMINGS}/{_record(shard)}"
    return [path] if (folder / path).exists() else []


def _table(table: str, shard: int) -> str:
    return str(shard_path(Path(), table, shard))


def _read(folder: AnyPath, names: Iterable[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}

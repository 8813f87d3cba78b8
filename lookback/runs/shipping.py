"""Shards on their way between machines that share no disk: files by their path in the run's folder.

A worker elsewhere works in a folder of its own, which has of the run what its shards need, and
sends back what it wrote. The run's own process puts that into the run's folder: tables first,
records last, so that a shard is there exactly when its record is, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lookback.runs.layout import replacing, shard_path
from lookback.runs.manifest import MANIFEST
from lookback.runs.records import RECORDS, SAMPLED, read_record, record_path

Files = Mapping[str, bytes]


def pack_needed(folder: Path, shards: Iterable[int]) -> dict[str, bytes]:
    """What a worker needs to make the tables that shards lack.

    Of a shard that is there already, that is its record, its items and its candidates.
    """
    paths = [folder / MANIFEST]
    for shard in shards:
        if record_path(folder, shard).exists():
            paths += [record_path(folder, shard)]
            paths += [shard_path(folder, table, shard) for table in SAMPLED]
    return _read(folder, paths)


def pack_made(folder: Path, shards: Iterable[int], given: Files) -> dict[str, bytes]:
    """What a worker wrote for shards: all there is of them but what it was given."""
    paths: list[Path] = []
    for shard in shards:
        record = read_record(folder, shard)
        tables = [shard_path(folder, table, shard) for table in record.tables] if record else []
        paths += [path for path in tables if path.exists()]  # it was not given others' scores
        paths += sorted((folder / "timings").glob(f"*-{shard:05d}.json"))
        paths += [record_path(folder, shard)]
    made = _read(folder, paths)
    return {path: data for path, data in made.items() if given.get(path) != data}


def unpack(folder: Path, files: Files) -> None:
    """Put files into a folder, each whole or not at all, and records after all else."""
    for name in sorted(files, key=lambda name: (name.startswith(f"{RECORDS}/"), name)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(files[name])


def _read(folder: Path, paths: Iterable[Path]) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

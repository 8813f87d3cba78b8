"""Is a run what was written?

Names, sizes and counts are compared when it is opened, a table's bytes when it is first read, and
all of them by `lookback runs verify`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lookback.runs.jobs import Folders, read_folders
from lookback.runs.layout import REMAKE, SHARD, RunError, shard_path
from lookback.runs.manifest import MANIFEST, Manifest
from lookback.runs.records import (
    RECORDS,
    SAMPLED,
    Record,
    TableRecord,
    checksum,
    read_record,
    record_path,
)

MOVE = "move it away"


@dataclass(frozen=True)
class Problem:
    """A file of a run that is not as it was written.

    Attributes:
        file: its path in the run's folder.
        problem: what is wrong with it.
        remedy: what to do.
        shard: the shard that it belongs to; -1 if to none.
        tables: those of the shard that must be made again.
    """

    file: str
    problem: str
    remedy: str = REMAKE
    shard: int = -1
    tables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file} {self.problem}: {self.remedy}"


@dataclass(frozen=True)
class Verification:
    """What a look at every byte of a run found.

    Attributes:
        manifest: the run's.
        shards: how many of its shards are there.
        files: how many tables they have.
        bytes: how large these are together.
        problems: what is not as it was written.
    """

    manifest: Manifest
    shards: int
    files: int
    bytes: int
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        """Whether all that is there is as it was written."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        problems = [
            {"file": one.file, "problem": one.problem, "remedy": one.remedy}
            for one in self.problems
        ]
        return {
            "ok": self.ok,
            "status": self.manifest.status,
            "shards": self.shards,
            "of": len(self.manifest.shards),
            "files": self.files,
            "bytes": self.bytes,
            "problems": problems,
        }


def verify(folder: Path) -> Verification:
    """Compare every byte of a run with what was recorded when it was written.

    Raises:
        RunError: there is no run.
    """
    folders = read_folders(folder)
    if folders.jobs:
        return _verify_jobs(folders)
    manifest = folders.manifest
    if not manifest.recorded:
        what = f"has format {manifest.format}, which has no checksums"
        problem = Problem(MANIFEST, what, "the run can be read, but not verified")
        return Verification(manifest, 0, 0, 0, [problem])
    records, problems = read_records(folder, manifest)
    problems += find_problems(folder, manifest, records, every_byte=True)
    tables = [table for record in records.values() for table in record.tables.values()]
    size = sum(table.bytes for table in tables)
    return Verification(manifest, len(records), len(tables), size, problems)


def _verify_jobs(folders: Folders) -> Verification:
    """The same of all jobs of a run."""
    found = [(path.name, verify(path)) for path, _ in folders.parts]
    problems = [
        replace(problem, file=f"{name}/{problem.file}")
        for name, one in found
        for problem in one.problems
    ]
    shards, files, size = (
        sum(getattr(one, name) for _, one in found) for name in ("shards", "files", "bytes")
    )
    return Verification(folders.manifest, shards, files, size, problems)


def read_records(folder: Path, manifest: Manifest) -> tuple[dict[int, Record], list[Problem]]:
    """The records of a run's shards, and what is wrong with records.

    A shard of a run that is not finished need not be there.
    """
    records: dict[int, Record] = {}
    problems = []
    for shard in manifest.shards:
        try:
            record = read_record(folder, shard)
            problem = _problem_of_record(manifest, shard, record)
        except (ValueError, OSError) as error:
            record, problem = None, f"cannot be read ({' '.join(str(error).split()):.100})"
        if problem is not None:
            file = record_path(folder, shard).relative_to(folder).as_posix()
            problems.append(Problem(file, problem, shard=shard, tables=SAMPLED))
        elif record is not None:
            records[shard] = record
    return records, problems


def _problem_of_record(manifest: Manifest, shard: int, record: Record | None) -> str | None:
    if record is None:
        return None if manifest.status == "running" else "is missing"
    if record.run != manifest.id:
        return f"is of another run ({record.run:.20})"
    if not record.first // SHARD == shard == record.last // SHARD:
        return f"is of another shard (items {record.first} to {record.last})"
    unknown = sorted(record.tables.keys() - set(manifest.tables))
    return f"names a table that the run has not ({unknown[0]:.40})" if unknown else None


def find_problems(
    folder: Path, manifest: Manifest, records: Mapping[int, Record], every_byte: bool = False
) -> list[Problem]:
    """What is not as the records say.

    Args:
        folder: of the run.
        manifest: the run's.
        records: of the shards that are there.
        every_byte: compare checksums too, not names, sizes and counts alone.
    """
    problems = [
        problem
        for shard, record in records.items()
        for problem in _problems_of(folder, manifest, shard, record, every_byte)
    ]
    problems += [Problem(file, "is no part of this run", MOVE) for file in _extra(folder, manifest)]
    count = sum(record.tables["items"].rows for record in records.values())
    if len(records) == len(manifest.shards) and not problems and count != manifest.items:
        what = f"names {manifest.items} items, its shards have {count}"
        problems.append(Problem(MANIFEST, what, "make the run again in another folder"))
    return problems


def _problems_of(
    folder: Path, manifest: Manifest, shard: int, record: Record, every_byte: bool
) -> Iterator[Problem]:
    """What is wrong with the tables of a shard that is there."""
    wanted = manifest.tables if manifest.status != "running" else ()
    for table in sorted({*wanted, *record.tables}):
        yield from _problems_of_file(folder, table, shard, record.tables.get(table), every_byte)


def _problems_of_file(
    folder: Path, table: str, shard: int, known: TableRecord | None, every_byte: bool
) -> Iterator[Problem]:
    """What is wrong with one table of a shard, if anything."""
    path = shard_path(folder, table, shard)
    if known is None:
        what = "was never recorded"
    elif not path.is_file():
        what = "is missing"
    elif (size := path.stat().st_size) != known.bytes:
        what = f"is damaged ({size} bytes, not {known.bytes})"
    elif every_byte and checksum(path) != known.sha256:
        what = "is damaged (its sha256 is not that of what was written)"
    else:
        return
    file = path.relative_to(folder).as_posix()
    yield Problem(file, what, shard=shard, tables=(table,))


def _extra(folder: Path, manifest: Manifest) -> list[str]:
    """Tables and records that no shard of the run can have, but readers of Parquet would read."""
    scores = (f"scores/{path.name}" for path in folder.glob("scores/*"))
    tables = {*manifest.tables, "looks", *scores}
    found = []
    for table in (RECORDS, *sorted(tables)):
        suffix = ".json" if table == RECORDS else ".parquet"
        known = table == RECORDS or table in manifest.tables
        expected = {f"{shard:05d}{suffix}" for shard in manifest.shards} if known else set()
        there = os.listdir(folder / table) if (folder / table).is_dir() else []
        for name in sorted({*there} - expected):
            # Systems leave files that begin with a dot, and nobody reads those.
            if name.endswith(suffix) and not name.startswith("."):
                found.append(f"{table}/{name}")
    return found


def find_changes(folder: Path, records: Mapping[int, Record], table: str) -> list[Problem]:
    """The files of a table whose bytes are not those that were written."""
    found: list[Problem] = []
    for shard, record in records.items():
        if table in record.tables:
            found += _problems_of_file(folder, table, shard, record.tables[table], every_byte=True)
    return found


def unrecorded_shards(folder: Path, manifest: Manifest) -> dict[str, list[int]]:
    """The complete shards of each table of a run without records (formats 1 and 2).

    There, items were written last, so that a shard is complete if they are there.

    Raises:
        RunError: a finished run lacks a table of a shard.
    """
    found = {table: _numbers(folder / table) for table in manifest.tables}
    for table in SAMPLED:
        lost = sorted(set().union(*found.values()) - set(found[table]))
        if lost and manifest.status != "running":
            file = shard_path(folder, table, lost[0]).relative_to(folder).as_posix()
            raise RunError(
                f"{str(folder)!r} is damaged: {file} is missing; a run of format "
                f"{manifest.format} cannot be gone on with: make it again in another folder"
            )
    complete = set(found["items"]) & set(found["candidates"])
    return {table: sorted(complete & set(shards)) for table, shards in found.items()}


def _numbers(folder: Path) -> list[int]:
    names = (path.stem for path in folder.glob("*.parquet"))
    return sorted(int(name) for name in names if re.fullmatch(r"\d{5,}", name))


def refuse(folder: Path, problems: list[Problem]) -> None:
    """Refuse to read a run that is damaged: nothing that is computed from it would be right.

    Raises:
        RunError: it is; the message names the first file and what to do.
    """
    if problems:
        more = f" (and {len(problems) - 1} more: `lookback runs verify` lists them)"
        raise RunError(
            f"the run {str(folder)!r} is damaged: {problems[0]}{more if problems[1:] else ''}"
        )

"""Compare a run with what was recorded when it was written.

Names, sizes and counts are compared when it is opened, a table's bytes when it is first read, and
all of them by `lookback runs verify`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lookback.errors import one_line
from lookback.io.storage import AnyPath, each, names_in, sizes_in
from lookback.runs.jobs import Folders, read_folders
from lookback.runs.layout import RunError, checksum, shard_path
from lookback.runs.manifest import MANIFEST, Manifest
from lookback.runs.records import (
    MOVE,
    RECORDS,
    SAMPLED,
    Problem,
    Record,
    TableRecord,
    read_record,
    read_timings,
    record_path,
)


@dataclass(frozen=True)
class Verification:
    """The result of comparing every byte of a run."""

    manifest: Manifest
    shards: int  # that are complete
    of: int  # shards that it is to have
    files: int  # tables of the complete shards
    bytes: int  # of these
    problems: list[Problem]
    unrecorded_timings: int = 0  # files of timings without a record, which cannot be verified

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        problems = [
            {"file": p.file, "problem": p.problem, "remedy": p.remedy} for p in self.problems
        ]
        return {
            "ok": self.ok,
            "status": self.manifest.status,
            "shards": self.shards,
            "of": self.of,
            "files": self.files,
            "bytes": self.bytes,
            "unrecorded_timings": self.unrecorded_timings,
            "problems": problems,
        }


def verify(folder: AnyPath) -> Verification:
    """Compare every byte of a run with its records; raise RunError if there is no run."""
    folders = read_folders(folder)
    if folders.jobs:
        return _verify_jobs(folders)
    manifest = folders.manifest
    records, problems = read_records(folder, manifest)
    problems += find_problems(folder, manifest, records, every_byte=True)
    timings = read_timings(folder, manifest, records)
    problems += timings.problems
    tables = [table for record in records.values() for table in record.tables.values()]
    size = sum(table.bytes for table in tables)
    shards = len(records), len(manifest.shards)
    return Verification(manifest, *shards, len(tables), size, problems, timings.unrecorded)


def _verify_jobs(folders: Folders) -> Verification:
    parts = [(path.name, verify(path)) for path, _ in folders.parts]
    problems = [
        replace(problem, file=f"{name}/{problem.file}")
        for name, part in parts
        for problem in part.problems
    ]
    names = ("shards", "files", "bytes", "unrecorded_timings")
    shards, files, size, timings = (sum(getattr(part, n) for _, part in parts) for n in names)
    return Verification(folders.manifest, shards, folders.shards, files, size, problems, timings)


def read_records(folder: AnyPath, manifest: Manifest) -> tuple[dict[int, Record], list[Problem]]:
    """Return the records of a run's shards, and what is wrong with records.

    A shard of a run that is not finished need not be there.
    """
    records: dict[int, Record] = {}
    problems = []

    def read(shard: int) -> tuple[Record | None, str | None]:
        try:
            record = read_record(folder, shard)
        except (ValueError, OSError) as error:
            return None, f"cannot be read ({one_line(error, 100)})"
        return record, _problem_of_record(manifest, shard, record)

    results = each(folder, read, manifest.shards)
    for shard, (record, problem) in zip(manifest.shards, results, strict=True):
        if problem is not None:
            file = f"{RECORDS}/{record_path(folder, shard).name}"
            problems.append(Problem(file, problem, shard=shard, tables=SAMPLED))
        elif record is not None:
            records[shard] = record
    return records, problems


def _problem_of_record(manifest: Manifest, shard: int, record: Record | None) -> str | None:
    if record is None:
        return None if manifest.status == "running" else "is missing"
    if (other := record.misplaced(manifest.id, shard)) is not None:
        return other
    unknown = sorted(record.tables.keys() - set(manifest.tables))
    return f"names a table that the run has not ({unknown[0]:.40})" if unknown else None


def check_records(folder: AnyPath, manifest: Manifest) -> dict[int, Record]:
    """Return the records of a run's shards; raise RunError if the run is not as they say."""
    records, problems = read_records(folder, manifest)
    refuse(folder, problems + find_problems(folder, manifest, records))
    return records


def find_problems(
    folder: AnyPath, manifest: Manifest, records: Mapping[int, Record], every_byte: bool = False
) -> list[Problem]:
    """Return what is not as the records of its complete shards say.

    With `every_byte` checksums are compared too, not names, sizes and counts alone.
    """
    tables = {*manifest.tables, *(table for one in records.values() for table in one.tables)}
    sizes = {table: sizes_in(folder / table) for table in tables}
    wanted = manifest.tables if manifest.status != "running" else ()
    files = [
        (shard, table, record.tables.get(table))
        for shard, record in records.items()
        for table in sorted({*wanted, *record.tables})
    ]
    problems = _compare_tables(folder, sizes, files, every_byte)
    problems += [Problem(file, "is no part of this run", MOVE) for file in _extra(folder, manifest)]
    count = sum(record.tables["items"].rows for record in records.values())
    if len(records) == len(manifest.shards) and not problems and count != manifest.items:
        what = f"names {manifest.items} items, its shards have {count}"
        problems.append(Problem(MANIFEST, what, "make the run again in another folder"))
    return problems


def _compare_tables(
    folder: AnyPath,
    sizes: Mapping[str, Mapping[str, int]],
    files: Sequence[tuple[int, str, TableRecord | None]],
    every_byte: bool,
) -> list[Problem]:
    """Return what is wrong with tables of shards.

    Args:
        folder: of the run.
        sizes: the files of each table, with their bytes.
        files: shard, table and what was recorded of it, if anything was.
        every_byte: compare checksums too.
    """

    def problem_of(file: tuple[int, str, TableRecord | None]) -> str | None:
        shard, table, known = file
        path = shard_path(folder, table, shard)
        size = sizes[table].get(path.name)
        if known is None:
            return "was never recorded"
        if size is None:
            return "is missing"
        if size != known.bytes:
            return f"is damaged ({size} bytes, not {known.bytes})"
        if every_byte and checksum(path) != known.sha256:
            return "is damaged (its sha256 is not that of what was written)"
        return None

    problems = []
    for (shard, table, _), what in zip(files, each(folder, problem_of, files), strict=True):
        if what is not None:
            file = f"{table}/{shard_path(folder, table, shard).name}"
            problems.append(Problem(file, what, shard=shard, tables=(table,)))
    return problems


def _extra(folder: AnyPath, manifest: Manifest) -> list[str]:
    """Return files that no shard of the run can have, but readers of Parquet would read."""
    scores = (f"scores/{name}" for name in names_in(folder / "scores"))
    tables = {*manifest.tables, "looks", *scores}
    extra = []
    for table in (RECORDS, *sorted(tables)):
        suffix = ".json" if table == RECORDS else ".parquet"
        known = table == RECORDS or table in manifest.tables
        expected = {f"{shard:05d}{suffix}" for shard in manifest.shards} if known else set()
        for name in sorted({*names_in(folder / table)} - expected):
            # Systems leave files that begin with a dot, and nobody reads those.
            if name.endswith(suffix) and not name.startswith("."):
                extra.append(f"{table}/{name}")
    return extra


def find_changes(folder: AnyPath, records: Mapping[int, Record], table: str) -> list[Problem]:
    """Return the files of a table whose bytes are not those that were written."""
    files = [(s, table, one.tables[table]) for s, one in records.items() if table in one.tables]
    return _compare_tables(folder, {table: sizes_in(folder / table)}, files, every_byte=True)


def refuse(folder: AnyPath, problems: list[Problem]) -> None:
    """Raise RunError if there are problems; the message names the first and what to do."""
    if problems:
        more = f" (and {len(problems) - 1} more: `lookback runs verify` lists them)"
        raise RunError(
            f"the run {str(folder)!r} is damaged: {problems[0]}{more if problems[1:] else ''}"
        )

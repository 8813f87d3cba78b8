"""Which runs there are, and how far each is: what was tried, what failed, what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lookback.io.storage import AnyPath, RemotePath, names_in, size_below, to_path
from lookback.runs.jobs import holds_run, read_folders
from lookback.runs.layout import RunError, read_table
from lookback.runs.manifest import Manifest
from lookback.runs.records import SAMPLED, Record
from lookback.runs.verify import check_records

MISSING = "missing"
"""The status of a job that has not begun."""


@dataclass(frozen=True)
class Tally:
    """How far a run is, or one of its jobs."""

    status: str  # as in the manifest; `MISSING` of a job that has not begun
    items: int | None = None  # None of a job that has not begun
    done: int = 0
    failed: int = 0
    unscored: dict[str, int] | None = None  # items done that lack a table, by table


@dataclass(frozen=True)
class Status:
    """How far a run is, and each of its jobs, if it has any."""

    id: str
    whole: Tally
    jobs: Sequence[Tally]

    @property
    def missing(self) -> int:
        return (self.whole.items or 0) - self.whole.done

    @property
    def complete(self) -> bool:
        """Whether every item was tried, and none failed."""
        return self.whole.status == "finished" and not self.whole.failed

    @property
    def open_jobs(self) -> list[int]:
        """The jobs that are to be run, or run again."""
        return [
            index
            for index, job in enumerate(self.jobs)
            if job.status in (MISSING, "running") or job.unscored
        ]

    @property
    def remedy(self) -> str:
        if not self.jobs:
            return "run the same `lookback run` again"
        count = len(self.jobs)
        lacking = sorted(self.whole.unscored or {})
        tables = f" (no {', '.join(lacking)} in some)" if lacking else ""
        names = ranges(self.open_jobs)
        return f"run `lookback run --shard INDEX/{count}` for INDEX {names}{tables}"

    def to_dict(self) -> dict[str, Any]:
        whole = {"id": self.id} | asdict(self.whole) | {"missing": self.missing}
        jobs = [{"shard": f"{i}/{len(self.jobs)}"} | asdict(job) for i, job in enumerate(self.jobs)]
        return whole | {"open_jobs": self.open_jobs, "jobs": jobs}


def read_status(folder: AnyPath) -> Status:
    """Return how far the run in a folder is; raise RunError if there is none, or it is damaged."""
    folders = read_folders(folder)
    whole = folders.manifest
    parts = [_tally(path, manifest, whole) for path, manifest in folders.parts]
    jobs = [Tally(MISSING)] * folders.jobs
    if folders.jobs:
        for (_, manifest), tally in zip(folders.parts, parts, strict=True):
            assert manifest.job is not None
            jobs[manifest.job.index] = tally
    unscored: dict[str, int] = {}
    for part in parts:
        for table, count in (part.unscored or {}).items():
            unscored[table] = unscored.get(table, 0) + count
    done, failed = sum(part.done for part in parts), sum(part.failed for part in parts)
    return Status(whole.id, Tally(whole.status, whole.items, done, failed, unscored), jobs)


def _tally(folder: AnyPath, manifest: Manifest, whole: Manifest) -> Tally:
    """Return how far one folder is with the tables that the whole run is to have."""
    records = check_records(folder, manifest)
    unscored = _lacking(records, [t for t in whole.tables if t not in SAMPLED])
    if manifest.status == "running":
        done, failed = _tried(folder, records)
    else:
        done, failed = manifest.done, manifest.failed
    return Tally(manifest.status, manifest.items, done, failed, unscored)


def _tried(folder: AnyPath, shards: Iterable[int]) -> tuple[int, int]:
    """Return how many items of some shards were tried, and how many of them failed."""
    errors = [read_table(folder, "items", shard, ["error"])["error"] for shard in shards]
    return sum(map(len, errors)), sum(len(column) - column.null_count for column in errors)


def _lacking(records: dict[int, Record], tables: Sequence[str]) -> dict[str, int]:
    """Return of each table that shards lack how many items those shards have."""
    counts = {
        table: sum(r.tables["items"].rows for r in records.values() if table not in r.tables)
        for table in tables
    }
    return {table: count for table, count in counts.items() if count}


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers in ascending order as people and SLURM's --array write them: 0,3-5,9."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


@dataclass(frozen=True)
class ListedRun:
    """A run as `lookback runs list` shows it, by its manifest alone."""

    run: str  # its folder
    bytes: int  # of all files in it
    problem: str | None = None  # why nothing below is known
    id: str | None = None
    benchmark: str | None = None
    model: str | None = None
    image: str | None = None
    status: str | None = None
    created: str | None = None
    items: int | None = None
    n: int | None = None  # None if candidates came from elsewhere
    seed: int | None = None


def list_runs(paths: Iterable[str | os.PathLike[str] | RemotePath]) -> list[ListedRun]:
    """Return all runs in and below some folders, damaged ones too.

    Raises:
        RunError: there is no such folder, or no run in it.
    """
    runs: list[ListedRun] = []
    for path in map(to_path, paths):
        below = [_list_run(folder) for folder in _runs_below(path, set())]
        if not below:
            kind = "no run in or below" if path.is_dir() else "no folder"
            raise RunError(f"{kind} {str(path)!r}: name folders of runs")
        runs += below
    return runs


def _runs_below(folder: AnyPath, seen: set[str]) -> Iterator[AnyPath]:
    """Yield the folders of runs, each once, however links lead there; no hidden folders."""
    if isinstance(folder, Path):
        real = os.path.realpath(folder)
        if real in seen or not folder.is_dir():
            return
        seen.add(real)
    if holds_run(folder):
        yield folder
        return
    for name in names_in(folder):
        if not name.startswith(".") and (folder / name).is_dir():
            yield from _runs_below(folder / name, seen)


def _list_run(folder: AnyPath) -> ListedRun:
    size = size_below(folder)
    try:
        manifest = read_folders(folder).manifest
    except RunError as error:
        return ListedRun(str(folder), size, str(error))
    settings = manifest.settings
    sampling = settings.get("sampling") or {}
    return ListedRun(
        str(folder),
        size,
        id=manifest.id,
        **{name: str(settings[name]) for name in ("benchmark", "model", "image")},
        status=manifest.status,
        created=manifest.created,
        items=manifest.items,
        n=sampling.get("n"),
        seed=sampling.get("seed"),
    )

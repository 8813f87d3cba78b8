"""How far a run is: what was tried, what failed, what is missing, and in which jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lookback.io.storage import AnyPath
from lookback.runs.jobs import read_folders
from lookback.runs.layout import read_table
from lookback.runs.manifest import Manifest
from lookback.runs.records import SAMPLED, Record
from lookback.runs.verify import find_problems, read_records, refuse

MISSING = "missing"
"""The status of a job that has not begun."""


@dataclass(frozen=True)
class Tally:
    """How far a run is, or one of its jobs.

    Attributes:
        status: "running", "finished" or "failed"; of a job that has not begun "missing".
        items: how many there are to try; None of a job that has not begun.
        done: how many were tried.
        failed: how many of these failed.
        unscored: of each table beside items and candidates, for how many of those tried it is not
            made yet; only of tables that lack any.
    """

    status: str
    items: int | None = None
    done: int = 0
    failed: int = 0
    unscored: dict[str, int] | None = None


@dataclass(frozen=True)
class Status:
    """How far a run is.

    Attributes:
        id: the run's.
        whole: of all of it.
        jobs: of each job, by its index; none of a run without jobs.
    """

    id: str
    whole: Tally
    jobs: Sequence[Tally]

    @property
    def missing(self) -> int:
        """How many items were not tried."""
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
        """What to do about what is missing."""
        if not self.jobs:
            return "run the same `lookback run` again"
        count = len(self.jobs)
        lacking = sorted(self.whole.unscored or {})
        tables = f" (no {', '.join(lacking)} in some)" if lacking else ""
        names = ranges(self.open_jobs)
        return f"run `lookback run --shard INDEX/{count}` for INDEX {names}{tables}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = {"id": self.id} | asdict(self.whole) | {"missing": self.missing}
        jobs = [{"shard": f"{i}/{len(self.jobs)}"} | asdict(job) for i, job in enumerate(self.jobs)]
        return told | {"open_jobs": self.open_jobs, "jobs": jobs}


def read_status(folder: AnyPath) -> Status:
    """How far the run in a folder is.

    Raises:
        RunError: there is none, or it is damaged.
    """
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
    """How far what is in one folder is, with the tables that the whole run is to have."""
    records, problems = read_records(folder, manifest)
    refuse(folder, problems + find_problems(folder, manifest, records))
    unscored = _lacking(records, [t for t in whole.tables if t not in SAMPLED])
    if manifest.status == "running":
        done, failed = _tried(folder, records)
    else:
        done, failed = manifest.done, manifest.failed
    return Tally(manifest.status, manifest.items, done, failed, unscored)


def _tried(folder: AnyPath, shards: Iterable[int]) -> tuple[int, int]:
    """How many items of some shards were tried, and how many of them failed."""
    errors = [read_table(folder, "items", shard, ["error"])["error"] for shard in shards]
    return sum(map(len, errors)), sum(len(one) - one.null_count for one in errors)


def _lacking(records: dict[int, Record], tables: Sequence[str]) -> dict[str, int]:
    """Of each table that shards lack, how many items those shards have."""
    counts = {
        table: sum(one.tables["items"].rows for one in records.values() if table not in one.tables)
        for table in tables
    }
    return {table: count for table, count in counts.items() if count}


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in ascending order as people and SLURM's --array write them: 0, 3-5, 9."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)

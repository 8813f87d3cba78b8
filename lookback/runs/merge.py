"""Make one plain run of those that jobs made: the same bytes as one process would have written.

Tables, their records and timings are copied, each table compared with its record on the way; the
manifest says "finished" last. Safe to interrupt: the same call again resumes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lookback.engines.common.options import Progress
from lookback.io.files import read_bytes
from lookback.io.storage import AnyPath, names_in
from lookback.runs.jobs import Folders, read_folders
from lookback.runs.layout import RunError, remove_leftovers, shard_path, write_whole
from lookback.runs.locks import lock
from lookback.runs.manifest import MANIFEST, Manifest
from lookback.runs.records import (
    RECORDS,
    TIMINGS,
    Record,
    checksum_of,
    forget,
    read_record,
    read_timings,
)
from lookback.runs.run import Run
from lookback.runs.start import check_ours, find_damage
from lookback.runs.status import read_status
from lookback.runs.verify import check_records, refuse


def merge(
    folder: AnyPath,
    out: AnyPath,
    *,
    break_lock: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Make one run of the jobs in a folder; their own folders stay as they are.

    Args:
        folder: of the jobs.
        out: where the run is to be: a new folder, or that of a merge that was stopped.
        break_lock: in an object store, remove the lock that a killed process left.
        progress: called with (shards done, total).
        say: called with a line that a user should know.

    Raises:
        RunError: jobs are missing or not finished, something is damaged, or `out` holds something
            else.
    """
    folders = _complete(folder)
    check_ours(out)
    out.mkdir(parents=True, exist_ok=True)
    held = lock(out, break_lock=break_lock)
    try:
        _begin(folders, out)
        _say_versions(folders, say)
        shards = list(_shards(folders))
        for done, (source, shard, record) in enumerate(shards):
            if progress:
                progress(done, len(shards))
            if read_record(out, shard) != record:
                _copy_shard(source, out, shard, record)
            _copy_timings(source, out, shard)
        folders.manifest.write(out)
    finally:
        held.release()
    return Run(out)


def _complete(folder: AnyPath) -> Folders:
    """Return the jobs of a run; raise RunError if something is missing."""
    folders = read_folders(folder)
    if not folders.jobs:
        raise RunError(f"{str(folder)!r} is one run already: there are no jobs to merge")
    if folders.manifest.status == "running":
        remedy = read_status(folder).remedy
        raise RunError(f"{str(folder)!r} is not finished: {remedy}, then merge it")
    return folders


def _begin(folders: Folders, out: AnyPath) -> None:
    """Write the manifest of a run that is not finished, and remove what of it is damaged."""
    manifest = replace(folders.manifest, status="running", done=0, failed=0)
    if (out / MANIFEST).exists():
        before = Manifest.read(out)
        before.check_same(out, manifest)
        more = sorted(before.scorers.keys() - manifest.scorers.keys())
        if more or (before.looks and not manifest.looks):
            what = f"{more[0]} scores" if more else "looks"
            raise RunError(f"{str(out)!r} has {what} that the jobs have not: use another --out")
    damage = find_damage(out, manifest)
    remove_leftovers(out)
    manifest.write(out)
    for problem in damage:
        forget(out, problem.shard, problem.tables)


def _say_versions(folders: Folders, say: Callable[[str], None]) -> None:
    """Say if jobs had different versions: numbers may then differ in the last bits."""
    first, *others = (manifest for _, manifest in folders.parts)
    for other in others:
        names = sorted({*first.versions, *other.versions})
        for name in names:
            here, there = first.versions.get(name), other.versions.get(name)
            if here != there:
                say(f"job {first.job} had {name} {here}, job {other.job} {there}: see manifests")
                return


def _shards(folders: Folders) -> Iterator[tuple[AnyPath, int, Record]]:
    for source, manifest in folders.parts:
        records = check_records(source, manifest)
        refuse(source, read_timings(source, manifest, records).problems)
        for shard, record in records.items():
            yield source, shard, record


def _copy_shard(source: AnyPath, out: AnyPath, shard: int, record: Record) -> None:
    forget(out, shard, ["items", "candidates"])
    for table, known in record.tables.items():
        path = shard_path(source, table, shard)
        data = read_bytes(path)
        if checksum_of(data) != known.sha256:
            raise RunError(
                f"{str(path)!r} is damaged (its sha256 is not that of what was written): run its "
                "job again, then merge"
            )
        write_whole(shard_path(out, table, shard), data)
    record.write(out, shard)


def _copy_timings(source: AnyPath, out: AnyPath, shard: int) -> None:
    names = [name for name in names_in(source / TIMINGS) if name.endswith(f"-{shard:05d}.json")]
    for name in (*names, f"{RECORDS}/{shard:05d}.json"):
        if (source / TIMINGS / name).exists():
            write_whole(out / TIMINGS / name, read_bytes(source / TIMINGS / name))

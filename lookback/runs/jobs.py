"""Read the folder of a run that jobs make, as the run that they are together.

    OUT/job-00-of-16/   a run of its own; its manifest says which part of the whole it is
    OUT/job-01-of-16/
    OUT                 opened, all of them: the same shards as one process makes

No job waits for another, and none writes to the folder of another. What all of them are is found
when it is read, so nothing must be written at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lookback.io.storage import AnyPath, each, names_in
from lookback.runs.layout import RunError
from lookback.runs.manifest import MANIFEST, Job, Manifest, find_difference


@dataclass(frozen=True)
class Folders:
    """Where the shards of a run are."""

    manifest: Manifest  # the whole run's
    parts: Sequence[tuple[AnyPath, Manifest]]  # the folders of jobs, or the run's own
    missing: Sequence[int] = ()  # the indices of jobs that have not begun

    @property
    def jobs(self) -> int:
        """How many make it together; 0 for a run without jobs."""
        job = self.parts[0][1].job
        return job.of if job and self.manifest.job is None else 0

    @property
    def shards(self) -> int:
        """How many shards it is to have, those of jobs that have not begun too."""
        job = self.parts[0][1].job
        return job.shards if job and self.jobs else len(self.manifest.shards)


def read_folders(folder: AnyPath) -> Folders:
    """Return where the run in a folder is: made there, or by jobs in folders of its own.

    Raises:
        RunError: there is none, a manifest cannot be read, or jobs are of different runs.
    """
    jobs = [] if (folder / MANIFEST).exists() else find_jobs(folder)
    if not jobs:
        manifest = Manifest.read(folder)
        return Folders(manifest, [(folder, manifest)])
    paths = [folder / job.name for job in jobs]
    parts = list(zip(paths, each(folder, Manifest.read, paths), strict=True))
    _check_jobs(folder, parts, jobs)
    count = jobs[0].of
    missing = sorted(set(range(count)) - {job.index for job in jobs})
    manifests = [manifest for _, manifest in parts]
    return Folders(_combine(manifests, complete=not missing), parts, missing)


def find_jobs(folder: AnyPath) -> list[Job]:
    """Return the jobs that have begun in a folder, by index; one without a manifest has not."""
    named = list(filter(None, map(Job.of_folder, names_in(folder))))
    begun = each(folder, lambda job: (folder / job.name / MANIFEST).exists(), named)
    jobs = [job for job, has_begun in zip(named, begun, strict=True) if has_begun]
    return sorted(jobs, key=lambda job: (job.of, job.index))


def holds_run(folder: AnyPath) -> bool:
    """Return whether a folder is a run, made there or by jobs."""
    return (folder / MANIFEST).exists() or bool(find_jobs(folder))


def check_begin(out: AnyPath, job: Job | None) -> None:
    """Raise RunError for a folder with a run of the other kind, or of another number of jobs."""
    others = find_jobs(out)
    if job is None and others and not (out / MANIFEST).exists():
        raise RunError(
            f"{str(out)!r} holds a run that {others[0].of} jobs make: go on with --shard INDEX/"
            f"{others[0].of}, make one run of it with `lookback runs merge`, or use another --out"
        )
    if job is not None and (out / MANIFEST).exists():
        raise RunError(
            f"{str(out)!r} holds a run that was begun without --shard: go on without it, or use "
            "another --out"
        )
    if job is not None:
        _check_count(out, [*others, job])


def check_siblings(out: AnyPath, job: Job, manifest: Manifest) -> None:
    """Raise RunError if a job is of another run than those that have begun."""
    for other in find_jobs(out):
        if other.index != job.index:
            before = Manifest.read(out / other.name)
            # As it would be read again: tuples are lists in JSON.
            now = json.loads(json.dumps(dict(manifest.settings)))
            _check_same(out, other, before, job, replace(manifest, settings=now))
            return  # all others were compared with it when they began


def _check_jobs(
    folder: AnyPath, parts: Sequence[tuple[AnyPath, Manifest]], jobs: Sequence[Job]
) -> None:
    """Raise RunError for folders that are not jobs of one run."""
    _check_count(folder, jobs)
    owners: dict[int, Job] = {}
    for job, (path, manifest) in zip(jobs, parts, strict=True):
        own = manifest.job
        if own is None or (own.index, own.of) != (job.index, job.of):
            raise RunError(
                f"{str(path)!r} holds {f'job {own}' if own else 'a run without jobs'}, not job "
                f"{job}: was it renamed? put it back, or move it away"
            )
        _check_same(folder, jobs[0], parts[0][1], job, manifest)
        for shard in manifest.shards:
            if owners.setdefault(shard, job) != job:
                raise RunError(
                    f"{str(folder)!r}: jobs {owners[shard]} and {job} both have shard {shard}: "
                    "move one of them away and run it again"
                )


def _check_count(folder: AnyPath, jobs: Iterable[Job]) -> None:
    counts = sorted({job.of for job in jobs})
    if len(counts) > 1:
        raise RunError(
            f"{str(folder)!r} holds jobs of {counts[0]} and of {counts[1]}: all jobs of a run are "
            "of the same number; move those of the other away, or use another --out"
        )


def _check_same(folder: AnyPath, first: Job, before: Manifest, job: Job, now: Manifest) -> None:
    """Raise RunError for jobs of different runs, naming the first setting that differs."""
    pairs: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [
        (before.settings, now.settings),
        (_totals(before), _totals(now)),
    ]
    for old, new in pairs:
        key = find_difference(old, new)
        if key is not None:
            raise RunError(
                f"{str(folder)!r} holds jobs of different runs: {key} of job {first} is "
                f"{json.dumps(old.get(key))}, of job {job} {json.dumps(new.get(key))}; use the "
                "same settings for all jobs, or another --out"
            )
    for name in before.scorers.keys() & now.scorers.keys():
        if before.scorers[name] != json.loads(json.dumps(now.scorers[name])):
            raise RunError(
                f"{str(folder)!r}: {name} scores of job {first} were made with "
                f"{json.dumps(before.scorers[name])}, of job {job} with "
                f"{json.dumps(now.scorers[name])}"
            )
    if before.looks and now.looks and before.looks != now.looks:
        raise RunError(
            f"{str(folder)!r}: job {first} has looks of the first {before.looks} items, job {job} "
            f"of {now.looks}: use the same --look for all jobs, or another --out"
        )


def _totals(manifest: Manifest) -> dict[str, int | None]:
    """Return what every job knows of the whole run."""
    job = manifest.job
    items, shards = (job.items, job.shards) if job else (None, None)
    return {"number of items": items, "number of shards": shards, "left out": manifest.left_out}


def _combine(manifests: Sequence[Manifest], complete: bool) -> Manifest:
    """Return the manifest of the whole run, as one process would have written it."""
    first = manifests[0]
    assert first.job is not None
    scorers = {name: made for m in manifests for name, made in m.scorers.items()}
    looks = max(m.looks for m in manifests)
    whole = replace(
        first,
        job=None,
        items=first.job.items,
        done=sum(m.done for m in manifests),
        failed=sum(m.failed for m in manifests),
        shards=sorted(shard for m in manifests for shard in m.shards),
        scorers=scorers,
        looks=looks,
        created=min(m.created for m in manifests),
        status="running",
    )
    # A job that lacks a scorer that others have is not done with the run that they are together.
    tried = complete and all(
        m.status != "running" and m.scorers.keys() == scorers.keys() and m.looks == looks
        for m in manifests
    )
    if not tried:
        return whole
    if (whole.items, len(whole.shards)) != (whole.done, first.job.shards):
        raise RunError(
            f"the jobs have {whole.done} items in {len(whole.shards)} shards, the run "
            f"{whole.items} in {first.job.shards}: make it again in another folder"
        )
    return replace(whole, status="failed" if whole.failed == whole.items else "finished")

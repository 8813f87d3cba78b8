"""Start a run, or resume it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lookback.benchmarks.base import GENERATED, LeavingOut
from lookback.embedded import PHOTOGRAPH, shows_photograph
from lookback.engines.common.options import Progress
from lookback.io.json_values import check_text
from lookback.io.storage import AnyPath, RemotePath, each, to_path
from lookback.runs.executors import (
    EngineInfo,
    Executor,
    ProcessWorker,
    SerialExecutor,
    ShardBatch,
    WorkerPool,
    plan_batches,
)
from lookback.runs.jobs import check_begin, check_siblings
from lookback.runs.layout import (
    OURS,
    SHARD,
    RunError,
    read_table,
    remove_leftovers,
    shard_path,
)
from lookback.runs.locks import lock
from lookback.runs.manifest import MANIFEST, Job, Manifest, versions
from lookback.runs.plan import Plan
from lookback.runs.records import Problem, forget, forget_timings, read_record, read_timings
from lookback.runs.run import Run
from lookback.runs.verify import find_problems, read_records, refuse
from lookback.runs.work import Worker
from lookback.scores.base import get_scorer

if TYPE_CHECKING:
    from lookback.runs.ray_executor import Cluster

MOST_LINES = 5
"""Lines left out that are named one by one."""
CHECKED_ITEMS = 20
"""Items, the first ones, whose pictures are checked before a run with the embedded model."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Summary:
    """How a run ended."""

    run: Run
    items: int
    failed: list[tuple[str, str]]  # (id, error) of items that failed, and of scores that did
    worked: int  # pieces of work that this call did
    left_out: int = 0  # lines of one's own data that could not be used


def start(
    plan: Plan,
    out: str | AnyPath,
    *,
    workers: int = 1,
    cluster: Cluster | None = None,
    retry_failed: bool = False,
    job: Job | None = None,
    break_lock: bool = False,
    progress: Progress | None = None,
    say: Say = lambda line: None,
) -> Summary:
    """Start a run in a folder, or resume the one that is there.

    Args:
        plan: what to do; must be the same when a run is resumed, except for scorers, which may be
            added.
        out: the folder.
        workers: processes that share the work.
        cluster: the Ray cluster whose actors they are; by default they are of this machine.
        retry_failed: try items again that failed before.
        job: make this part of the run alone, in a folder of its own in `out`.
        break_lock: in an object store, remove the lock that a killed process left.
        progress: called with (pieces of work done, total).
        say: called with a line that a user should know.

    Raises:
        RunError: the folder holds another run, or another process is writing to it.
    """
    check_workers(workers)
    whole = to_path(out)
    check_text(str(whole), f"the folder {str(whole)!r}")  # which Parquet could not write to
    if isinstance(whole, RemotePath) and whole.scheme == "memory" and workers > 1:
        raise RunError(f"{str(whole)!r} is in the memory of one process: use --workers 1")
    check_begin(whole, job)
    folder = whole if job is None else whole / job.name
    check_ours(folder)
    worker = Worker(plan, folder)
    _say_notes(worker, say)
    # A second writer is refused before it loads a model; a new folder is made after that, when
    # nothing can be wrong with the settings any more.
    executor = _make_executor(worker, workers, cluster, say)
    held = lock(folder, break_lock=break_lock) if folder.exists() else None
    try:
        engine = executor.load()
        if held is None:
            folder.mkdir(parents=True, exist_ok=True)
            held = lock(folder, break_lock=break_lock)
        _say_photographs(worker, engine, say)
        manifest = _begin(plan, worker, engine, job, say)
        damage = find_damage(folder, manifest)
        remove_leftovers(folder)
        manifest.write(folder)
        for problem in damage:
            say(f"{problem.file} {problem.problem}: it is made again")
            forget(folder, problem.shard, problem.tables)
        _forget_timings(folder, manifest, say)
        wanted = replace(plan, scorers=tuple(manifest.scorers), look=manifest.looks)
        if retry_failed:
            _forget_failures(folder)
        work = PendingWork(manifest, worker)
        work.run(executor, plan_batches(wanted, work.shards, engine.in_flight), progress)
        remove_leftovers(folder)  # of workers that died
        return _finish(folder, work.worked)
    finally:
        executor.close()
        if held is not None:
            held.release()


def check_workers(workers: int) -> None:
    """Raise RunError for a number of workers with which nothing would be done."""
    if workers < 1:
        raise RunError(f"workers = {workers}: must be at least 1")


def check_ours(folder: AnyPath) -> None:
    """Raise RunError for a folder that is no run of ours, before anything in it is touched."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{str(folder)!r} is no folder: name another with --out")
    if (folder / MANIFEST).exists():
        Manifest.read(folder)  # raises if this version cannot read it
    elif any(not path.name.startswith(OURS) for path in folder.iterdir()):
        raise RunError(f"{str(folder)!r} holds other files: name a new folder with --out")


def find_damage(folder: AnyPath, manifest: Manifest) -> list[Problem]:
    """Return the tables that are not as they were written, and must be made again.

    Raises:
        RunError: there is a file that no making again would mend.
    """
    records, problems = read_records(folder, manifest)
    problems += find_problems(folder, manifest, records, every_byte=True)
    refuse(folder, [problem for problem in problems if not problem.tables])
    return problems


def _make_executor(worker: Worker, workers: int, cluster: Cluster | None, say: Say) -> Executor:
    plan, folder = worker.plan, worker.folder
    if cluster is not None:
        from lookback.runs.ray_executor import RayExecutor

        return RayExecutor(plan, folder, workers, cluster, say)
    if workers > 1:
        return WorkerPool(lambda: ProcessWorker(plan, folder, workers), workers, say)
    return SerialExecutor(worker)


def _begin(plan: Plan, worker: Worker, engine: EngineInfo, job: Job | None, say: Say) -> Manifest:
    """Return the manifest of a run that starts, or of the one that is there if it is the same.

    One that failed altogether has nothing to lose, and starts anew, whatever its settings were.
    """
    folder, benchmark = worker.folder, worker.benchmark
    all_shards = worker.shards
    shards = all_shards if job is None else job.share(all_shards)
    manifest = Manifest.begin(
        settings=plan.settings(engine, benchmark, worker.source.identity),
        defaults=engine.defaults,
        items=len(worker.places_in(shards)),
        shards=shards,
        job=job and replace(job, items=len(worker.places), shards=len(all_shards)),
        scorers={name: get_scorer(name.partition("@")[0]).defaults for name in plan.scorers},
        looks=plan.look,
        candidates=plan.candidates,
        left_out=len(_left_out(worker)),
        # Absolute, so that studies find the images from another folder.
        data=plan.data and str(to_path(plan.data).expanduser().absolute()),
        title=benchmark.title,
        versions=versions(engine.identity.versions),
    )
    if job is not None:
        check_siblings(folder.parent, job, manifest)
    if not (folder / MANIFEST).exists():
        return manifest
    before = Manifest.read(folder)
    if before.status == "failed" and not _has_candidates(folder, before):
        say("every item of this run failed before: it begins anew")
        for shard in before.shards:
            forget(folder, shard, before.tables)
        return manifest
    before.check_same(folder, manifest)
    if before.versions != manifest.versions:
        say("other versions than when this run began: see its manifest")
    return before.with_scorers(manifest.scorers).with_looks(manifest.looks)


def _has_candidates(folder: AnyPath, manifest: Manifest) -> bool:
    """Return whether anything was drawn, whatever the manifest says: it is never thrown away."""
    records, _ = read_records(folder, manifest)
    return any(record.tables["candidates"].rows for record in records.values())


def _forget_timings(folder: AnyPath, manifest: Manifest, say: Say) -> None:
    """Leave out timings that are damaged: the results that were timed are worth more."""
    records, _ = read_records(folder, manifest)
    for problem in read_timings(folder, manifest, records).problems:
        if problem.shard >= 0:
            say(f"{problem.file} {problem.problem}: it is left out, the results stay")
            forget_timings(folder, problem.shard, problem.tables)


def _left_out(worker: Worker) -> list[str]:
    benchmark = worker.benchmark
    return benchmark.left_out() if isinstance(benchmark, LeavingOut) else []


def _say_notes(worker: Worker, say: Say) -> None:
    left_out = _left_out(worker)
    for line in left_out[:MOST_LINES]:
        say(f"left out: {line}")
    if len(left_out) > MOST_LINES:
        say(f"and {len(left_out) - MOST_LINES} more lines left out")
    for note in worker.benchmark.notes:
        say(note)


def _say_photographs(worker: Worker, engine: EngineInfo, say: Say) -> None:
    """Say, once, that the embedded model does not know what it is to be shown."""
    known = worker.plan.benchmark in GENERATED or worker.plan.image == "none"
    if engine.identity.model != "embedded" or known:
        return
    for place in worker.places[:CHECKED_ITEMS]:
        try:
            is_photograph = shows_photograph(worker.questions.of(place).conversation)
        except Exception:  # it cannot be read, which is said of the item
            continue
        if is_photograph:
            say(PHOTOGRAPH)
            return


class PendingWork:
    """What a run lacks, in pieces of work: a table of an item."""

    def __init__(self, manifest: Manifest, worker: Worker) -> None:
        tables = [table for table in manifest.tables if table != "candidates"]  # with the items
        sizes = Counter(place // SHARD for place in worker.places)

        def find_missing(shard: int) -> list[str]:
            record = read_record(worker.folder, shard)
            return [t for t in tables if record is None or t not in record.tables]

        lists = each(worker.folder, find_missing, manifest.shards)
        missing = dict(zip(manifest.shards, lists, strict=True))
        self.shards = [shard for shard, left in missing.items() if left]  # that lack a table
        self.total = manifest.items * len(tables)
        self.done = self.total - sum(sizes[shard] * len(left) for shard, left in missing.items())
        self.worked = 0  # pieces done by `run`

    def run(self, executor: Executor, batches: list[ShardBatch], progress: Progress | None) -> None:
        def report(count: int) -> None:
            self.done += count
            self.worked += count
            if progress:
                progress(self.done, self.total)

        report(0)
        executor.run(batches, report)


def _finish(folder: AnyPath, worked: int) -> Summary:
    """Count what failed, and write in the manifest that all was tried."""
    run = Run(folder)
    items = run.table("items", ("item", "id", "error")).to_pylist()
    names = {row["item"]: row["id"] for row in items}
    failed = [(row["id"], row["error"]) for row in items if row["error"]]
    failed_items = len(failed)
    tables = {f"scores/{name}": name for name in run.manifest.scorers}
    tables |= {"looks": "look"} if run.manifest.looks else {}
    for table, name in tables.items():
        for row in run.table(table, ("item", "error")).to_pylist():
            if row["error"]:
                failed.append((names[row["item"]], f"{name}: {row['error']}"))
    all_failed = items and failed_items == len(items)
    replace(
        run.manifest,
        status="failed" if all_failed else "finished",
        done=len(items),
        failed=failed_items,
    ).write(folder)
    return Summary(Run(folder), len(items), failed, worked, run.manifest.left_out)


def _forget_failures(folder: AnyPath) -> None:
    """Forget the tables in which anything failed: what went well comes out the same again."""
    for shard in Manifest.read(folder).shards:
        record = read_record(folder, shard)
        for table in record.tables if record else ():
            if table == "candidates" or not shard_path(folder, table, shard).exists():
                continue  # has no failures; went with its items
            errors = read_table(folder, table, shard, ["error"])["error"]
            if errors.null_count < len(errors):
                forget(folder, shard, [table])

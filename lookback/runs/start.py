"""Begin a run, or go on with it; and say beforehand how long it will take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from lookback.benchmarks.base import LeavingOut
from lookback.engines import Progress
from lookback.runs.layout import SHARD, RunError, lock, read_shard, read_table, shard_path
from lookback.runs.manifest import MANIFEST, Manifest, versions
from lookback.runs.plan import Plan
from lookback.runs.run import Run
from lookback.runs.work import Worker
from lookback.scores.base import get_scorer
from lookback.signals import BY_LAYER

SAID = 5
"""Lines left out that are told one by one."""
BYTES_PER_SHARE = 4  # of each layer, with --by-layer
BYTES_A_TOKEN = 21  # measured on sampled runs: 4 signals of 4 bytes, ids and words


@dataclass(frozen=True)
class Summary:
    """How a run ended.

    Attributes:
        run: the run.
        items: how many items it has.
        failed: (id, error) of those that failed, and of scores that did.
        worked: how many pieces of work this call did; 0 if all was there already.
        left_out: how many lines of one's own data could not be used.
    """

    run: Run
    items: int
    failed: list[tuple[str, str]]
    worked: int
    left_out: int = 0


@dataclass(frozen=True)
class Estimate:
    """What a run will take, from its first items.

    Attributes:
        items: how many items it has.
        tried: how many of them were tried.
        seconds: for the whole run.
        megabytes: on disk.
        failed: how many of those tried failed.
    """

    items: int
    tried: int
    seconds: float
    megabytes: float
    failed: int


def start(
    plan: Plan,
    out: str | Path,
    *,
    workers: int = 1,
    retry_failed: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Summary:
    """Begin a run in a folder, or go on with the one that is there.

    Args:
        plan: what to do; must be the same when a run goes on, except for scorers, which may be
            added.
        out: the folder.
        workers: processes that share the work.
        retry_failed: try items again that failed before.
        progress: called with (pieces of work done, of so many).
        say: told in a line what a user should know.

    Raises:
        RunError: the folder holds another run, or another process is writing to it.
    """
    if workers < 1:
        raise RunError(f"workers = {workers}: must be at least 1")
    folder = Path(out)
    if folder.exists() and not (folder / MANIFEST).exists() and _foreign(folder):
        raise RunError(f"{str(folder)!r} holds other files: name a new folder with --out")
    folder.mkdir(parents=True, exist_ok=True)
    held = lock(folder)
    try:
        for left in [*folder.glob(".*.[0-9]*"), *folder.glob("*/.*.[0-9]*")]:
            left.unlink()  # halves that a killed process left
        worker = Worker(plan, folder)
        _tell(worker, say)
        plan = _begin(plan, folder, worker, say)
        worker.plan = plan
        if retry_failed:
            _forget_failures(folder)
        worked = _work(plan, folder, worker, workers, progress)
        return _finish(folder, worked)
    finally:
        held.release()


def estimate(plan: Plan, workers: int = 1, tries: int = 3) -> Estimate:
    """Try the first items without keeping anything; the very first only warms up."""
    worker = Worker(plan, Path())
    total = len(worker.places)
    if total < 2:
        raise RunError(f"there is nothing to estimate for {total} items: run it")
    tokens, failed, layers = [], 0, 0
    for number, place in enumerate(worker.places[: tries + 1]):
        if number == 1:
            began = time.perf_counter()
        head, candidates, _ = worker.sample(place)
        rows = worker.rows(place, candidates)
        if candidates:
            for name in plan.scorers:
                worker.score(name, place, candidates)
        tokens.append(sum(row["length"] for row in rows))
        depths = (len(row[BY_LAYER][0]) for row in rows if row.get(BY_LAYER))
        layers = max(layers, next(depths, 0))
        failed += head["error"] is not None
    tried = len(tokens) - 1
    seconds = (time.perf_counter() - began) / tried * total / workers
    bytes_per_token = BYTES_A_TOKEN + BYTES_PER_SHARE * layers
    megabytes = sum(tokens) / len(tokens) * total * bytes_per_token / 1e6
    return Estimate(total, len(tokens), seconds, megabytes, failed)


def _begin(plan: Plan, folder: Path, worker: Worker, say: Callable[[str], None]) -> Plan:
    """Write the manifest, or compare with the one that is there; the plan with all its scorers."""
    engine, benchmark = worker.engine, worker.benchmark
    manifest = Manifest.begin(
        settings=plan.settings(engine, benchmark, worker.source.identity),
        defaults=engine.family.defaults,
        items=len(worker.places),
        scorers={name: get_scorer(name.partition("@")[0]).defaults for name in plan.scorers},
        candidates=plan.candidates,
        left_out=len(_left_out(worker)),
        # Absolute, so that studies find the images from another folder.
        data=plan.data and str(Path(plan.data).expanduser().absolute()),
        title=benchmark.title,
        versions=versions(engine.identity().versions),
    )
    if (folder / MANIFEST).exists():
        before = Manifest.read(folder)
        before.check_same(folder, manifest)
        if before.versions != manifest.versions:
            say("other versions than when this run began: see its manifest")
        manifest = before.with_scorers(manifest.scorers)
    manifest.write(folder)
    return replace(plan, scorers=tuple(manifest.scorers))


def _left_out(worker: Worker) -> list[str]:
    benchmark = worker.benchmark
    return benchmark.left_out() if isinstance(benchmark, LeavingOut) else []


def _tell(worker: Worker, say: Callable[[str], None]) -> None:
    """What a user should know about the items."""
    left_out = _left_out(worker)
    for line in left_out[:SAID]:
        say(f"left out: {line}")
    if len(left_out) > SAID:
        say(f"and {len(left_out) - SAID} more lines left out")
    for note in worker.benchmark.notes:
        say(note)


def _work(plan: Plan, folder: Path, worker: Worker, workers: int, progress: Progress | None) -> int:
    tables = ["items", *(f"scores/{name}" for name in plan.scorers)]
    missing = {
        shard: [t for t in tables if not shard_path(folder, t, shard).exists()]
        for shard in worker.shards
    }
    sizes = Counter(place // SHARD for place in worker.places)
    total = len(worker.places) * len(tables)
    before = done = total - sum(sizes[shard] * len(left) for shard, left in missing.items())

    def report(stage: str, place: int, error: str | None) -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    if progress:
        progress(done, total)
    todo = [shard for shard, left in missing.items() if left]
    if workers == 1 or len(todo) < 2:
        for shard in todo:
            worker.work(shard, report)
    else:
        from lookback.runs.workers import work_together

        del worker.engine  # each process loads its own
        work_together(plan, folder, todo, min(workers, len(todo)), report)
    return done - before


def _finish(folder: Path, worked: int) -> Summary:
    """Count what failed, and say in the manifest that all was tried."""
    items = read_table(folder, "items", ("item", "id", "error")).to_pylist()
    names = {row["item"]: row["id"] for row in items}
    run = Run(folder)
    failed = [(row["id"], row["error"]) for row in items if row["error"]]
    broken = len(failed)
    for name in run.manifest.scorers:
        for row in read_table(folder, f"scores/{name}", ("item", "error")).to_pylist():
            if row["error"]:
                failed.append((names[row["item"]], f"{name}: {row['error']}"))
    replace(run.manifest, status="finished", done=len(items), failed=broken).write(folder)
    return Summary(Run(folder), len(items), failed, worked, run.manifest.left_out)


def _forget_failures(folder: Path) -> None:
    """Remove the shards in which anything failed: what went well comes out the same again."""
    for path in sorted([*folder.glob("items/*.parquet"), *folder.glob("scores/*/*.parquet")]):
        table = path.parent.relative_to(folder).as_posix()
        if not path.exists():  # went with its items
            continue
        errors = read_shard(folder, table, int(path.stem), ["error"])["error"]
        if errors.null_count == len(errors):
            continue
        path.unlink()
        if table == "items":
            for scores in folder.glob(f"scores/*/{path.name}"):
                scores.unlink()


def _foreign(folder: Path) -> bool:
    """Whether a folder without a manifest has more in it than a run killed at its very start."""
    return any(not path.name.startswith(("lock", f".{MANIFEST}.")) for path in folder.iterdir())

"""Where shards are made: in this process, or by a pool of workers that run elsewhere.

`WorkerPool` assigns shards to workers, and again if a worker dies; what a worker is (a process of
this machine here, a Ray actor in `ray_executor.py`) is a subclass of `PoolWorker`. What a worker
does with a shard is always `lookback.runs.work.Worker`, so all executors write the same bytes.

Not `concurrent.futures.ProcessPoolExecutor`: there the death of one worker ends all of them, with
their models and what they were working on, and nobody learns which it was.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

from lookback.engines import Identity
from lookback.errors import error_line
from lookback.io.storage import AnyPath
from lookback.registry import PluginError, plugin_in
from lookback.runs.layout import SHARD, RunError

if TYPE_CHECKING:
    from lookback.engines import Engine
    from lookback.runs.plan import Plan
    from lookback.runs.work import Report, Worker

RETRIES = 3
"""How often a shard is tried again after its worker died, and a model loaded again."""
THREADS_VARIABLE = "OMP_NUM_THREADS"
THIS_MACHINE = "this machine"


@dataclass(frozen=True)
class EngineInfo:
    """What an executor knows of a loaded model."""

    identity: Identity
    defaults: Mapping[str, float]  # its family's alpha and lam
    in_flight: int = 1  # items that it is asked about at once
    node: str = THIS_MACHINE  # that it is on

    @classmethod
    def of(cls, engine: Engine, in_flight: int = 1) -> EngineInfo:
        return cls(engine.identity(), dict(engine.family.defaults), in_flight)


@dataclass(frozen=True)
class ShardBatch:
    """Shards that a worker makes together."""

    plan: Plan  # may name more scorers than when the worker was started
    shards: tuple[int, ...]


def plan_batches(plan: Plan, shards: Sequence[int], in_flight: int) -> list[ShardBatch]:
    """Group shards so that a batch has as many items as an engine wants in flight.

    A batch is what is lost at most when a worker dies.
    """
    size = max(1, in_flight // SHARD)
    return [ShardBatch(plan, tuple(shards[i : i + size])) for i in range(0, len(shards), size)]


class Executor(ABC):
    """Makes shards of a run."""

    @abstractmethod
    def load(self) -> EngineInfo:
        """Load a model, the first of perhaps several."""

    @abstractmethod
    def run(self, batches: Sequence[ShardBatch], report: Report) -> None:
        """Make all batches; raise what stopped a worker, or RunError if they die repeatedly."""

    def close(self) -> None:  # noqa: B027  (nothing to do for this process)
        """End all workers, whatever they are doing."""


class SerialExecutor(Executor):
    """This process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def load(self) -> EngineInfo:
        return self.worker.load()

    def run(self, batches: Sequence[ShardBatch], report: Report) -> None:
        for batch in batches:
            self.worker.plan = batch.plan
            self.worker.work(batch.shards, report)


class WorkerDiedError(Exception):
    """A worker is gone, and what it was working on with it; the message says why."""


class PoolWorker(ABC):
    """One worker of a pool, as seen from here: it starts when it is made.

    `load` and `run` block, and raise WorkerDiedError if the worker dies, or what stopped it.
    """

    @abstractmethod
    def load(self) -> EngineInfo:
        """Wait until its model is loaded."""

    @abstractmethod
    def run(self, batch: ShardBatch, report: Report) -> None:
        """Have it make a batch."""

    @abstractmethod
    def close(self) -> None:
        """End it, whatever it is doing."""


class WorkerPool(Executor):
    """Several workers, each with a model of its own, which take batch after batch.

    A batch whose worker died is made again; an error of a worker ends the run. `start` starts a
    worker, of which there are at most `workers`; `say` is called with lines for the user.
    """

    def __init__(
        self,
        start: Callable[[], PoolWorker],
        workers: int,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.start, self.workers, self.say = start, workers, say
        self.first: EngineInfo | None = None
        self._nodes: dict[PoolWorker, str] = {}  # of all workers that are there
        self._idle: list[PoolWorker] = []
        self._pending: dict[Future[Any], tuple[PoolWorker, ShardBatch | None]] = {}
        self._deaths: Counter[int | None] = Counter()
        self._reporting = threading.Lock()
        self._threads = ThreadPoolExecutor(workers)  # each waits for one worker

    def load(self) -> EngineInfo:
        """Start one worker; the others are started when it is known how many have work."""
        self._start_worker()
        while self.first is None:
            self._handle_results(deque())
        return self.first

    def run(self, batches: Sequence[ShardBatch], report: Report) -> None:
        waiting = deque(batches)
        while len(self._nodes) < min(self.workers, len(batches)):
            self._start_worker()
        self._assign(waiting, report)
        while waiting or any(batch for _, batch in self._pending.values()):
            self._handle_results(waiting)
            self._assign(waiting, report)

    def close(self) -> None:
        for worker in self._nodes:
            worker.close()
        self._threads.shutdown()

    def _start_worker(self) -> None:
        worker = self.start()
        self._nodes[worker] = THIS_MACHINE
        self._pending[self._threads.submit(worker.load)] = worker, None

    def _assign(self, waiting: deque[ShardBatch], report: Report) -> None:
        while waiting and self._idle:
            worker, batch = self._idle.pop(0), waiting.popleft()
            future = self._threads.submit(self._run_batch, worker, batch, report)
            self._pending[future] = worker, batch

    def _run_batch(self, worker: PoolWorker, batch: ShardBatch, report: Report) -> None:
        done = 0

        def count(pieces: int) -> None:
            nonlocal done
            with self._reporting:
                report(pieces)
            done += pieces

        try:
            worker.run(batch, count)
        except WorkerDiedError:
            count(-done)  # they are to be done again
            raise

    def _handle_results(self, waiting: deque[ShardBatch]) -> None:
        """Wait until a worker is ready, has made its batch, or failed."""
        finished, _ = wait(self._pending, return_when=FIRST_COMPLETED)
        for future in finished:
            worker, batch = self._pending.pop(future)
            try:
                result = future.result()
            except WorkerDiedError as death:
                self._handle_worker_death(worker, batch, str(death), waiting)
                continue
            if batch is None:
                self._check_model(result)
                self._nodes[worker] = result.node
                self._deaths[None] = 0
            self._idle.append(worker)

    def _check_model(self, info: EngineInfo) -> None:
        """Raise RunError unless a worker has the same model as the first."""
        first = self.first = self.first or info
        for field in fields(Identity):
            here, there = (getattr(one.identity, field.name) for one in (info, first))
            if here != there:
                raise RunError(
                    f"the worker on {info.node} has another {field.name} than that on "
                    f"{first.node}: {here!r}, not {there!r}; make them the same, or choose the "
                    "machines"
                )

    def _handle_worker_death(
        self, worker: PoolWorker, batch: ShardBatch | None, reason: str, waiting: deque[ShardBatch]
    ) -> None:
        """Put its batch back, and start another worker; raise RunError if that was done before."""
        worker.close()
        node = self._nodes.pop(worker)
        where = "" if node == THIS_MACHINE else f" on {node}"
        shard = batch.shards[0] if batch else None  # None: while it loaded its model
        self._deaths[shard] += 1
        if self._deaths[shard] > RETRIES:
            at = "" if shard is None else f" at shard {shard}"
            raise RunError(
                f"a worker{where} died{at}, {self._deaths[shard]} times in a row ({reason}): what "
                "was done before is kept; run the same command again when that is mended, perhaps "
                "with fewer --workers"
            )
        retry = "its model is loaded again" if shard is None else f"shard {shard} is made again"
        self.say(f"a worker{where} died ({reason}): {retry}")
        if batch:
            waiting.appendleft(batch)
        self._start_worker()


class ProcessWorker(PoolWorker):
    """A process of this machine, which writes its shards itself.

    It has its share of the cores of `workers`, also if some of them have no work: another number of
    threads rounds differently.
    """

    def __init__(self, plan: Plan, folder: AnyPath, workers: int) -> None:
        context = get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(plan, folder, child), daemon=True)
        with _threads_set(max(1, (os.cpu_count() or 1) // workers)):
            self._process.start()
        child.close()  # so that its end is the end of the pipe

    def load(self) -> EngineInfo:
        info: EngineInfo = self._receive()
        return info

    def run(self, batch: ShardBatch, report: Report) -> None:
        with suppress(OSError):  # it is gone, which the next line finds
            self._pipe.send(batch)
        while (pieces := self._receive()) is not None:
            report(pieces)

    def _receive(self) -> Any:
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            status = self._process.exitcode
            raise WorkerDiedError(f"exit status {status}; is the memory full?") from None
        if isinstance(message, Exception):
            raise message
        return message

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


@contextmanager
def _threads_set(count: int) -> Iterator[None]:
    """Set the number of threads that libraries use in processes started inside."""
    before = os.environ.get(THREADS_VARIABLE)
    os.environ[THREADS_VARIABLE] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS_VARIABLE]
        else:
            os.environ[THREADS_VARIABLE] = before


def _serve(plan: Plan, folder: AnyPath, pipe: Any) -> None:
    """Make the batches that come through a pipe; send pieces done, None after each batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    threading.Thread(target=_die_with_parent, daemon=True).start()

    def send(message: Any) -> None:
        try:
            pipe.send(message)
        except OSError:  # the parent is gone; raised, it would be an item's error in the run
            os._exit(1)

    try:
        from lookback.runs.work import Worker

        worker = Worker(plan, folder)
        send(worker.load())
        while True:
            batch: ShardBatch = pipe.recv()
            worker.plan = batch.plan
            worker.work(batch.shards, send)
            send(None)
    except BaseException as error:
        send(portable(error))


def _die_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def portable(error: BaseException) -> Exception:
    """Return the error if it survives pickling, else one with its words.

    One that passed through a plugin names the plugin, which the traceback alone knows.
    """
    if (plugin := plugin_in(error.__traceback__)) is not None:
        return PluginError(f"the plugin {plugin} failed: {error_line(error)}")
    if not isinstance(error, Exception):
        return RunError(error_line(error))
    loads: Callable[[bytes], Any] = pickle.loads
    try:
        loads(pickle.dumps(error))
    except Exception:
        return RunError(f"{type(error).__name__}: {error}")
    return error

"""Several processes on one run: each takes the next shard; the first error stops all."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

from lookback.runs.layout import RunError
from lookback.storage import AnyPath

if TYPE_CHECKING:
    from lookback.runs.plan import Plan
    from lookback.runs.work import Report


THREADS_VARIABLE = "OMP_NUM_THREADS"


def work_together(
    plan: Plan, folder: AnyPath, shards: list[int], workers: int, report: Report
) -> None:
    """Work on shards in so many processes, each with a model of its own and a share of the cores.

    Raises:
        RunError: a process died.
        Exception: what stopped a process.
    """
    context = get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for shard in shards:
        todo.put(shard)
    threads = max(1, (os.cpu_count() or 1) // workers)
    arguments = (plan, folder, todo, done)
    processes = [context.Process(target=_work, args=arguments, daemon=True) for _ in range(workers)]
    before = os.environ.get(THREADS_VARIABLE)
    os.environ[THREADS_VARIABLE] = str(threads)  # read by whatever library computes there
    for process in processes:
        todo.put(None)  # the end, for each
        process.start()
    if before is None:
        del os.environ[THREADS_VARIABLE]
    else:
        os.environ[THREADS_VARIABLE] = before
    try:
        working = workers
        while working:
            try:
                kind, *message = done.get(timeout=1)
            except queue.Empty:
                dead = [p for p in processes if p.exitcode not in (None, 0)]
                if dead:
                    raise RunError(
                        f"a worker died (exit status {dead[0].exitcode}; is the memory full?): run "
                        "the same command again, perhaps with fewer --workers"
                    ) from None
                continue
            if kind == "error":
                raise message[0]
            if kind == "end":
                working -= 1
            else:
                report(*message)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _work(plan: Plan, folder: AnyPath, todo: Any, done: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops us
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        from lookback.runs.work import Worker

        worker = Worker(plan, folder).load()
        for shard in iter(todo.get, None):
            worker.work(shard, lambda *message: done.put(("item", *message)))
        done.put(("end",))
    except Exception as error:
        done.put(("error", _portable(error)))


def _die_with_parent() -> None:
    """A parent that was killed cannot tell: wait for its end, which the system tells at once."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _portable(error: Exception) -> Exception:
    """The error itself if it survives the way to another process, else its words."""
    import pickle

    loads: Callable[[bytes], Any] = pickle.loads
    try:
        loads(pickle.dumps(error))
    except Exception:
        return RunError(f"{type(error).__name__}: {error}")
    return error

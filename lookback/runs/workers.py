"""Workers that are processes of this machine: each writes its shards itself."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

from lookback.errors import error_line
from lookback.io.storage import AnyPath
from lookback.registry import PluginError, plugin_in
from lookback.runs.crew import Message, Portion, Team
from lookback.runs.layout import RunError

if TYPE_CHECKING:
    from lookback.runs.plan import Plan

THREADS_VARIABLE = "OMP_NUM_THREADS"


class Processes(Team):
    """Spawned processes, which share the machine's cores; the death of one ends the work."""

    def __init__(
        self,
        plan: Plan,
        folder: AnyPath,
        workers: int,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(plan, folder, workers, say)
        self._context = get_context("spawn")
        self._told = self._context.Queue()
        self._inboxes: dict[int, Any] = {}
        self._processes: dict[int, Any] = {}

    def start(self, worker: int) -> None:
        """Start a process with its share of the cores: of all workers, even if fewer have work, as
        another number of threads rounds differently."""
        inbox = self._inboxes[worker] = self._context.Queue()
        process = self._processes[worker] = self._context.Process(
            target=_work, args=(worker, self.plan, self.folder, inbox, self._told), daemon=True
        )
        before = os.environ.get(THREADS_VARIABLE)
        # Read by whatever library computes there.
        os.environ[THREADS_VARIABLE] = str(max(1, (os.cpu_count() or 1) // self.workers))
        try:
            process.start()
        finally:
            if before is None:
                del os.environ[THREADS_VARIABLE]
            else:
                os.environ[THREADS_VARIABLE] = before

    def give(self, worker: int, portion: Portion) -> None:
        """Put it into its inbox."""
        self._inboxes[worker].put(portion)

    def receive(self) -> Message:
        """From any of them; a process that is gone is found when none says anything."""
        while True:
            # Before the queue is read: what a process said before its end is then in it.
            gone = [worker for worker, one in self._processes.items() if one.exitcode is not None]
            try:
                message: Message = self._told.get(block=not gone, timeout=1)
                return message
            except queue.Empty:
                for worker in gone:
                    status = self._processes[worker].exitcode
                    reason = f"exit status {status}; is the memory full?"
                    return Message(worker, "died", reason)

    def close(self) -> None:
        """End them."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.join()


def _work(worker: int, plan: Plan, folder: AnyPath, inbox: Any, told: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops us
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        from lookback.runs.work import Worker

        made = Worker(plan, folder)
        told.put(Message(worker, "ready", made.load()))
        while True:
            portion: Portion = inbox.get()
            made.plan = portion.plan
            made.work(portion.shards, lambda count: told.put(Message(worker, "pieces", count)))
            told.put(Message(worker, "done"))
    except BaseException as error:
        told.put(Message(worker, "error", portable(error)))


def _die_with_parent() -> None:
    """A parent that was killed cannot tell: wait for its end, which the system tells at once."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def portable(error: BaseException) -> Exception:
    """The error itself if it survives the way to another process, else its words.

    Of what passed through a plugin the plugin's name, which the traceback alone has.
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

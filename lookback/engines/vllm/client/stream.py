"""Candidates while vLLM writes them, and the callbacks that callers hear of them by."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lookback.engines.vllm.client.results import continuation, finish_of
from lookback.signals import SIGNALS, WRITING

if TYPE_CHECKING:
    from lookback.engines.common.continuations import Continuation, Drawn
    from lookback.engines.vllm.client.results import Answer

T = TypeVar("T")
HEARTBEAT = 0.5
"""Seconds after which listeners hear that nothing has changed."""


class CallbackError(Exception):
    """Raised in work on vLLM's event loop whose caller's callback failed."""


class _Callback:
    """One call of a function in the caller's thread, which work on vLLM's event loop awaits."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function, self._args = function, args
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def run(self) -> BaseException | None:
        """Call it, in the caller's thread, and return what it raised."""
        error: BaseException | None = None
        try:
            self._function(*self._args)
        except BaseException as raised:
            error = raised
        self._loop.call_soon_threadsafe(self._resolve, error is None)
        return error

    def _resolve(self, succeeded: bool) -> None:
        if self.done.done():  # cancelled
            return
        if succeeded:
            self.done.set_result(None)
        else:
            self.done.set_exception(CallbackError("a callback of the caller failed"))


class CallbackBridge:
    """Lets work on vLLM's event loop call functions in the thread that waits for the work."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Callback | None] = SimpleQueue()

    async def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function in the caller's thread, and wait for it.

        Raises:
            CallbackError: it raised something, which the caller gets.
        """
        callback = _Callback(function, args)
        self._put(callback)
        await callback.done

    def _put(self, callback: _Callback | None) -> None:
        self._queue.put(callback)

    def serve(self, work: concurrent.futures.Future[T]) -> None:
        """Run callbacks until the work has ended; what one raises ends the work."""
        work.add_done_callback(lambda _: self._put(None))
        while (callback := self._queue.get()) is not None:
            error = callback.run()
            if error is not None:
                concurrent.futures.wait([work])
                raise error


class AsyncCallbackBridge(CallbackBridge):
    """The same for a coroutine that waits, whatever its event loop; callbacks run on that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: asyncio.Queue[_Callback | None] = asyncio.Queue()

    def _put(self, callback: _Callback | None) -> None:
        self._loop.call_soon_threadsafe(self._calls.put_nowait, callback)

    async def serve_coroutine(self, work: asyncio.Future[T]) -> None:
        """`serve`, for that coroutine."""
        work.add_done_callback(lambda _: self._put(None))
        while (callback := await self._calls.get()) is not None:
            error = callback.run()
            if error is not None:
                await asyncio.wait([work])
                raise error


class PartialCandidates:
    """The candidates of one question while they are written.

    Args:
        n: how many.
        steps: the longest.
        layers: how many have their A_t kept apart.
        top: how many of the likeliest tokens of each step are kept.
        streamed: whether callers hear of them before they have ended.

    Attributes:
        rows: (4 + L + 2 k, n, steps), their numbers; NaN where there are none yet.
        changes: an event, set when tokens or numbers arrive.
    """

    def __init__(self, n: int, steps: int, layers: int, top: int, streamed: bool) -> None:
        numbers = len(SIGNALS) + layers + 2 * top
        self.rows: NDArray[np.float32] = np.full((numbers, n, steps), np.nan, np.float32)
        self.top, self.streamed = top, streamed
        self.changes = asyncio.Event()
        self._ids: list[list[int]] = [[] for _ in range(n)]
        self._finish = [WRITING] * n
        self._known = [0] * n  # tokens whose numbers are there
        self._reported = [(0, WRITING)] * n
        self._filed: dict[str, tuple[int, int]] = {}  # by name: candidate, and tokens before

    @property
    def steps(self) -> int:
        """How many tokens the longest has."""
        return max(map(len, self._ids))

    @property
    def ended(self) -> bool:
        return WRITING not in self._finish

    def settle(self, drawn: Drawn) -> None:
        """Take over what a checkpoint made of them."""
        for i, ids in enumerate(drawn.ids):
            self._ids[i], self._known[i] = list(ids), len(ids)
            self._finish[i] = WRITING if i in drawn.alive else drawn.finish[i]
        self.changes.set()

    def missing(self) -> dict[str, list[int]]:
        """Return the tokens without numbers: (start, end) by the name they are filed under."""
        return {
            name: [self._known[i] - before, len(self._ids[i]) - before]
            for name, (i, before) in self._filed.items()
            if len(self._ids[i]) > self._known[i]
        }

    def add(self, name: str, rows: NDArray[np.float32]) -> None:
        """Add numbers that were missing, up to the first token that has none yet."""
        if name not in self._filed:
            return  # it has ended meanwhile, and all of its numbers are there
        i, _ = self._filed[name]
        complete = ~np.isnan(rows[: len(SIGNALS)]).any(0)
        count, start = int(complete.cumprod().sum()), self._known[i]
        self.rows[:, i, start : start + count] = rows[:, :count]
        self._known[i] += count

    def changed(self) -> list[tuple[int, Continuation]]:
        """Return the candidates that changed since the last call, by index."""
        changed = []
        for i, (ids, known) in enumerate(zip(self._ids, self._known, strict=True)):
            state = known, self._finish[i] if known == len(ids) else WRITING
            if state != self._reported[i]:
                self._reported[i] = state
                part = continuation(ids[:known], self.rows[:, i], state[1], self.top)
                changed.append((i, part))
        return changed


@dataclass
class PartialRequest:
    """One request to vLLM for the next tokens of some of the candidates.

    Attributes:
        candidates: all of them.
        first: the index of the request's first candidate.
        before: how many tokens that has already.
        last: whether a candidate that has all tokens of this request has ended.
    """

    candidates: PartialCandidates
    first: int = 0
    before: int = 0
    last: bool = True

    def begin(self, names: Sequence[str]) -> None:
        """Note the names under which the tap files the numbers of its candidates."""
        for index, name in enumerate(names):
            self.candidates._filed[name] = self.first + index, self.before

    def update(self, outputs: Sequence[Any]) -> None:
        """Take vLLM's outputs so far, each with all its tokens."""
        for output in outputs:
            i = self.first + output.index
            ids = self.candidates._ids[i]
            ids += output.token_ids[len(ids) - self.before :]
            if output.finish_reason is not None and (self.last or output.finish_reason == "stop"):
                self.candidates._finish[i] = finish_of(output)
        self.candidates.changes.set()

    def end(self, names: Sequence[str], answers: Sequence[Answer]) -> None:
        """Take the final tokens and numbers."""
        for index, (name, answer) in enumerate(zip(names, answers, strict=True)):
            i, stop = self.first + index, self.before + len(answer.token_ids)
            self.candidates.rows[:, i, self.before : stop] = answer.rows
            self.candidates._ids[i][self.before :] = answer.token_ids
            self.candidates._known[i] = stop
            del self.candidates._filed[name]
        self.candidates.changes.set()


async def notify_while(
    work: Coroutine[Any, Any, T],
    candidates: PartialCandidates,
    notify: Callable[[], Awaitable[None]],
    every: float,
) -> T:
    """Do the work, and notify of changes meanwhile; what `notify` raises ends the work.

    Args:
        work: writes candidates.
        candidates: those.
        notify: called after changes, and after `HEARTBEAT` seconds without any.
        every: seconds between two notifications, at least.
    """
    clock = asyncio.get_running_loop().time
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda _: candidates.changes.set())
    try:
        while True:
            due = clock() + every
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(candidates.changes.wait(), max(every, HEARTBEAT))
            if clock() < due:
                await asyncio.wait([task], timeout=due - clock())
            if task.done():
                return task.result()
            candidates.changes.clear()
            await notify()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        _ = task.cancelled() or task.exception()  # so that asyncio does not report it

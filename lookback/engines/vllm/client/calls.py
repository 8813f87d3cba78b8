"""Calls between the engine's thread and its callers, and coroutines gathered in order."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Iterable
from queue import SimpleQueue
from typing import Any, TypeVar

from lookback.engines.common.options import Progress

T = TypeVar("T")


class GivenUpError(Exception):
    """Raised in work whose caller no longer wants it."""


class Call:
    """One call that work waits for.

    Args:
        function, args: what is called.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function, self._args = function, args
        self._loop = asyncio.get_running_loop()
        self.made: asyncio.Future[None] = self._loop.create_future()

    def make(self) -> BaseException | None:
        """Do it, in the caller's thread; what it raised."""
        error: BaseException | None = None
        try:
            self._function(*self._args)
        except BaseException as raised:
            error = raised
        self._loop.call_soon_threadsafe(self._end, error is None)
        return error

    def _end(self, well: bool) -> None:
        if self.made.done():  # cancelled
            return
        if well:
            self.made.set_result(None)
        else:
            self.made.set_exception(GivenUpError("the listener gave up"))


class Calls:
    """The calls of one piece of work, for a thread that waits for it."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Call | None] = SimpleQueue()

    async def make(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called there, and wait for it.

        Raises:
            GivenUpError: it raised something, which its caller gets.
        """
        call = Call(function, args)
        self._put(call)
        await call.made

    def _put(self, call: Call | None) -> None:
        self._asked.put(call)

    def serve(self, work: concurrent.futures.Future[T]) -> None:
        """Make the calls of work until it has ended; what one raises ends the work."""
        work.add_done_callback(lambda _: self._put(None))
        while (call := self._asked.get()) is not None:
            error = call.make()
            if error is not None:
                concurrent.futures.wait([work])
                raise error


class CoroutineCalls(Calls):
    """The same for a coroutine that waits for it, of whatever event loop; made on that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: asyncio.Queue[Call | None] = asyncio.Queue()

    def _put(self, call: Call | None) -> None:
        self._loop.call_soon_threadsafe(self._calls.put_nowait, call)

    async def serve_coroutine(self, work: asyncio.Future[T]) -> None:
        """`serve`, for that coroutine."""
        work.add_done_callback(lambda _: self._put(None))
        while (call := await self._calls.get()) is not None:
            error = call.make()
            if error is not None:
                await asyncio.wait([work])
                raise error


IN_FLIGHT = 256
"""Questions and responses that are handed to vLLM at a time: its scheduler does the rest."""


async def together(
    work: Iterable[Coroutine[Any, Any, Any]],
    total: int,
    return_exceptions: bool = False,
    progress: Progress | None = None,
) -> list[Any]:
    """Results of coroutines in their order, so many of them in flight; the first error ends all."""
    room, done = asyncio.Semaphore(IN_FLIGHT), 0

    async def one(part: Coroutine[Any, Any, Any]) -> Any:
        nonlocal done
        async with room:
            try:
                found = await part
            except Exception as error:
                if not return_exceptions:
                    raise
                found = error
        done += 1
        if progress is not None:
            progress(done, total)
        return found

    parts = list(work)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(part)) for part in parts]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        for part in parts:
            part.close()  # those that never began
    return [task.result() for task in tasks]

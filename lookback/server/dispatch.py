"""From a request to its place at the desk and back: deadlines, clients that go away, streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fastapi import Request
from fastapi.responses import StreamingResponse

from lookback.engines import Engine
from lookback.io.json_values import whole_text
from lookback.server.errors import ApiError, invalid, tell
from lookback.server.guard import now
from lookback.server.metrics import Metrics
from lookback.server.process import LOG
from lookback.server.requests import check_conversation, check_messages, read_messages
from lookback.server.scheduler import Desk, Who, seen
from lookback.server.schema import Message
from lookback.server.settings import Settings
from lookback.server.streams import DONE, Result, Stream, event
from lookback.server.task import Mailbox, Work

T = TypeVar("T")
NAMES = ("lookback", "default")
"""What the model is called by those who do not care which it is."""
READERS = 8
"""Threads that read images, some of which may have to be fetched."""
SHARE = 4
"""Of these, as many as one client has at a time."""
GONE = 499
"""The status in the log of a request whose client did not wait."""


class Serving:
    """Puts the work of requests before an engine.

    Args:
        engine: does it.
        settings: deadlines.
        desk: says whose turn it is.
        metrics: counts.
    """

    def __init__(self, engine: Engine, settings: Settings, desk: Desk, metrics: Metrics) -> None:
        self.engine, self.settings, self.desk, self.metrics = engine, settings, desk, metrics
        self._readers = ThreadPoolExecutor(READERS, "lookback-read")
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @property
    def names(self) -> tuple[str, ...]:
        """What the model is called; answers have the first."""
        return self.settings.names or (whole_text(self.engine.name),)

    def head(self, request: Request, prefix: str) -> dict[str, Any]:
        """What the body of an answer begins with."""
        name = f"{prefix}-{request.state.id}"
        return {"id": name, "created": int(time.time()), "model": self.names[0]}

    def check_model(self, asked: str | None) -> None:
        """Raise ApiError (404) if a request asks for a model that is not here."""
        known = (*self.names, *NAMES)
        if asked is not None and asked not in known and not self.settings.any_name:
            words = f"no model {asked!r:.80} here: there is {', '.join(map(repr, known))}"
            raise ApiError(404, words, "model", "model_not_found")

    def work(self) -> Work:
        """A piece of work that can be given up."""
        return Work(self.engine)

    async def read(
        self, request: Request, user: str | None, messages: Sequence[Message], source: Any
    ) -> list[dict[str, Any]]:
        """The messages with their images, once all that can be checked at once was.

        Images are read in a thread, beside the engine's work: some may have to be fetched.

        Raises:
            ApiError: they cannot be read or answered, or there is no room.
        """
        check_messages(messages, self.settings)
        self.desk.check_room(_who(request, user))
        found = await self._read(request, messages)
        try:
            question = check_conversation(found, source)
        except ValueError as error:
            raise invalid(str(error), "messages") from None
        if self.settings.log_text:
            LOG.info("%s asks: %r", request.state.id, question)
        return found

    async def _read(self, request: Request, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Read the images, in one of the client's threads.

        Raises:
            ApiError: it takes longer than the deadline.
        """
        share = self._shares.setdefault(request.state.client, asyncio.Semaphore(SHARE))
        work, loop = self.work(), asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._left(request)):
                await share.acquire()
                thread = loop.run_in_executor(self._readers, read_messages, messages, work.check)
                thread.add_done_callback(lambda _: share.release())  # not before it has ended
                thread.add_done_callback(seen)
                return await asyncio.shield(thread)
        except TimeoutError:
            raise self._ended(False) from None
        finally:
            work.give_up()

    async def answer(
        self, request: Request, user: str | None, work: Work, call: Callable[[], T]
    ) -> T:
        """What the work gives, unless the client goes away or it takes too long.

        Args:
            request: of the client.
            user: that the client names.
            work: is told to end, if so.
            call: does it, in a thread.

        Raises:
            ApiError: there is no room, or no time.
        """
        task = asyncio.ensure_future(self._run(request, user, work, call))
        try:
            await self._wait(request, task)
            return task.result()
        finally:
            _abandon(task)

    async def stream(
        self,
        request: Request,
        user: str | None,
        work: Work,
        call: Callable[[], Result],
        stream: Stream,
        box: Mailbox,
    ) -> StreamingResponse:
        """The same as events; an error behind the head of the answer is an event, too.

        The head is sent once the work has its place at the model: until then a refusal has a status
        of its own. A stream that is watched gets it at once, to hear how many wait before it.

        Raises:
            ApiError: there is no room, or no time.
        """
        began = asyncio.Event()
        task = asyncio.ensure_future(self._run(request, user, work, call, began))
        placed = asyncio.ensure_future(began.wait())
        try:
            if stream.watch:
                await asyncio.sleep(0)  # now it has joined the queue, or was refused
            else:
                await self._wait(request, task, placed)
            if task.done():
                task.result()
        except BaseException:
            _abandon(task)
            raise
        finally:
            placed.cancel()
        return EventStream(self._lines(request, stream, box, task, began), task)

    async def _lines(
        self,
        request: Request,
        stream: Stream,
        box: Mailbox,
        task: asyncio.Task[Result],
        began: asyncio.Event,
    ) -> AsyncIterator[str]:
        def ahead() -> int | None:
            return None if began.is_set() or task.done() else self.desk.waiting

        watch = asyncio.ensure_future(self._give_up(request, task))
        try:
            async for line in stream.events(task, box, ahead):
                yield line
            self.metrics.drew(task.result()[0])
        except asyncio.CancelledError:
            if not watch.done():  # nobody reads any more, or the server ends
                self.metrics.gone.inc()
                raise
            yield event(watch.result().body())
        except Exception as error:
            yield event(tell(error, request.state.id).body())
        else:
            yield DONE
        finally:
            watch.cancel()

    async def _wait(
        self, request: Request, task: asyncio.Task[T], *others: asyncio.Task[Any]
    ) -> None:
        """Return once a task, or another, is done.

        Raises:
            ApiError: the client goes away, or it takes too long.
        """
        gone = asyncio.ensure_future(_gone(request))
        try:
            done, _ = await asyncio.wait(
                {task, gone, *others},
                timeout=self._left(request),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done - {gone}:
                raise self._ended(gone in done)
        finally:
            gone.cancel()

    async def _run(
        self,
        request: Request,
        user: str | None,
        work: Work,
        call: Callable[[], T],
        began: asyncio.Event | None = None,
    ) -> T:
        start = time.monotonic()

        def begin() -> None:
            self.metrics.waited.observe(time.monotonic() - start)
            if began is not None:
                began.set()

        return await self.desk.run(_who(request, user), call, work.give_up, begin)

    async def _give_up(self, request: Request, task: asyncio.Task[Result]) -> ApiError:
        """Cancel the work of a stream when its time is over; StreamingResponse sees who is gone."""
        await asyncio.sleep(self._left(request))
        task.cancel()
        return self._ended(False)

    def _left(self, request: Request) -> float:
        used: float = now() - request.state.began
        return max(0.0, self.settings.limits.seconds - used)

    def _ended(self, gone: bool) -> ApiError:
        if gone:
            self.metrics.gone.inc()
            return ApiError(GONE, "the client went away", code="client_gone")
        self.metrics.late.inc()
        seconds = self.settings.limits.seconds
        return ApiError(504, f"this took longer than {seconds:g} s", code="deadline")


class EventStream(StreamingResponse):
    """Server-Sent Events of a piece of work, which ends with them even if none was ever read."""

    def __init__(self, lines: AsyncIterator[str], task: asyncio.Task[Result]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self._task = task

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send them."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            _abandon(self._task)


def _who(request: Request, user: str | None) -> Who:
    return request.state.client, user or ""


def _abandon(task: asyncio.Task[Any]) -> None:
    """Nobody waits for the task any more: end it, and let nobody see how."""
    task.cancel()
    task.add_done_callback(seen)


async def _gone(request: Request) -> None:
    """Until the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

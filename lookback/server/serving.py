"""From a request to its place at the desk and back: deadlines, clients that go away, streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse

from lookback.engines import Engine
from lookback.server.asking import check_conversation, check_messages, read_messages
from lookback.server.desk import Desk, seen
from lookback.server.errors import ApiError, invalid, tell
from lookback.server.log import LOG
from lookback.server.metrics import Metrics
from lookback.server.schema import Message
from lookback.server.settings import Settings
from lookback.server.streams import DONE, Result, Stream, event
from lookback.server.work import Mailbox, Work

T = TypeVar("T")
NAMES = ("lookback", "default")
"""What the model is called by those who do not care which it is."""
READERS = 8
"""Threads that read images, some of which may have to be fetched."""
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

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.settings.name or self.engine.name

    def head(self, request: Request, prefix: str) -> dict[str, Any]:
        """What the body of an answer begins with."""
        name = f"{prefix}-{request.state.id}"
        return {"id": name, "created": int(time.time()), "model": self.name}

    def check_model(self, asked: str | None) -> None:
        """Let pass who asks for the model that is here.

        Raises:
            ApiError: it is another.
        """
        if asked not in (None, self.name, *NAMES):
            words = f"no model {asked!r:.80} here: there is {self.name!r}"
            raise ApiError(404, words, "model", "model_not_found")

    def work(self) -> Work:
        """A piece of work that can be given up."""
        return Work(self.engine)

    async def read(
        self, request: Request, messages: Sequence[Message], source: Any
    ) -> list[dict[str, Any]]:
        """The messages with their images, once all that can be checked at once was.

        Images are read in a thread, beside the engine's work: some may have to be fetched.

        Raises:
            ApiError: they cannot be read or answered, or there is no room.
        """
        check_messages(messages, self.settings)
        self.desk.check_room()
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._readers, lambda: read_messages(messages))
        try:
            question = check_conversation(found, source)
        except ValueError as error:
            raise invalid(str(error), "messages") from None
        if self.settings.log_text:
            LOG.info("%s asks: %r", request.state.id, question)
        return found

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
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait(
                {task, gone}, timeout=self._left(request), return_when=asyncio.FIRST_COMPLETED
            )
            if task.done():
                return task.result()
            raise self._ended(gone.done())
        finally:
            gone.cancel()
            task.cancel()
            task.add_done_callback(seen)

    def stream(
        self,
        request: Request,
        user: str | None,
        work: Work,
        call: Callable[[], Result],
        stream: Stream,
        box: Mailbox,
    ) -> StreamingResponse:
        """The same as events; an error behind the head of the answer is an event, too.

        Raises:
            ApiError: there is no room.
        """
        self.desk.check_room()

        async def lines() -> AsyncIterator[str]:
            began = asyncio.Event()
            task = asyncio.ensure_future(self._run(request, user, work, call, began))

            def ahead() -> int | None:
                return None if began.is_set() or task.done() else self.desk.waiting

            watch = asyncio.ensure_future(self._give_up(request, task))
            try:
                await asyncio.sleep(0)
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
                task.cancel()
                task.add_done_callback(seen)

        return StreamingResponse(
            lines(),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

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

        who = (request.state.client, user or "")
        return await self.desk.run(who, call, work.give_up, begin)

    async def _give_up(self, request: Request, task: asyncio.Task[Result]) -> ApiError:
        """Cancel the work of a stream when its time is over; StreamingResponse sees who is gone."""
        await asyncio.sleep(self._left(request))
        task.cancel()
        return self._ended(False)

    def _left(self, request: Request) -> float:
        used: float = time.monotonic() - request.state.began
        return max(0.0, self.settings.limits.seconds - used)

    def _ended(self, gone: bool) -> ApiError:
        if gone:
            self.metrics.gone.inc()
            return ApiError(GONE, "the client went away", code="client_gone")
        self.metrics.late.inc()
        seconds = self.settings.limits.seconds
        return ApiError(504, f"this took longer than {seconds:g} s", code="deadline")


async def _gone(request: Request) -> None:
    """Until the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

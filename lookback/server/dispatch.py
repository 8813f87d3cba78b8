"""The work of one request: read its images, wait for a turn, ask the engine in a thread, give up.

A request ends when it is answered, when its client goes away, or when its deadline is over.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fastapi import Request
from fastapi.responses import StreamingResponse

from lookback.engines import Engine
from lookback.engines.common.stream import Listener
from lookback.io.json_values import whole_text
from lookback.server.errors import LOG, ApiError, from_exception
from lookback.server.guard import CLIENT_GONE, Metrics, now
from lookback.server.requests import (
    ChatOptions,
    RankOptions,
    check_messages,
    question_of,
    read_messages,
)
from lookback.server.responses import DONE, Mailbox, Result, Stream, event
from lookback.server.scheduler import RequestScheduler, ignore_result
from lookback.server.schema import Message
from lookback.server.settings import Settings
from lookback.signals import Candidate

T = TypeVar("T")
ALIASES = ("lookback", "default")
"""What clients may call the model whatever its name is."""
READERS = 8
"""Threads that read images, some of which may have to be fetched."""
SHARE = 4
"""Of these, as many as one client has at a time."""
UPDATE_SECONDS = 0.1
"""From one update of the candidates to the next."""
LIVE_SECONDS = 0.03
"""The same where there is one candidate, whose words go out as they come."""
CHECK_SECONDS = 1.0
"""The same where nobody wants updates: how often it is asked whether anybody still waits."""


class GivenUp(Exception):
    """Nobody waits for this work any more."""


class Service:
    """What the requests of one server share."""

    def __init__(
        self, engine: Engine, settings: Settings, scheduler: RequestScheduler, metrics: Metrics
    ) -> None:
        self.engine, self.settings = engine, settings
        self.scheduler, self.metrics = scheduler, metrics
        self.readers = ThreadPoolExecutor(READERS, "lookback-read")
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @property
    def names(self) -> tuple[str, ...]:
        """What the model is called; answers have the first."""
        return self.settings.names or (whole_text(self.engine.name),)

    def check_model(self, name: str | None) -> None:
        """Raise ApiError (404) if a request asks for a model that is not here."""
        known = (*self.names, *ALIASES)
        if name is not None and name not in known and not self.settings.any_name:
            message = f"no model {name!r:.80} here: there is {', '.join(map(repr, known))}"
            raise ApiError(404, message, "model", "model_not_found")

    def share_of(self, client: str) -> asyncio.Semaphore:
        """Return what limits the readers that a client has at a time."""
        return self._shares.setdefault(client, asyncio.Semaphore(SHARE))


class Job:
    """One request's work.

    Args:
        service: the server's.
        request: the client's.
        user: whom the client names.
    """

    def __init__(self, service: Service, request: Request, user: str | None) -> None:
        self.service, self.request = service, request
        self.caller = (request.state.client, user or "")
        self._given_up = threading.Event()

    def head(self, prefix: str) -> dict[str, Any]:
        """Return what the body of the answer begins with."""
        name = f"{prefix}-{self.request.state.id}"
        return {"id": name, "created": int(time.time()), "model": self.service.names[0]}

    def give_up(self) -> None:
        """End at the next step."""
        self._given_up.set()

    def check(self, *_: Any) -> None:
        """Raise GivenUp if nobody waits any more."""
        if self._given_up.is_set():
            raise GivenUp

    # What is asked of the engine, in a thread.

    def ask(self, method: Callable[..., T], **arguments: Any) -> T:
        """Call a method of the engine, which ends at its next step once this is given up."""
        self.check()
        result = method(**arguments, progress=self.check)
        self.check()
        return result

    def sample(
        self, messages: Sequence[Any], options: ChatOptions, mailbox: Mailbox | None = None
    ) -> Result:
        """Return candidates, and the same ranked; a mailbox gets updates of them."""
        engine, arguments = self.service.engine, dict(options.sampling)
        if "listen" in engine.abilities:
            seconds = LIVE_SECONDS if options.best_of == 1 else UPDATE_SECONDS

            def update(candidates: Sequence[Candidate]) -> None:
                self.check()
                if mailbox is not None and candidates:
                    mailbox.put(candidates)

            arguments["listen"] = Listener(update, CHECK_SECONDS if mailbox is None else seconds)
        candidates = self.ask(engine.sample, messages=messages, **arguments)
        return candidates, options.ranking.rank(candidates)

    def score(
        self, messages: Sequence[Any], responses: Sequence[Any], ranking: RankOptions
    ) -> Result:
        """Return responses that are given as candidates, and the same ranked."""
        candidates = self.ask(
            self.service.engine.score,
            messages=messages,
            responses=responses,
            source=ranking.source,
        )
        return candidates, ranking.rank(candidates)

    # What the event loop does meanwhile.

    async def read(self, messages: Sequence[Message], source: Any) -> list[dict[str, Any]]:
        """Return the messages with their images, after all other checks.

        Images are read in a thread, beside the engine's work: some may have to be fetched.

        Raises:
            ApiError: they cannot be read or answered, or there is no room or no time.
        """
        service = self.service
        check_messages(messages, service.settings)
        service.scheduler.check_room(self.caller)
        read = await self._read_images(messages)
        question = question_of(read, source)
        if service.settings.log_text:
            LOG.info("%s asks: %r", self.request.state.id, question)
        return read

    async def _read_images(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        share = self.service.share_of(self.caller[0])
        reading, loop = Job(self.service, self.request, None), asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._seconds_left()):
                await share.acquire()
                thread = loop.run_in_executor(
                    self.service.readers, read_messages, messages, reading.check
                )
                thread.add_done_callback(lambda _: share.release())  # not before it has ended
                thread.add_done_callback(ignore_result)
                return await asyncio.shield(thread)
        except TimeoutError:
            raise self._late() from None
        finally:
            reading.give_up()

    async def answer(self, call: Callable[[], T]) -> T:
        """Return what a call gives that is made in a thread.

        Raises:
            ApiError: there is no room or no time, or the client goes away.
        """
        task = asyncio.ensure_future(self._run(call))
        try:
            await self._wait(task)
            return task.result()
        finally:
            _abandon(task)

    async def stream(self, messages: Sequence[Any], options: ChatOptions) -> StreamingResponse:
        """Return events of candidates; an error behind the head of the answer is an event, too.

        The head is sent once the work has its turn: until then a refusal has a status of its own.
        A stream that is watched gets it at once, to hear how many wait before it.

        Raises:
            ApiError: there is no room or no time.
        """
        mailbox, began = Mailbox(), asyncio.Event()
        stream = Stream(self.head("chatcmpl"), options)
        task = asyncio.ensure_future(
            self._run(lambda: self.sample(messages, options, mailbox), began.set)
        )
        turn = asyncio.ensure_future(began.wait())
        try:
            if options.watch:
                await asyncio.sleep(0)  # now it has joined the queue, or was refused
            else:
                await self._wait(task, turn)
            if task.done():
                task.result()
        except BaseException:
            _abandon(task)
            raise
        finally:
            turn.cancel()

        def queued() -> int | None:
            waits = not began.is_set() and not task.done()
            return self.service.scheduler.waiting if waits else None

        return EventStream(self._lines(stream.events(task, mailbox, queued), task), task)

    async def _lines(
        self, events: AsyncIterator[str], task: asyncio.Task[Result]
    ) -> AsyncIterator[str]:
        metrics = self.service.metrics
        deadline = asyncio.ensure_future(self._cancel_late(task))
        try:
            async for line in events:
                yield line
            metrics.count_candidates(task.result()[0])
        except asyncio.CancelledError:
            if not deadline.done():  # nobody reads any more, or the server ends
                metrics.gone.inc()
                raise
            yield event(deadline.result().body())
        except Exception as error:
            yield event(from_exception(error, self.request.state.id).body())
        else:
            yield DONE
        finally:
            deadline.cancel()

    async def _run(self, call: Callable[[], T], on_start: Callable[[], None] = lambda: None) -> T:
        start = time.monotonic()

        def begin() -> None:
            self.service.metrics.waited.observe(time.monotonic() - start)
            on_start()

        return await self.service.scheduler.run(self.caller, call, self.give_up, begin)

    async def _wait(self, *tasks: asyncio.Task[Any]) -> None:
        """Return once one of the tasks is done.

        Raises:
            ApiError: the client goes away before, or it takes too long.
        """
        gone = asyncio.ensure_future(self._client_gone())
        try:
            done, _ = await asyncio.wait(
                {gone, *tasks},
                timeout=self._seconds_left(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                raise self._late()
            if done == {gone}:
                self.service.metrics.gone.inc()
                raise ApiError(CLIENT_GONE, "the client went away", code="client_gone")
        finally:
            gone.cancel()

    async def _client_gone(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass

    async def _cancel_late(self, task: asyncio.Task[Result]) -> ApiError:
        """Cancel the work of a stream at its deadline; StreamingResponse sees who is gone."""
        await asyncio.sleep(self._seconds_left())
        task.cancel()
        return self._late()

    def _seconds_left(self) -> float:
        used: float = now() - self.request.state.began
        return max(0.0, self.service.settings.limits.seconds - used)

    def _late(self) -> ApiError:
        self.service.metrics.late.inc()
        seconds = self.service.settings.limits.seconds
        return ApiError(504, f"this took longer than {seconds:g} s", code="deadline")


class EventStream(StreamingResponse):
    """Server-Sent Events of a task, which ends with them even if none was ever read."""

    def __init__(self, lines: AsyncIterator[str], task: asyncio.Task[Result]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self._task = task

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            _abandon(self._task)


def _abandon(task: asyncio.Task[Any]) -> None:
    """Cancel a task for whose result nobody waits."""
    task.cancel()
    task.add_done_callback(ignore_result)

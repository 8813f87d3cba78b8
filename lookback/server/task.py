"""The work for one request: in a thread, heard of from the event loop, given up at any step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from lookback.engines import Engine
from lookback.engines.common.stream import Listener
from lookback.looks.look import Look
from lookback.server.requests import Draw, Ranked
from lookback.server.schema import LookRequest
from lookback.signals import Candidate, Candidates

HEARD = 0.1
"""Seconds from one telling of candidates to the next."""
LIVE = 0.03
"""The same where there is one candidate, whose words go out as they come."""
UNHEARD = 1.0
"""The same where nobody hears of them: whether anybody still waits is asked so often."""


class GivenUp(Exception):
    """Nobody waits for this work any more."""


class Work:
    """Asks an engine, in a thread, as long as somebody waits.

    Args:
        engine: is asked.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._over = threading.Event()

    def give_up(self) -> None:
        """End at the next step."""
        self._over.set()

    def check(self, *_: Any) -> None:
        """Go on, or not.

        Raises:
            GivenUp: nobody waits.
        """
        if self._over.is_set():
            raise GivenUp

    def draw(
        self, messages: Sequence[Any], draw: Draw, told: Mailbox | None = None
    ) -> tuple[Candidates, list[Candidate]]:
        """Candidates, and the same ranked.

        Args:
            messages: what is asked.
            draw: how.
            told: hears of them on the way.
        """
        self.check()
        more: dict[str, Any] = {}
        if "listen" in self.engine.abilities:
            every = UNHEARD if told is None else LIVE if draw.best_of == 1 else HEARD

            def hear(candidates: Sequence[Candidate]) -> None:
                self.check()
                if told is not None and candidates:
                    told.put(candidates)

            more["listen"] = Listener(hear, every)
        found = self.engine.sample(messages=messages, **draw.sampling, **more, progress=self.check)
        self.check()
        return found, found.rank(draw.ranked.scorer.name, **draw.ranked.params)

    def score(
        self, messages: Sequence[Any], responses: Sequence[Any], ranked: Ranked
    ) -> tuple[Candidates, list[Candidate]]:
        """The same for responses that are given."""
        self.check()
        found = self.engine.score(
            messages=messages, responses=responses, source=ranked.source, progress=self.check
        )
        self.check()
        return found, found.rank(ranked.scorer.name, **ranked.params)

    def look(self, messages: Sequence[Any], asked: LookRequest) -> Look:
        """Where a response looked."""
        self.check()
        layers = asked.layers
        return self.engine.look(
            messages=messages,
            response=asked.response,
            source=asked.source,
            layers=None if layers is None else (layers[0], layers[1]),
            relative_to=asked.relative_to,
            progress=self.check,
        )


class Mailbox:
    """The newest of each candidate, from the engine's thread to the event loop.

    What is not fetched is replaced by what is newer: a reader who is slow hears less often.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._there = asyncio.Event()
        self._lock = threading.Lock()
        self._new: dict[int, Candidate] = {}

    def put(self, candidates: Sequence[Candidate]) -> None:
        """From any thread."""
        with self._lock:
            self._new |= {one.index: one for one in candidates}
        self._loop.call_soon_threadsafe(self._there.set)

    async def wait(self) -> None:
        """Until there is something."""
        await self._there.wait()

    def take(self) -> list[Candidate]:
        """What is new, by index; perhaps nothing."""
        self._there.clear()
        with self._lock:
            found, self._new = self._new, {}
        return [found[i] for i in sorted(found)]

"""Candidates while vLLM writes them: their tokens as it streams them, their numbers so far."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
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


class Writing:
    """The candidates of one question on their way.

    Args:
        n: how many.
        steps: the longest.
        layers: how many have their A_t kept apart.
        top: how many of the likeliest tokens of each step are kept.
        heard: whether anybody wants to hear of them before they have ended.

    Attributes:
        rows: (4 + L + 2 k, n, steps), their numbers; NaN where there are none yet.
        top, heard: those.
        news: set when there is something new.
    """

    def __init__(self, n: int, steps: int, layers: int, top: int, heard: bool) -> None:
        numbers = len(SIGNALS) + layers + 2 * top
        self.rows: NDArray[np.float32] = np.full((numbers, n, steps), np.nan, np.float32)
        self.top, self.heard = top, heard
        self.news = asyncio.Event()
        self._ids: list[list[int]] = [[] for _ in range(n)]
        self._finish = [WRITING] * n
        self._known = [0] * n  # tokens whose numbers are there
        self._told = [(0, WRITING)] * n
        self._filed: dict[str, tuple[int, int]] = {}  # by name: candidate, and tokens before

    @property
    def steps(self) -> int:
        """How many tokens the longest has."""
        return max(map(len, self._ids))

    @property
    def ended(self) -> bool:
        """Whether all have: what came of them is on its way."""
        return WRITING not in self._finish

    def settle(self, drawn: Drawn) -> None:
        """Take over what a checkpoint made of them."""
        for i, ids in enumerate(drawn.ids):
            self._ids[i], self._known[i] = list(ids), len(ids)
            self._finish[i] = WRITING if i in drawn.alive else drawn.finish[i]
        self.news.set()

    def missing(self) -> dict[str, list[int]]:
        """Of which tokens numbers are wanted: (start, end) by the name they are filed under."""
        return {
            name: [self._known[i] - before, len(self._ids[i]) - before]
            for name, (i, before) in self._filed.items()
            if len(self._ids[i]) > self._known[i]
        }

    def add(self, name: str, rows: NDArray[np.float32]) -> None:
        """Numbers that were asked for, up to the first token that has none yet."""
        if name not in self._filed:
            return  # it has ended meanwhile, and all of its numbers are there
        i, _ = self._filed[name]
        there = ~np.isnan(rows[: len(SIGNALS)]).any(0)
        count, start = int(there.cumprod().sum()), self._known[i]
        self.rows[:, i, start : start + count] = rows[:, :count]
        self._known[i] += count

    def changed(self) -> list[tuple[int, Continuation]]:
        """Those that are not what they were when this was last asked, with their numbers."""
        found = []
        for i, (ids, known) in enumerate(zip(self._ids, self._known, strict=True)):
            now = known, self._finish[i] if known == len(ids) else WRITING
            if now != self._told[i]:
                self._told[i] = now
                one = continuation(ids[:known], self.rows[:, i], now[1], self.top)
                found.append((i, one))
        return found


@dataclass
class Part:
    """One request of those that write them, of some tokens of some candidates.

    Attributes:
        writing: all of them.
        first: its candidate 0.
        before: how many tokens that has already.
        last: whether one that has all tokens of this request has ended.
    """

    writing: Writing
    first: int = 0
    before: int = 0
    last: bool = True

    def begin(self, names: Sequence[str]) -> None:
        """Under which names the tap files the numbers of its candidates."""
        for index, name in enumerate(names):
            self.writing._filed[name] = self.first + index, self.before

    def see(self, outputs: Sequence[Any]) -> None:
        """What vLLM says of some, each whole as it is so far."""
        for one in outputs:
            i = self.first + one.index
            ids = self.writing._ids[i]
            ids += one.token_ids[len(ids) - self.before :]
            if one.finish_reason is not None and (self.last or one.finish_reason == "stop"):
                self.writing._finish[i] = finish_of(one)
        self.writing.news.set()

    def end(self, names: Sequence[str], answers: Sequence[Answer]) -> None:
        """All that came of it."""
        for index, (name, one) in enumerate(zip(names, answers, strict=True)):
            i, stop = self.first + index, self.before + len(one.token_ids)
            self.writing.rows[:, i, self.before : stop] = one.rows
            self.writing._ids[i][self.before :] = one.token_ids
            self.writing._known[i] = stop
            del self.writing._filed[name]
        self.writing.news.set()


async def tell_meanwhile(
    work: Coroutine[Any, Any, T],
    writing: Writing,
    tell: Callable[[], Awaitable[None]],
    every: float,
) -> T:
    """Do the work, and tell of what it writes; what telling raises ends the work.

    Args:
        work: writes.
        writing: says when there is something new.
        tell: tells of it, or that there is nothing.
        every: seconds from one telling to the next, at least.
    """
    clock = asyncio.get_running_loop().time
    doing = asyncio.ensure_future(work)
    doing.add_done_callback(lambda _: writing.news.set())
    try:
        while True:
            due = clock() + every
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(writing.news.wait(), max(every, HEARTBEAT))
            if clock() < due:
                await asyncio.wait([doing], timeout=due - clock())
            if doing.done():
                return doing.result()
            writing.news.clear()
            await tell()
    finally:
        if not doing.done():
            doing.cancel()
            await asyncio.wait([doing])
        _ = doing.cancelled() or doing.exception()  # it was seen, or is no matter any more

"""Server-Sent Events: comments while candidates are written, then the chunks of the best.

The best is known at the end. So with several candidates a stream has comments, which clients that
do not know them pass over, and then the choices; with one candidate its words go out as they come.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from lookback.server.requests import Draw
from lookback.server.responses import FINISH, facts, logprobs, news, signals, summary, usage
from lookback.server.task import Mailbox
from lookback.signals import PRUNED, SIGNALS, WRITING, Candidate, Candidates

DONE = "data: [DONE]\n\n"
QUIET = 2.0
"""Seconds without news after which a comment says so: who has gone away is noticed, too."""
Result = tuple[Candidates, list[Candidate]]


def event(body: dict[str, Any]) -> str:
    """A chunk."""
    return f"data: {json.dumps(body, allow_nan=False)}\n\n"


def comment(body: dict[str, Any]) -> str:
    """What clients that do not know it pass over."""
    return f": lookback {json.dumps(body, allow_nan=False)}\n\n"


async def told(task: asyncio.Task[Result], box: Mailbox) -> AsyncIterator[list[Candidate]]:
    """What is new, again and again, until the work is done; nothing, now and then, in silence."""
    waiting = asyncio.ensure_future(box.wait())
    try:
        while not task.done():
            await asyncio.wait({task, waiting}, timeout=QUIET, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                waiting = asyncio.ensure_future(box.wait())
            if (new := box.take()) or not task.done():
                yield new
    finally:
        waiting.cancel()


class Stream:
    """The events of one completion.

    Args:
        head: what all chunks begin with: id, created, model.
        draw: what was asked.
        include_usage: whether a chunk with the usage is the last.
        watch: whether comments tell of every candidate.
    """

    def __init__(self, head: dict[str, Any], draw: Draw, include_usage: bool, watch: bool) -> None:
        self.head = head | {"object": "chat.completion.chunk"}
        self.draw, self.watch = draw, watch
        self.include_usage = include_usage
        self._last: dict[int, Candidate] = {}
        self.live = Live(self) if draw.best_of == 1 else None

    async def events(
        self, task: asyncio.Task[Result], box: Mailbox, ahead: Callable[[], int | None]
    ) -> AsyncIterator[str]:
        """All of them, but the last line.

        Args:
            task: the work.
            box: what is heard of it.
            ahead: how many are served before; None if none is.
        """
        if (count := ahead()) is not None:
            yield comment({"event": "queued", "ahead": count})
        async for new in told(task, box):
            if not new and (count := ahead()) is not None:
                yield comment({"event": "queued", "ahead": count})
            elif self.live is not None:
                for line in self.live.heard(new):
                    yield line
            elif self.watch:
                yield comment({"event": "candidates", "candidates": self._news(new)})
            else:
                yield comment(self._progress(new))
        found, ranked = task.result()
        if self.watch and self.live is None and (late := self._news(found)):
            yield comment({"event": "candidates", "candidates": late})
        chosen = ranked[: self.draw.n]
        for place, one in enumerate(chosen):
            rest = self.live.rest(one) if self.live is not None else self._whole(place, one)
            for line in rest:
                yield line
            yield self._end(place, one, found)
        if self.include_usage:
            yield event(self.head | {"choices": [], "usage": usage(found, chosen)})

    def _news(self, new: Sequence[Candidate]) -> list[dict[str, Any]]:
        """Of each candidate, the tokens that were not told; all names of signals."""
        lines = []
        for one in new:
            before = self._last.get(one.index)
            known = 0 if before is None else len(before.tokens)
            if before is None or (before.finish, known) != (one.finish, len(one.tokens)):
                lines.append(news(one, min(known, len(one.tokens)), SIGNALS))
            self._last[one.index] = one
        return lines

    def _progress(self, new: Sequence[Candidate]) -> dict[str, Any]:
        self._last |= {one.index: one for one in new}
        ends = [one.finish for one in self._last.values()]
        writing = sum(one == WRITING for one in ends) + self.draw.best_of - len(ends)
        pruned = ends.count(PRUNED)
        return {
            "event": "progress",
            "written": max((len(one.tokens) for one in self._last.values()), default=0),
            "at_most": self.draw.sampling["max_new_tokens"],
            "writing": writing,
            "ended": self.draw.best_of - writing - pruned,
            "pruned": pruned,
        }

    def chunk(
        self, place: int, delta: dict[str, Any], about: dict[str, Any] | None = None, **more: Any
    ) -> str:
        """One chunk of one choice; `about`: beside the choice, `more`: in it."""
        choice = {"index": place, "delta": delta, "logprobs": None, "finish_reason": None} | more
        usage_too = {"usage": None} if self.include_usage else {}
        return event(self.head | {"choices": [choice]} | usage_too | (about or {}))

    def opening(self, place: int) -> str:
        """The chunk that says who speaks."""
        return self.chunk(place, {"role": "assistant", "content": "", "refusal": None})

    def _whole(self, place: int, one: Candidate) -> Iterator[str]:
        """A choice that is known: a chunk per token, as a client expects a stream to be."""
        yield self.opening(place)
        pieces = words_of(one)
        for t, text in enumerate(pieces):
            more = {}
            if self.draw.top is not None and t < len(one.tokens):
                more["logprobs"] = logprobs(one, t, t + 1)
            if text or more:
                yield self.chunk(place, {"content": text}, **more)

    def _end(self, place: int, one: Candidate, found: Candidates) -> str:
        told = facts(one, place, self.draw.best_of, self.draw.ranked)
        about = {} if place else {"lookback": summary(found, self.draw)}
        return self.chunk(place, {}, about, finish_reason=FINISH[one.finish], lookback=told)


class Live:
    """The one candidate of a stream, whose words go out as they come.

    Engines hold back what may become a stop text (`listening`); here it is the character that is
    not whole yet.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._opened = False
        self._text = ""
        self._tokens = 0

    def heard(self, new: Sequence[Candidate]) -> Iterator[str]:
        """The chunks of what is new; without any, a sign of life."""
        if not new:
            yield comment({"event": "writing"})
        for one in new:
            if one.finish == WRITING:
                safe = one.text.removesuffix("\ufffd")
                yield from self._tell(one, safe, len(one.tokens) if safe == one.text else None)

    def rest(self, one: Candidate) -> Iterator[str]:
        """The chunks of what was held back, now that it is complete."""
        if not self._opened:
            yield self._open()
        yield from self._tell(one, one.text, len(one.tokens))

    def _open(self) -> str:
        self._opened = True
        return self.stream.opening(0)

    def _tell(self, one: Candidate, text: str, tokens: int | None) -> Iterator[str]:
        """A chunk with the text that was not told, and the tokens, if all of them are in it."""
        delta = text[len(self._text) :]
        fresh = tokens is not None and tokens > self._tokens
        if not delta and not fresh:
            return
        if not self._opened:
            yield self._open()
        more: dict[str, Any] = {}
        if fresh:
            start, self._tokens = self._tokens, tokens or 0
            more["lookback"] = {"start": start} | signals(one, SIGNALS, start)
            if self.stream.draw.top is not None:
                more["logprobs"] = logprobs(one, start)
        self._text = text if delta else self._text
        yield self.stream.chunk(0, {"content": delta}, **more)


def words_of(one: Candidate) -> list[str]:
    """The response in pieces, one per token where that is possible; joined they are its text."""
    written = "".join(one.tokens)
    start = written.find(one.text) if one.text else -1
    if start < 0:
        return [one.text] if one.text else []
    pieces, at = [], 0
    for token in one.tokens:
        first, at = max(at, start), at + len(token)
        pieces.append(written[first : max(first, min(at, start + len(one.text)))])
    return pieces

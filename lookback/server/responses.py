"""From candidates to answers: bodies, and Server-Sent Events.

Numbers that are not finite become null. The best candidate is known at the end. So with several
candidates a stream has comments, which clients that do not know them ignore, and then the
choices; with one candidate its words go out as they come.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

from lookback.io.json_values import finite
from lookback.looks.look import Look, rounded
from lookback.pages.look import look_head, sums_of
from lookback.server.requests import ChatOptions, RankOptions
from lookback.signals import PRUNED, SIGNALS, WRITING, Candidate, Candidates

FINISH = {"end": "stop", "stop": "stop", "length": "length", PRUNED: "length"}
"""OpenAI's words for why a response ended; a pruned one is not complete either."""
DONE = "data: [DONE]\n\n"
QUIET_SECONDS = 2.0
"""Without updates, a comment is sent so often: a client that has gone away is noticed, too."""
Result = tuple[Candidates, list[Candidate]]
"""Candidates, and the same ranked."""


def completion(head: dict[str, Any], result: Result, options: ChatOptions) -> dict[str, Any]:
    """Return a chat completion: the best `n` of the candidates."""
    candidates, ranked = result
    chosen = ranked[: options.n]
    choices = [
        {
            "index": place,
            "message": {"role": "assistant", "content": candidate.text, "refusal": None},
            "logprobs": None if options.top is None else logprobs(candidate),
            "finish_reason": FINISH[candidate.finish],
            "lookback": facts(candidate, place, options.best_of, options.ranking),
        }
        for place, candidate in enumerate(chosen)
    ]
    return head | {
        "object": "chat.completion",
        "choices": choices,
        "usage": usage(candidates, chosen),
        "lookback": summary(candidates, options),
    }


def usage(candidates: Candidates, chosen: Sequence[Candidate]) -> dict[str, int]:
    """Return tokens of the prompt and of what comes back; `summary` has those of all candidates."""
    prompt, written = len(candidates.prompt_ids), _count_tokens(chosen)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
    }


def summary(candidates: Candidates, options: ChatOptions) -> dict[str, Any]:
    """Return what was drawn in all."""
    drawn = {
        "seed": candidates.sampling.get("seed"),
        "best_of": options.best_of,
        "pruned": sum(candidate.finish == PRUNED for candidate in candidates),
        "tokens_drawn": _count_tokens(candidates),
    }
    note = options.ranking.note
    return drawn if note is None else drawn | {"note": note}


def _count_tokens(candidates: Iterable[Candidate]) -> int:
    return sum(len(candidate.tokens) for candidate in candidates)


def facts(candidate: Candidate, place: int, of: int, ranking: RankOptions) -> dict[str, Any]:
    """Return what LookBack says of one response."""
    return {
        "score": finite(candidate.score),
        "rank": place + 1,
        "of": of,
        "scorer": ranking.scorer.name,
        "alpha": ranking.settings.get("alpha"),
        "lam": ranking.settings.get("lam"),
        "index": candidate.index,
        "finish": candidate.finish,
    } | signals(candidate, ranking.signals)


def signals(candidate: Candidate, names: Sequence[str], start: int = 0) -> dict[str, Any]:
    """Return the tokens of a candidate from one on, and their signals; nothing without names."""
    if not names:
        return {}
    tokens: dict[str, Any] = {
        "tokens": list(candidate.tokens[start:]),
        "token_ids": candidate.token_ids[start:].tolist(),
    }
    return tokens | {name: getattr(candidate, name)[start:].tolist() for name in names}


def logprobs(candidate: Candidate, start: int = 0, stop: int | None = None) -> dict[str, Any]:
    """Return OpenAI's log-probabilities of tokens: the model's own, without temperature."""
    content = []
    for t in range(len(candidate.tokens))[start:stop]:
        top = []
        if candidate.top is not None:
            pairs = zip(candidate.top.tokens[t], candidate.top.log_prob[t].tolist(), strict=True)
            top = [_token(text, value) for text, value in pairs]
        token = _token(candidate.tokens[t], float(candidate.log_prob[t]))
        content.append(token | {"top_logprobs": top})
    return {"content": content, "refusal": None}


def _token(text: str, log_prob: float) -> dict[str, Any]:
    # A token that is a part of a character has no text of its own, and no bytes are known.
    known = list(text.encode()) if "\ufffd" not in text else None
    return {"token": text, "logprob": finite(log_prob), "bytes": known}


def scores(head: dict[str, Any], result: Result, ranking: RankOptions) -> dict[str, Any]:
    """Return the scores of given responses, in their order."""
    candidates, ranked = result
    scored = {
        candidate.index: {"text": candidate.text}
        | facts(candidate, place, len(candidates), ranking)
        for place, candidate in enumerate(ranked)
    }
    in_order = [scored[candidate.index] for candidate in candidates]
    return head | {"object": "lookback.scores", "scores": in_order}


def look(head: dict[str, Any], found: Look) -> dict[str, Any]:
    """Return where a response looked; weights are rounded by at most 0.1 %."""
    about = look_head(found)
    about["count"] = about.pop("tokens")
    pictures = [one | _map(found, place) for place, one in enumerate(about.pop("pictures"))]
    sums = {"a": sums_of(found.weights).tolist()}
    if found.baseline is not None:
        sums["a_prompt"] = sums_of(found.baseline).tolist()
    tokens = {"tokens": list(found.tokens), "pictures": pictures}
    return head | {"object": "lookback.look"} | about | tokens | sums


def _map(found: Look, place: int) -> dict[str, Any]:
    """Return where the tokens of one picture are, and what each token paid to each of them."""
    picture = found.pictures[place]
    boxes = None
    if picture.boxes is not None:  # a token that stands for no place has a box of nulls
        boxes = [[finite(edge) for edge in box] for box in picture.boxes.tolist()]
    weights = {"boxes": boxes, "weights": rounded(found.weights[:, picture.columns]).tolist()}
    if found.baseline is not None:
        weights["baseline"] = rounded(found.baseline[:, picture.columns]).tolist()
    return weights


class Mailbox:
    """The newest state of each candidate, from the engine's thread to the event loop.

    What is not taken is replaced by what is newer: a slow reader gets fewer updates.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()
        self._lock = threading.Lock()
        self._new: dict[int, Candidate] = {}

    def put(self, candidates: Sequence[Candidate]) -> None:
        """Add candidates, from any thread."""
        with self._lock:
            self._new |= {candidate.index: candidate for candidate in candidates}
        self._loop.call_soon_threadsafe(self._filled.set)

    def take(self) -> list[Candidate]:
        """Return what is new, by index; perhaps nothing."""
        self._filled.clear()
        with self._lock:
            new, self._new = self._new, {}
        return [new[i] for i in sorted(new)]

    async def updates(self, task: asyncio.Task[Result]) -> AsyncIterator[list[Candidate]]:
        """Yield what is new until a task is done; now and then nothing, if nothing is new."""
        waiting = asyncio.ensure_future(self._filled.wait())
        try:
            while not task.done():
                await asyncio.wait(
                    {task, waiting}, timeout=QUIET_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if waiting.done():
                    waiting = asyncio.ensure_future(self._filled.wait())
                if (new := self.take()) or not task.done():
                    yield new
        finally:
            waiting.cancel()


def event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, allow_nan=False)}\n\n"


def comment(body: dict[str, Any]) -> str:
    """Return what clients that do not know it ignore."""
    return f": lookback {json.dumps(body, allow_nan=False)}\n\n"


class Stream:
    """The events of one completion.

    Args:
        head: what all chunks begin with: id, created, model.
        options: what was asked for.
    """

    def __init__(self, head: dict[str, Any], options: ChatOptions) -> None:
        self.head = head | {"object": "chat.completion.chunk"}
        self.options = options
        self._sent: dict[int, Candidate] = {}
        self.live = LiveChoice(self) if options.best_of == 1 else None

    async def events(
        self, task: asyncio.Task[Result], mailbox: Mailbox, queued: Callable[[], int | None]
    ) -> AsyncIterator[str]:
        """Yield all events but the last line.

        Args:
            task: gives the candidates.
            mailbox: has updates of them before.
            queued: returns how many requests wait; None once this one has its turn.
        """
        if (count := queued()) is not None:
            yield comment({"event": "queued", "ahead": count})
        async for new in mailbox.updates(task):
            if not new and (count := queued()) is not None:
                yield comment({"event": "queued", "ahead": count})
            elif self.live is not None:
                for line in self.live.update(new):
                    yield line
            elif self.options.watch:
                yield comment({"event": "candidates", "candidates": self._updates(new)})
            else:
                yield comment(self._progress(new))
        candidates, ranked = task.result()
        if self.options.watch and self.live is None and (late := self._updates(candidates)):
            yield comment({"event": "candidates", "candidates": late})
        chosen = ranked[: self.options.n]
        for place, candidate in enumerate(chosen):
            live = self.live
            lines = self._tokens(place, candidate) if live is None else live.finish(candidate)
            for line in lines:
                yield line
            yield self._end(place, candidate, candidates)
        if self.options.include_usage:
            yield event(self.head | {"choices": [], "usage": usage(candidates, chosen)})

    def _updates(self, candidates: Iterable[Candidate]) -> list[dict[str, Any]]:
        """Return the tokens of each candidate that were not sent yet, with all signals."""
        updates = []
        for candidate in candidates:
            before, count = self._sent.get(candidate.index), len(candidate.tokens)
            start = 0 if before is None else min(len(before.tokens), count)
            if before is None or (before.finish, len(before.tokens)) != (candidate.finish, count):
                finish = None if candidate.finish == WRITING else candidate.finish
                tokens = signals(candidate, SIGNALS, start)
                place = {"index": candidate.index, "start": start}
                updates.append(place | tokens | {"finish": finish})
            self._sent[candidate.index] = candidate
        return updates

    def _progress(self, candidates: Sequence[Candidate]) -> dict[str, Any]:
        self._sent |= {candidate.index: candidate for candidate in candidates}
        finishes = [candidate.finish for candidate in self._sent.values()]
        best_of = self.options.best_of
        writing = finishes.count(WRITING) + best_of - len(finishes)
        pruned = finishes.count(PRUNED)
        return {
            "event": "progress",
            "written": max((len(c.tokens) for c in self._sent.values()), default=0),
            "at_most": self.options.sampling["max_new_tokens"],
            "writing": writing,
            "ended": best_of - writing - pruned,
            "pruned": pruned,
        }

    def chunk(
        self, place: int, delta: dict[str, Any], about: dict[str, Any] | None = None, **more: Any
    ) -> str:
        """Return a chunk of one choice; `about` goes beside the choice, `more` into it."""
        choice = {"index": place, "delta": delta, "logprobs": None, "finish_reason": None} | more
        usage_too = {"usage": None} if self.options.include_usage else {}
        return event(self.head | {"choices": [choice]} | usage_too | (about or {}))

    def opening(self, place: int) -> str:
        """Return the chunk that says who speaks."""
        return self.chunk(place, {"role": "assistant", "content": "", "refusal": None})

    def _tokens(self, place: int, candidate: Candidate) -> Iterator[str]:
        """Yield a choice that is known: a chunk per token, as clients expect of a stream."""
        yield self.opening(place)
        for t, text in enumerate(token_texts(candidate)):
            more = {}
            if self.options.top is not None and t < len(candidate.tokens):
                more["logprobs"] = logprobs(candidate, t, t + 1)
            if text or more:
                yield self.chunk(place, {"content": text}, **more)

    def _end(self, place: int, candidate: Candidate, candidates: Candidates) -> str:
        options, finish = self.options, FINISH[candidate.finish]
        about = {} if place else {"lookback": summary(candidates, options)}
        scored = facts(candidate, place, options.best_of, options.ranking)
        return self.chunk(place, {}, about, finish_reason=finish, lookback=scored)


class LiveChoice:
    """The one candidate of a stream, whose words go out as they come.

    Engines hold back what may become a stop text; here it is the character that is not whole yet.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._opened = False
        self._text = ""
        self._token_count = 0

    def update(self, candidates: Sequence[Candidate]) -> Iterator[str]:
        """Yield the chunks of what is new; without any, a sign of life."""
        if not candidates:
            yield comment({"event": "writing"})
        for candidate in candidates:
            if candidate.finish == WRITING:
                text = candidate.text.removesuffix("\ufffd")
                yield from self._chunks(candidate, text, text == candidate.text)

    def finish(self, candidate: Candidate) -> Iterator[str]:
        """Yield the chunks of what was held back, now that it is complete."""
        if not self._opened:
            yield self._open()
        yield from self._chunks(candidate, candidate.text, True)

    def _open(self) -> str:
        self._opened = True
        return self.stream.opening(0)

    def _chunks(self, candidate: Candidate, text: str, complete: bool) -> Iterator[str]:
        """Yield a chunk with the text that was not sent; and its tokens, if they are complete."""
        delta = text[len(self._text) :]
        start, count = self._token_count, len(candidate.tokens)
        has_tokens = complete and count > start
        if not delta and not has_tokens:
            return
        if not self._opened:
            yield self._open()
        more: dict[str, Any] = {}
        if has_tokens:
            self._token_count = count
            more["lookback"] = {"start": start} | signals(candidate, SIGNALS, start)
            if self.stream.options.top is not None:
                more["logprobs"] = logprobs(candidate, start)
        self._text = text if delta else self._text
        yield self.stream.chunk(0, {"content": delta}, **more)


def token_texts(candidate: Candidate) -> list[str]:
    """Return the response in pieces, one per token if possible; joined they are its text."""
    text, written = candidate.text, "".join(candidate.tokens)
    start = written.find(text) if text else -1
    if start < 0:
        return [text] if text else []
    pieces, end = [], 0
    for token in candidate.tokens:
        first, end = max(end, start), end + len(token)
        pieces.append(written[first : max(first, min(end, start + len(text)))])
    return pieces

"""Continuations of a prompt: their tokens and signals, their ends, and candidates made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookback.engines.common.logits import TokenStats, check_stats
from lookback.io.json_values import check_text
from lookback.signals import SIGNALS, WRITING, Asked, Candidate, Candidates, Signals, Top
from lookback.steering import MERGED, PRUNED, Draft
from lookback.steering.search import repeated

if TYPE_CHECKING:
    from lookback.conversations import SourceLike
    from lookback.engines.common.options import Response
    from lookback.engines.common.prompts import IdText, Prompter


class Likeliest(NamedTuple):
    """The k likeliest tokens of each step, the likeliest first: (T, k), or (n, T, k) of n."""

    token_ids: NDArray[np.int64]
    log_prob: NDArray[np.float32]

    def at(self, where: int | slice) -> Likeliest:
        """Return one continuation's, or those of some steps."""
        return Likeliest(self.token_ids[where], self.log_prob[where])


@dataclass
class Continuation:
    """One continuation.

    Attributes:
        token_ids: its tokens.
        signals: (4, T), as `SIGNALS` orders them.
        finish: why it ended.
        by_layer: (T, L), A_t in each attention layer, if it was asked for.
        parent, forked_at: of a fork, the number of the one that it continues, and after how many
            tokens.
        top: the likeliest tokens of each step, if they were asked for.
    """

    token_ids: list[int]
    signals: NDArray[np.float32]
    finish: str = "given"
    by_layer: NDArray[np.float32] | None = None
    parent: int | None = None
    forked_at: int | None = None
    top: Likeliest | None = None

    @classmethod
    def of(
        cls, token_ids: Sequence[int], rows: NDArray[np.float32], finish: str = "given"
    ) -> Continuation:
        """Make one of what `stack_signals` returned: (4, T), or (4 + L, T) by layer, or longer."""
        rows = rows[:, : len(token_ids)]
        signals, layers = rows[: len(SIGNALS)].copy(), rows[len(SIGNALS) :].T.copy()
        return cls(list(token_ids), signals, finish, layers if len(rows) > len(SIGNALS) else None)

    def without_end(self) -> Continuation:
        return self.cut(len(self.token_ids) - 1) if self.finish == "end" else self

    def cut(self, length: int) -> Continuation:
        """Return its first `length` tokens."""
        return replace(
            self,
            token_ids=self.token_ids[:length],
            signals=self.signals[:, :length],
            by_layer=None if self.by_layer is None else self.by_layer[:length],
            top=None if self.top is None else self.top.at(slice(length)),
        )


class Drawn:
    """The tokens of n continuations on the host, and which of them still go on.

    Args:
        n: how many.
        end_tokens: ids that end a continuation.
        stopped: says of the tokens so far whether to end there.
    """

    def __init__(
        self, n: int, end_tokens: Sequence[int], stopped: Callable[[list[int]], bool] | None
    ) -> None:
        self.ids: list[list[int]] = [[] for _ in range(n)]
        self.finish = ["length"] * n
        self.alive = list(range(n))
        self.origins: dict[int, tuple[int, int]] = {}  # of forks: parent, and after how many tokens
        self._end_tokens = frozenset(end_tokens)
        self._stopped = stopped

    def take(self, new: list[list[int]]) -> None:
        """Take the new tokens of each that goes on."""
        pairs = zip(self.alive, new, strict=True)
        self.alive = [i for i, tokens in pairs if self._goes_on(i, tokens)]

    def end(self, ends: Mapping[int, str]) -> None:
        """End some, each with its reason."""
        for i, finish in ends.items():
            self.finish[i] = finish
        self.alive = [i for i in self.alive if i not in ends]

    def fork(self, parents: Sequence[int]) -> dict[int, int]:
        """Add forks that begin where these are; return the parent of each by its number."""
        first = len(self.ids)
        self.ids += [list(self.ids[parent]) for parent in parents]
        self.finish += ["length"] * len(parents)
        forks = dict(enumerate(parents, first))
        self.origins |= {i: (parent, len(self.ids[parent])) for i, parent in forks.items()}
        self.alive += forks
        return forks

    def drafts(self, found: Sequence[Continuation]) -> dict[int, Draft]:
        """Return those that no checkpoint ended, as steering sees them."""
        alive = set(self.alive)
        return {
            i: Draft(one.token_ids, one.signals, i in alive)
            for i, one in enumerate(found)
            if one.finish not in (PRUNED, MERGED)
        }

    def continuations(
        self, signals: NDArray[np.float32], top: Likeliest | None = None
    ) -> list[Continuation]:
        """Return all of them, with what was recorded of each, (numbers, n, steps)."""
        made = []
        for i, (ids, finish) in enumerate(zip(self.ids, self.finish, strict=True)):
            continuation = Continuation.of(ids, signals[:, i], finish)
            continuation.parent, continuation.forked_at = self.origins.get(i, (None, None))
            continuation.top = None if top is None else top.at(i).at(slice(len(ids)))
            made.append(continuation)
        return made

    def so_far(
        self, signals: NDArray[np.float32], top: Likeliest | None = None
    ) -> list[Continuation]:
        """Return `continuations`, where those that go on are still being written."""
        made = self.continuations(signals, top)
        for i in self.alive:
            made[i].finish = WRITING
        return made

    def _goes_on(self, i: int, tokens: list[int]) -> bool:
        for token in tokens:
            self.ids[i].append(token)
            if token in self._end_tokens:
                self.finish[i] = "end"
                return False
            if self._stopped is not None and self._stopped(self.ids[i]):
                self.finish[i] = "stop"
                return False
        return True


class StopTexts:
    """The texts before which responses to one prompt end.

    They are found in the last tokens while a response is drawn, and cut off afterwards.

    Raises:
        ValueError: one of them is empty.
    """

    def __init__(self, prompter: Prompter, prompt_ids: list[int], texts: Sequence[str]) -> None:
        if "" in texts:
            raise ValueError("a stop text must not be empty")
        self.texts = list(texts)
        self._prompter = prompter
        self._prompt_ids = prompt_ids
        # A token has a byte at least; twice as many leave room for some that have none.
        self._tail = 8 + 2 * max((len(text.encode()) for text in texts), default=0)

    def reached(self, ids: list[int]) -> bool:
        """Whether a response that was free of them until its last token has one now."""
        if not self._in(self._prompter.decode_all(ids[-self._tail :])):
            return False
        # The tail alone may begin with half a character, or without its blank: ask the whole.
        return self._in(self._prompter.decode(self._prompt_ids, ids))

    def cut(self, one: Continuation) -> Continuation:
        """Return a response up to the token in which the first of them begins, if there is any."""
        if not self.texts or not self._in(self._prompter.decode(self._prompt_ids, one.token_ids)):
            return one
        pieces = self._prompter.pieces(self._prompt_ids, one.token_ids)
        text = "".join(pieces)
        start = min(text.find(stop) for stop in self.texts if stop in text)
        return replace(one.cut(_token_at(pieces, start)), finish="stop")

    def hold(self, one: Continuation) -> Continuation:
        """Return an unfinished response without what may become one of them: what was shown is
        not taken back."""
        if not self.texts:
            return one
        pieces = self._prompter.pieces(self._prompt_ids, one.token_ids)
        text = "".join(pieces)
        begun = max(_overlap(text, stop) for stop in self.texts)
        return one.cut(_token_at(pieces, len(text) - begun)) if begun else one

    def _in(self, text: str) -> bool:
        return any(stop in text for stop in self.texts)


def _token_at(pieces: Sequence[str], start: int) -> int:
    """Return the number of the token in which a character stands."""
    return int(np.searchsorted(np.cumsum([len(piece) for piece in pieces]), start, side="right"))


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text are the beginning of a stop text."""
    longest = min(len(text), len(stop) - 1)
    return next((k for k in range(longest, 0, -1) if text.endswith(stop[:k])), 0)


def tokens_drawn(drawn: Sequence[Continuation]) -> int:
    """Return how many tokens were drawn in all; those that a fork took over count once."""
    return sum(len(one.token_ids) - (one.forked_at or 0) for one in drawn)


def without_repeated(found: Sequence[Continuation]) -> list[Continuation]:
    """Return the first of those that say the same, in order; parents get their new numbers."""
    complete = {i: one.token_ids for i, one in enumerate(found) if one.finish != PRUNED}
    left_out = set(repeated(complete)) | {i for i, one in enumerate(found) if one.finish == MERGED}
    kept = [i for i in range(len(found)) if i not in left_out]
    place = {i: j for j, i in enumerate(kept)}

    def parent(one: Continuation) -> int | None:
        if one.parent is None or one.parent in place:
            return None if one.parent is None else place[one.parent]
        # It was left out: the first that begins as it did stands for it.
        begins = one.token_ids[: one.forked_at]
        return next(place[i] for i in kept if found[i].token_ids[: one.forked_at] == begins)

    return [replace(found[i], parent=parent(found[i])) for i in kept]


def stack_signals(stats: TokenStats, lookback: Tensor) -> Tensor:
    """Return the signals of R tokens as one tensor (4, R), in the order of `SIGNALS`.

    `lookback` is A_t, (1, R); or (1 + L, R), then the result is (4 + L, R): below, each layer's.
    """
    signals = stats._asdict() | {"visual_lookback": lookback[0]}
    return torch.cat([torch.stack([signals[name] for name in SIGNALS]), lookback[1:]])


def check_signals(signals: Tensor) -> None:
    """Raise FloatingPointError if what `stack_signals` made, (4 or more, ...), is not finite."""
    by_name = dict(zip(SIGNALS, signals, strict=False))
    check_stats(**{name: by_name[name] for name in TokenStats._fields})


def padded(responses: Sequence[Sequence[int]]) -> Tensor:
    """Return token ids as one tensor (n, longest), filled on the right: nothing looks there."""
    ids = torch.zeros(len(responses), max(len(one) for one in responses), dtype=torch.long)
    for row, response in zip(ids, responses, strict=True):
        row[: len(response)] = torch.as_tensor(response)
    return ids


def unpadded(responses: Sequence[Sequence[int]], signals: Tensor) -> list[Continuation]:
    """Return each response with its own part of the signals (4 or 4 + L, n, longest).

    Raises:
        FloatingPointError: they are not finite.
        ValueError: a token that the model rules out.
    """
    signals = signals.cpu()
    check_signals(signals)
    host = signals.numpy()
    for response, log_prob in zip(responses, host[SIGNALS.index("log_prob")], strict=True):
        refuse_ruled_out(response, log_prob)
    return [Continuation.of(response, host[:, i]) for i, response in enumerate(responses)]


def refuse_ruled_out(response: Sequence[int], log_prob: NDArray[np.float32]) -> None:
    """Raise ValueError if the model rules out a token of a given response."""
    for token, value in zip(response, log_prob.tolist(), strict=False):
        if value == -math.inf:
            raise ValueError(
                f"token id {token}: the model rules this token out, so a response with it has no "
                "probability"
            )


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Group responses of like length so that none pads much and none exceeds `budget` tokens."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(i)
    yield batch


def response_ids(
    prompter: Prompter, vocab: int, prompt_ids: list[int], i: int, response: Response
) -> list[int]:
    """Return the tokens of the i-th response, as `check_responses` returned it.

    Raises:
        ValueError: it is empty, or a token of it is not the model's, or a placeholder.
    """
    if isinstance(response, str):
        check_text(response, f"response {i}")
        try:
            return prompter.encode(prompt_ids, response)
        except ValueError as error:
            raise ValueError(f"response {i}: {error}") from None
    ids = response.token_ids.tolist() if isinstance(response, Candidate) else list(response)
    if not ids:
        raise ValueError(f"response {i} is empty: there is nothing to score")
    for token in ids:
        if not 0 <= token < vocab:
            raise ValueError(f"response {i}: token id {token} is outside the vocabulary of {vocab}")
        for kind, placeholder in prompter.media_tokens.items():
            if token == placeholder:
                raise ValueError(f"response {i}: token id {token} is the {kind} placeholder")
    return ids


def with_end(prompter: Prompter, ids: list[int], end_tokens: Sequence[int]) -> list[int]:
    """Return a response with its end token, if it has none yet.

    A model may have several: it is the one that the chat template writes behind an answer, or else
    the first.
    """
    if ids[-1] in end_tokens:
        return ids
    written = prompter.tokenizer(prompter.tail, add_special_tokens=False)["input_ids"]
    ends = [token for token in written if token in end_tokens] or list(end_tokens)
    return [*ids, *ends[:1]]


def make_candidates(
    asked: Asked,
    prompter: Prompter,
    source: SourceLike,
    prompt_ids: list[int],
    continuations: Sequence[Continuation],
    texts: Sequence[str | None] | None = None,
    sampling: dict[str, Any] | None = None,
) -> Candidates:
    """Return continuations of a prompt as candidates.

    `texts` are those of responses that were given as text, `sampling` is how they were drawn.
    """
    items = [
        make_candidate(prompter, prompt_ids, i, continuation, texts[i] if texts else None)
        for i, continuation in enumerate(continuations)
    ]
    return Candidates(
        tuple(items),
        asked.conversation.question,
        np.array(prompt_ids),
        model=asked.engine.name,
        defaults=asked.engine.family.defaults,
        sampling=sampling or {},
        messages=asked.conversation.to_json(),
        source=source,
        asked=asked,
    )


def make_candidate(
    prompter: Prompter | IdText,
    prompt_ids: list[int],
    i: int,
    one: Continuation,
    text: str | None = None,
) -> Candidate:
    """Return a continuation with its text (decoded, if not given) and the text of its tokens."""
    signals = Signals(
        np.array(one.token_ids),
        tuple(prompter.pieces(prompt_ids, one.token_ids)),
        **dict(zip(SIGNALS, one.signals, strict=True)),
        by_layer=one.by_layer,
        top=_top(prompter, prompt_ids, one),
    )
    text = prompter.decode(prompt_ids, one.token_ids) if text is None else text
    return Candidate(i, text, signals, one.finish, None, one.parent, one.forked_at)


def _top(prompter: Prompter | IdText, prompt_ids: list[int], one: Continuation) -> Top | None:
    """Return the likeliest tokens of each step, each with its text where it would have stood."""
    if one.top is None:
        return None
    texts = prompter.alternatives(prompt_ids, one.token_ids, one.top.token_ids.tolist())
    return Top(one.top.token_ids, tuple(map(tuple, texts)), one.top.log_prob)

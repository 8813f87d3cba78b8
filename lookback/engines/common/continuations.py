"""Continuations on their way to the model and back: tokens and signals, one by one or batched."""

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
from lookback.engines.common.tokens import IdText, Spelling
from lookback.io.json_values import check_text
from lookback.signals import SIGNALS, WRITING, Asked, Candidate, Candidates, Signals, Top
from lookback.steering import MERGED, PRUNED, Draft
from lookback.steering.search import repeated

if TYPE_CHECKING:
    from lookback.conversations import Conversation, SourceLike
    from lookback.engines import Engine
    from lookback.engines.common.options import Response
    from lookback.engines.common.prompts import Prompter


class Likeliest(NamedTuple):
    """The k likeliest tokens of each step, the likeliest first: (T, k), or (n, T, k) of n."""

    token_ids: NDArray[np.int64]
    log_prob: NDArray[np.float32]

    def at(self, where: int | slice) -> Likeliest:
        """One continuation's, or some steps'."""
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
        """Of what `stack_signals` made of at least its tokens: (4, T), or (4 + L, T) by layer."""
        rows = rows[:, : len(token_ids)]
        signals, layers = rows[: len(SIGNALS)].copy(), rows[len(SIGNALS) :].T.copy()
        return cls(list(token_ids), signals, finish, layers if len(rows) > len(SIGNALS) else None)

    def without_end(self) -> Continuation:
        """Without the end token, if it drew one."""
        return self.cut(len(self.token_ids) - 1) if self.finish == "end" else self

    def cut(self, length: int) -> Continuation:
        """The first `length` tokens."""
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
        told = zip(self.alive, new, strict=True)
        self.alive = [i for i, tokens in told if self._goes_on(i, tokens)]

    def end(self, ends: Mapping[int, str]) -> None:
        """End some, for the reasons that are given."""
        for i, finish in ends.items():
            self.finish[i] = finish
        self.alive = [i for i in self.alive if i not in ends]

    def fork(self, parents: Sequence[int]) -> dict[int, int]:
        """Let new ones go on from where these are; their numbers, and each one's parent."""
        first = len(self.ids)
        self.ids += [list(self.ids[parent]) for parent in parents]
        self.finish += ["length"] * len(parents)
        forks = dict(enumerate(parents, first))
        self.origins |= {i: (parent, len(self.ids[parent])) for i, parent in forks.items()}
        self.alive += forks
        return forks

    def drafts(self, found: Sequence[Continuation]) -> dict[int, Draft]:
        """Those that no checkpoint ended, of all that there are, as steering sees them."""
        alive = set(self.alive)
        return {
            i: Draft(one.token_ids, one.signals, i in alive)
            for i, one in enumerate(found)
            if one.finish not in (PRUNED, MERGED)
        }

    def continuations(
        self, signals: NDArray[np.float32], top: Likeliest | None = None
    ) -> list[Continuation]:
        """All of them, with what was recorded of each, (numbers, n, steps)."""
        found = []
        for i, (ids, finish) in enumerate(zip(self.ids, self.finish, strict=True)):
            one = Continuation.of(ids, signals[:, i], finish)
            one.parent, one.forked_at = self.origins.get(i, (None, None))
            one.top = None if top is None else top.at(i).at(slice(len(ids)))
            found.append(one)
        return found

    def so_far(
        self, signals: NDArray[np.float32], top: Likeliest | None = None
    ) -> list[Continuation]:
        """`continuations`, where those that go on are still being written."""
        found = self.continuations(signals, top)
        for i in self.alive:
            found[i].finish = WRITING
        return found

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


def tokens_drawn(drawn: Sequence[Continuation]) -> int:
    """How many tokens were drawn for all of them; those that a fork took over count once."""
    return sum(len(one.token_ids) - (one.forked_at or 0) for one in drawn)


def without_repeated(found: Sequence[Continuation]) -> list[Continuation]:
    """Each once of those that say the same, in order; parents get their new numbers."""
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
    """The signals of R tokens as one tensor (4, R), in the order of `SIGNALS`.

    Args:
        stats: what the logits say.
        lookback: (1, R), A_t; or (1 + L, R), then the result is (4 + L, R): below, each layer's.
    """
    found = stats._asdict() | {"visual_lookback": lookback[0]}
    return torch.cat([torch.stack([found[name] for name in SIGNALS]), lookback[1:]])


def check_signals(signals: Tensor) -> None:
    """`check_stats` of what `stack_signals` made, (4 or more, ...)."""
    found = dict(zip(SIGNALS, signals, strict=False))
    check_stats(**{name: found[name] for name in TokenStats._fields})


def padded(responses: Sequence[Sequence[int]]) -> Tensor:
    """Token ids as one tensor (n, longest), filled on the right: nothing looks there."""
    ids = torch.zeros(len(responses), max(len(one) for one in responses), dtype=torch.long)
    for row, response in zip(ids, responses, strict=True):
        row[: len(response)] = torch.as_tensor(response)
    return ids


def unpadded(responses: Sequence[Sequence[int]], signals: Tensor) -> list[Continuation]:
    """Each response with its own part of the signals (4 or 4 + L, n, longest).

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
    """Refuse a response that is given with a token that has no probability.

    Raises:
        ValueError: the model rules a token out.
    """
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
    """A response with its end token, if it has none yet.

    A model may have several: it is the one that the chat template writes behind an answer, or else
    the first.
    """
    if ids[-1] in end_tokens:
        return ids
    written = prompter.tokenizer(prompter.tail, add_special_tokens=False)["input_ids"]
    ends = [token for token in written if token in end_tokens] or list(end_tokens)
    return [*ids, *ends[:1]]


def make_candidates(
    engine: Engine,
    prompter: Spelling,
    conversation: Conversation,
    source: SourceLike,
    prompt_ids: list[int],
    found: Sequence[Continuation],
    texts: Sequence[str | None] | None = None,
    sampling: dict[str, Any] | None = None,
) -> Candidates:
    """What an engine gives back: continuations of a prompt, with what was asked.

    Args:
        engine: was asked.
        prompter: turns tokens into text.
        conversation: what was asked.
        source: what A_t was measured on.
        prompt_ids: the prompt's tokens.
        found: the continuations.
        texts: of those that were given as text.
        sampling: how they were drawn, if they were.
    """
    items = [
        make_candidate(prompter, prompt_ids, i, one, texts[i] if texts else None)
        for i, one in enumerate(found)
    ]
    return Candidates(
        tuple(items),
        conversation.question,
        np.array(prompt_ids),
        model=engine.name,
        defaults=engine.family.defaults,
        sampling=sampling or {},
        messages=conversation.to_json(),
        source=source,
        asked=Asked(engine, conversation),
    )


def make_candidate(
    prompter: Spelling | IdText,
    prompt_ids: list[int],
    i: int,
    one: Continuation,
    text: str | None = None,
) -> Candidate:
    """A continuation with its text (decoded, if not given) and the text of its tokens."""
    signals = Signals(
        np.array(one.token_ids),
        tuple(prompter.pieces(prompt_ids, one.token_ids)),
        **dict(zip(SIGNALS, one.signals, strict=True)),
        by_layer=one.by_layer,
        top=_top(prompter, prompt_ids, one),
    )
    text = prompter.decode(prompt_ids, one.token_ids) if text is None else text
    return Candidate(i, text, signals, one.finish, None, one.parent, one.forked_at)


def _top(prompter: Spelling | IdText, prompt_ids: list[int], one: Continuation) -> Top | None:
    """The likeliest tokens of each step, each with its text where it would have stood."""
    if one.top is None:
        return None
    texts = prompter.alternatives(prompt_ids, one.token_ids, one.top.token_ids.tolist())
    return Top(one.top.token_ids, tuple(map(tuple, texts)), one.top.log_prob)

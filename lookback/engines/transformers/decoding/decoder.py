"""Token ids in, signals out: what is read of an LVLM's passes over a prompt and N continuations.

Knows nothing of text. A prompt goes through the model once (`prefill`); given continuations are
scored against it in batches (`score`), new ones are drawn from it (`sample`). The row that matters
for token y_t is the one that predicts it: the prompt's last row for y_1, the row of y_{t-1} after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from lookback.engines.common.continuations import (
    Continuation,
    Drawn,
    batches,
    padded,
    stack_signals,
    unpadded,
)
from lookback.engines.common.logits import cheap_to_read, token_stats
from lookback.engines.common.options import Progress
from lookback.engines.transformers.attention.source_weights import Importance, RowWeights
from lookback.engines.transformers.attention.tap import reading
from lookback.engines.transformers.decoding.batch import Rows
from lookback.engines.transformers.decoding.passes import Passes, RotationError
from lookback.engines.transformers.decoding.prefix import Prefix, SharedCache, SharedPrefix
from lookback.engines.transformers.decoding.session import ModelSession
from lookback.steering import Steering

if TYPE_CHECKING:
    from lookback.engines.common.stream import StreamNotifier

T = TypeVar("T")
LOOK_EVERY = 8
"""Steps between two looks at what was drawn, where a look makes the device wait."""


class Decoder(Passes):
    """Scores, draws, hides and looks, by passes over one model."""

    def score(
        self,
        prefix: Prefix,
        responses: Sequence[Sequence[int]],
        progress: Progress | None = None,
        *,
        by_layer: bool = False,
    ) -> list[Continuation]:
        """The signals of given continuations, each at least one token long."""
        work = partial(self._score, prefix, by_layer=by_layer)
        return self._batched(prefix, responses, work, progress)

    def knockout(
        self,
        prefix: Prefix,
        responses: Sequence[Sequence[int]],
        layers: tuple[int, int],
        share: float,
        progress: Progress | None = None,
        again: Callable[[Tensor], Prefix] | None = None,
    ) -> list[Continuation]:
        """The signals of given continuations once each loses the source tokens it looks at most.

        Importance of a source token: the attention it receives from the continuation's own rows,
        over the heads of the layers first..last - 1. The most important are then hidden, in every
        layer: from the rows that predict the continuation, while the prompt before them is shared
        as it is; or from all rows, the prompt's too, which then goes through the model once more
        for each continuation.

        Args:
            prefix: the prompt, with a source.
            responses: token ids, each at least one.
            layers: which attention layers say what is important, end exclusive.
            share: of the source tokens, how many to hide; at least one is.
            progress: called with (responses done, of so many).
            again: to hide them from all rows: sends the prompt through the model with some of its
                source tokens hidden, (source,).
        """
        if not prefix.source:
            raise ValueError("this prompt has no source tokens to hide")

        def core(batch: list[Sequence[int]], session: ModelSession) -> Tensor:
            """(n, source), the most important of each."""
            received = self._importance(prefix, batch, layers, session)
            hidden = torch.zeros_like(received, dtype=torch.bool)
            count = max(1, int(prefix.source * share))
            return hidden.scatter_(1, received.topk(count).indices, True)

        if again is not None:
            hidden = self._batched(prefix, responses, lambda *some: [*core(*some)], None)
            return self._score_hidden(again, responses, hidden, progress)
        shorter = prefix.without_last()

        def hide(batch: list[Sequence[int]], session: ModelSession) -> list[Continuation]:
            hidden = core(batch, session)
            ids = padded(batch).to(prefix.logits.device)
            asked = torch.full_like(ids[:, :1], prefix.last)
            rows = torch.cat([asked, ids[:, :-1]], 1)
            reader = SharedPrefix(shorter, hidden=hidden)
            signals = self._room(ids.shape, ids.device)
            self._read(shorter, reader, rows, ids, signals, session)
            return unpadded(batch, signals)

        return self._batched(prefix, responses, hide, progress)

    def _score_hidden(
        self,
        again: Callable[[Tensor], Prefix],
        responses: Sequence[Sequence[int]],
        hidden: Sequence[Tensor],
        progress: Progress | None,
    ) -> list[Continuation]:
        """The signals of continuations, each after a prompt that hides tokens of its own."""
        found: list[Continuation] = []
        for ids, one in zip(responses, hidden, strict=True):
            prefix = again(one)
            work = partial(self._score, prefix, by_layer=False, hidden=one[None])
            found += self._batched(prefix, [ids], work, None)
            if progress is not None:
                progress(len(found), len(responses))
        return found

    def look(
        self,
        inputs: Mapping[str, Any],
        source: Tensor,
        response: Sequence[int],
        layers: tuple[int, int],
        progress: Progress | None = None,
    ) -> Tensor:
        """The attention that the row predicting each token pays to each source token, (T, source).

        It is the mean over all heads of the chosen layers; with all layers a row sums to A_t. The
        first token's row is read in the prompt's own pass: layers with a state cannot go back.

        Args:
            inputs: the prompt, as for `prefill`.
            source: (P,), as for `prefill`; the columns are its tokens in the prompt's order.
            response: token ids, at least one.
            layers: which attention layers, end exclusive.
            progress: called with (tokens done, of so many).
        """
        prefix = self.prefill(inputs, source, layers)
        if prefix.weights is None:
            raise ValueError("this prompt has no source tokens to look at")
        self._check_length(prefix, len(response))
        ids = torch.tensor([list(response)], device=prefix.logits.device)
        found = prefix.weights.new_empty(len(response), prefix.source)
        found[:1] = prefix.weights
        cache, reader = SharedCache(prefix, 1), RowWeights(prefix, layers)
        tell = progress or (lambda done, total: None)
        tell(1, len(response))
        with self._running(prefix) as session, reading(reader):
            for part in self._pieces(1, len(response) - 1):
                session.yield_turn()
                self._forward(ids[:, :-1][:, part], cache, reader, keep=self.last_row)
                found[1:][part] = reader.rows.take()
                tell(1 + cache.fed, len(response))
        return found

    def _batched(
        self,
        prefix: Prefix,
        responses: Sequence[Sequence[int]],
        work: Callable[[list[Sequence[int]], ModelSession], list[T]],
        progress: Progress | None,
    ) -> list[T]:
        """Work on responses of like length together; results in the order of the responses."""
        self._check_length(prefix, max(len(ids) for ids in responses))
        found: dict[int, T] = {}
        with self._running(prefix) as session:
            for batch in batches([len(ids) for ids in responses], self.batch_rows):
                found |= zip(batch, work([responses[i] for i in batch], session), strict=True)
                if progress is not None:
                    progress(len(found), len(responses))
        return [found[i] for i in range(len(responses))]

    def _score(
        self,
        prefix: Prefix,
        responses: list[Sequence[int]],
        session: ModelSession,
        by_layer: bool,
        hidden: Tensor | None = None,
    ) -> list[Continuation]:
        ids = padded(responses).to(prefix.logits.device)
        n, looks = len(responses), self._looks(by_layer)
        signals = self._room(ids.shape, ids.device, by_layer)
        stats = token_stats(prefix.logits.expand(n, -1), ids[:, 0])
        signals[..., 0] = stack_signals(stats, prefix.lookback[:looks, 0].expand(-1, n))
        reader = SharedPrefix(prefix, tap=self.tap, by_layer=by_layer, hidden=hidden)
        self._read(prefix, reader, ids[:, :-1], ids[:, 1:], signals[..., 1:], session)
        return unpadded(responses, signals)

    def _read(
        self,
        prefix: Prefix,
        reader: SharedPrefix,
        rows: Tensor,
        next_ids: Tensor,
        signals: Tensor,
        session: ModelSession,
    ) -> None:
        """Send `rows` (n, R) on after the prefix; row r gives the signals of `next_ids[:, r]`."""
        n, length = rows.shape
        cache = SharedCache(prefix, n)
        with reading(reader):
            for part in self._pieces(n, length):
                session.yield_turn()
                logits, lookback = self._forward(rows[:, part], cache, reader)
                stats = token_stats(logits.flatten(0, 1), next_ids[:, part].flatten())
                found = stack_signals(stats, lookback.flatten(1))
                signals[..., part] = found.unflatten(1, (n, -1))

    def _importance(
        self,
        prefix: Prefix,
        responses: list[Sequence[int]],
        layers: tuple[int, int],
        session: ModelSession,
    ) -> Tensor:
        """Attention that each source token receives from each response's rows, (n, source)."""
        ids = padded(responses).to(prefix.logits.device)
        n, length = ids.shape
        ends = torch.tensor([len(one) for one in responses], device=ids.device)
        valid = torch.arange(length, device=ids.device) < ends[:, None]
        cache, reader = SharedCache(prefix, n), Importance(prefix, n, layers)
        with reading(reader):
            for part in self._pieces(n, length):
                session.yield_turn()
                reader.valid = valid[:, part]
                self._forward(ids[:, part], cache, reader, keep=self.last_row)
        return reader.received

    def sample(
        self,
        prefix: Prefix,
        n: int,
        *,
        temperature: float,
        top_p: float,
        top_k: int | None,
        max_new_tokens: int,
        seed: int,
        end_tokens: Sequence[int],
        stopped: Callable[[list[int]], bool] | None = None,
        progress: Progress | None = None,
        by_layer: bool = False,
        steering: Steering | None = None,
        complete: Callable[[Continuation], Continuation] = lambda one: one,
        top: int = 0,
        notifier: StreamNotifier | None = None,
    ) -> list[Continuation]:
        """Draw n continuations; each ends with its end token, if it drew one.

        Args:
            prefix: the prompt.
            n: how many.
            temperature: of the softmax; 0 takes the most likely token.
            top_p: the nucleus.
            top_k: at most so many tokens.
            max_new_tokens: the longest.
            seed: continuation i draws from the stream (seed, i).
            end_tokens: ids that end a continuation.
            stopped: says of the tokens so far whether to end there.
            progress: called after each step.
            by_layer: keep A_t in each layer too.
            steering: decides at its checkpoints which go on, and which are forked.
            complete: what is kept of a continuation that has ended, for `steering` to judge.
            top: keep so many of the likeliest tokens of each step; not with forks.
            notifier: is told of them while they are drawn, when it is due.
        """
        steps = min(max_new_tokens, self.max_length - prefix.length)
        room = self._room((1 + n, steps), prefix.logits.device, by_layer)
        drawn = Drawn(n, end_tokens, stopped)
        often = cheap_to_read(room) or notifier is not None
        every = self.look_every or (1 if often else LOOK_EVERY)
        reader = SharedPrefix(prefix, tap=self.tap, by_layer=by_layer)

        def forward(ids: Tensor, cache: SharedCache) -> tuple[Tensor, Tensor]:
            return self._forward(ids, cache, reader)

        rows = Rows(prefix, room, self._looks(by_layer), seed, forward, top)
        with self._running(prefix) as session, reading(reader):
            for t in range(1, steps + 1):
                rows.draw(temperature, top_p, top_k)
                due = steering is not None and t < steps and steering.due(t)
                if due or rows.fresh == every or t == steps:
                    drawn.take(rows.look())
                    forks = None
                    if steering is not None and due and drawn.alive:
                        found = [complete(one) for one in drawn.continuations(rows.signals())]
                        decision = steering.decide(t, drawn.drafts(found))
                        drawn.end(decision.ends)
                        forks = drawn.fork(decision.forks)
                    if not drawn.alive:
                        break
                    rows.arrange(drawn.alive, forks)
                    if notifier is not None and t < steps and notifier.is_due():
                        notifier.update(drawn.so_far(rows.signals(), rows.top()))
                if progress is not None:
                    progress(t, steps)
                if t < steps:
                    session.yield_turn()
                    try:
                        rows.step()
                    except RotationError:  # no matter if all had ended before
                        if rows.fresh:
                            drawn.take(rows.look())
                        if drawn.alive:
                            raise
                        break
        return drawn.continuations(rows.signals(), rows.top())

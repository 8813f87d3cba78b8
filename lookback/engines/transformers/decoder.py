"""Token ids in, signals out: the passes of an LVLM over one prompt and its N continuations.

Knows nothing of text. A prompt goes through the model once (`prefill`); given continuations are
scored against it in batches (`score`), new ones are drawn from it (`sample`). The row that matters
for token y_t is the one that predicts it: the prompt's last row for y_1, the row of y_{t-1} after.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lookback.engines import Progress
from lookback.engines.transformers.caches import has_state, prompt_cache
from lookback.engines.transformers.compat import uncompiled
from lookback.engines.transformers.continuations import (
    Continuation,
    Drawn,
    batches,
    check_signals,
    padded,
    stack_signals,
    unpadded,
)
from lookback.engines.transformers.habits import Habits, find_habits
from lookback.engines.transformers.knockout import Importance
from lookback.engines.transformers.logits import (
    cheap_to_read,
    draw,
    next_token_probs,
    streams,
    token_stats,
)
from lookback.engines.transformers.padding import without_padding
from lookback.engines.transformers.prefix import Prefix, SharedCache, SharedPrefix
from lookback.engines.transformers.state import borrowed, snapshot
from lookback.engines.transformers.support import (
    attention_layers,
    check_supported,
    decoder_configs,
    rope_switches,
    text_config,
)
from lookback.engines.transformers.tap import LastRow, reading, tapped
from lookback.engines.transformers.weights import LastRowWeights, RowWeights
from lookback.signals import SIGNALS

LOGIT_BYTES = 2**28
"""Memory for one batch's logits in float32: it sets how many tokens are scored at once."""

LOOK_EVERY = 8
"""Steps between two looks at what was drawn, where a look makes the device wait."""

_HABITS: WeakKeyDictionary[PreTrainedModel, Habits] = WeakKeyDictionary()


class Decoder:
    """The passes over one model, which stays as it was between them.

    Args:
        model: a transformers image-text-to-text model.
        tap: False runs the same passes and reads no attention (A_t is 0): for benchmarks.
    """

    def __init__(self, model: PreTrainedModel, *, tap: bool = True) -> None:
        self.image_token = check_supported(model)
        self.model = model
        self.tap = tap
        self.look_every = 0  # steps between two looks at what was drawn; 0: as the device likes it
        self.layers = attention_layers(model)
        self.configs = decoder_configs(model)
        text = text_config(model)
        self.vocab = int(text.vocab_size)
        self.switches = rope_switches(model)
        self.max_length = getattr(text, "max_position_embeddings", None) or 2**31
        takes = inspect.signature(model.forward).parameters
        self.last_row = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self.batch_rows = max(64, LOGIT_BYTES // (4 * self.vocab))
        if not model.training:
            _ = self.habits  # a model that cannot go on is refused here, not at its first prompt

    @property
    def habits(self) -> Habits:
        """How continuations go through the model; found out once."""
        if self.model not in _HABITS:
            fallback = Habits(stepwise=has_state(prompt_cache(self.model).layers))
            _HABITS[self.model] = find_habits(self.model, self._attempt, fallback)
        return _HABITS[self.model]

    def _attempt(self, habits: Habits, prompt: list[int], response: list[int]) -> Tensor:
        """Log-probabilities (T, V) of a response's rows after a prompt, sent through in one way."""
        ids = torch.tensor([[*prompt, *response[:-1]]], device=self.model.device)
        inputs = {"input_ids": ids[:, : len(prompt)]}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        prefix = self.prefill(inputs, torch.zeros(len(prompt), dtype=torch.bool))
        cache, reader = SharedCache(prefix, 1), SharedPrefix(prefix, tap=self.tap)
        found = [prefix.logits]
        with self._running(prefix), reading(reader):
            for rows in ids[:, len(prompt) :].split(1 if habits.stepwise else len(response), 1):
                found += self._forward(rows, cache, reader, habits)[0]
        return torch.cat([one.float() for one in found]).log_softmax(-1)

    @contextmanager
    def _running(self, prefix: Prefix | None = None) -> Iterator[None]:
        """Passes of a new prompt, or of a prefix's continuations; then the model is as before."""
        if self.model.training:
            raise ValueError("the model is in training mode: call model.eval() first")
        state = None if prefix is None else prefix.state
        with (
            borrowed(self.model, state),
            torch.no_grad(),
            tapped(self.configs),
            uncompiled(self.model),
        ):
            yield

    def prefill(
        self,
        inputs: Mapping[str, Any],
        source: Tensor,
        layers: tuple[int, int] | None = None,
    ) -> Prefix:
        """Send a prompt, as a processor made it (batch of one), through the model.

        Args:
            inputs: what the model takes.
            source: (P,), True for the tokens whose attention A_t is.
            layers: if given, `Prefix.weights` are read in these attention layers, end exclusive.

        Raises:
            ValueError: it is no prompt of this model.
        """
        if len(inputs["input_ids"]) != 1:
            raise ValueError(f"expected one prompt, got a batch of {len(inputs['input_ids'])}")
        if source.shape != inputs["input_ids"][0].shape or source.dtype != torch.bool:
            raise ValueError(
                f"source is {source.dtype} of the shape {tuple(source.shape)}: it must be one mark "
                f"per token, bool of ({inputs['input_ids'].shape[1]},)"
            )
        inputs, source = without_padding(inputs, source)
        ids: Tensor = inputs["input_ids"]
        if ids.shape[1] >= self.max_length:
            raise ValueError(
                f"the prompt has {ids.shape[1]} tokens, the model takes {self.max_length}"
            )
        source = source.to(ids.device)
        cache = prompt_cache(self.model)
        reader = LastRow(source[None], keys=ids.shape[1], by_layer=True)
        if layers is not None and source.any():
            reader = LastRowWeights(source[None], layers)
        with self._running(), reading(reader):
            try:
                out = self.model(**inputs, past_key_values=cache, use_cache=True, **self.last_row)
            except IndexError:
                self._refuse_unknown(ids)
                raise
            logits, lookback = out.logits[:, -1], reader.lookback(self.layers)
            prefix = Prefix.of(cache, ids[0], source, logits, lookback)
            if isinstance(reader, LastRowWeights):
                prefix.weights = reader.rows.take()
            prefix.state = snapshot(self.model)
        if inputs.get("position_ids") is not None:
            prefix.positions = inputs["position_ids"][..., -1:] + 1
        return prefix

    def _refuse_unknown(self, ids: Tensor) -> None:
        """Say that a prompt failed for its tokens; some models take placeholders they do not know.

        Raises:
            ValueError: it has tokens that the model does not know.
        """
        known, largest = self.model.get_input_embeddings().weight.shape[0], int(ids.max())
        if largest >= known:
            raise ValueError(
                f"the prompt has the token {largest}, and the model knows {known}: do its "
                "tokenizer and its weights belong together?"
            )

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
    ) -> list[Continuation]:
        """The signals of given continuations once each loses the source tokens it looks at most.

        Importance of a source token: the attention it receives from the continuation's own rows,
        over the heads of the layers first..last - 1. The most important are then hidden, in every
        layer, from the rows that predict the continuation; the prompt before them is shared as it
        is.

        Args:
            prefix: the prompt, with a source.
            responses: token ids, each at least one.
            layers: which attention layers say what is important, end exclusive.
            share: of the source tokens, how many to hide; at least one is.
            progress: called with (responses done, of so many).
        """
        if not prefix.source:
            raise ValueError("this prompt has no source tokens to hide")
        shorter = prefix.without_last()
        count = max(1, int(prefix.source * share))

        def hide(batch: list[Sequence[int]]) -> list[Continuation]:
            received = self._importance(prefix, batch, layers)
            hidden = torch.zeros_like(received, dtype=torch.bool)
            hidden.scatter_(1, received.topk(count).indices, True)
            ids = padded(batch).to(prefix.logits.device)
            asked = torch.full_like(ids[:, :1], prefix.last)
            rows = torch.cat([asked, ids[:, :-1]], 1)
            reader = SharedPrefix(shorter, hidden=hidden)
            signals = self._room(ids.shape, ids.device)
            self._read(shorter, reader, rows, ids, signals)
            return unpadded(batch, signals)

        return self._batched(prefix, responses, hide, progress)

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
        with self._running(prefix), reading(reader):
            for part in self._pieces(1, len(response) - 1):
                self._forward(ids[:, :-1][:, part], cache, reader, keep=self.last_row)
                found[1:][part] = reader.rows.take()
                tell(1 + cache.fed, len(response))
        return found

    def _check_length(self, prefix: Prefix, longest: int) -> None:
        """Refuse responses that are too long after this prompt.

        Raises:
            ValueError: they are.
        """
        if prefix.length + longest > self.max_length:
            raise ValueError(
                f"prompt and response together have {prefix.length + longest} tokens, "
                f"the model takes {self.max_length}"
            )

    def _batched(
        self,
        prefix: Prefix,
        responses: Sequence[Sequence[int]],
        work: Callable[[list[Sequence[int]]], list[Continuation]],
        progress: Progress | None,
    ) -> list[Continuation]:
        """Work on responses of like length together; results in the order of the responses."""
        self._check_length(prefix, max(len(ids) for ids in responses))
        found: dict[int, Continuation] = {}
        with self._running(prefix):
            for batch in batches([len(ids) for ids in responses], self.batch_rows):
                found |= zip(batch, work([responses[i] for i in batch]), strict=True)
                if progress is not None:
                    progress(len(found), len(responses))
        return [found[i] for i in range(len(responses))]

    def _score(
        self, prefix: Prefix, responses: list[Sequence[int]], by_layer: bool
    ) -> list[Continuation]:
        ids = padded(responses).to(prefix.logits.device)
        n, looks = len(responses), self._looks(by_layer)
        signals = self._room(ids.shape, ids.device, by_layer)
        stats = token_stats(prefix.logits.expand(n, -1), ids[:, 0])
        signals[..., 0] = stack_signals(stats, prefix.lookback[:looks, 0].expand(-1, n))
        reader = SharedPrefix(prefix, tap=self.tap, by_layer=by_layer)
        self._read(prefix, reader, ids[:, :-1], ids[:, 1:], signals[..., 1:])
        return unpadded(responses, signals)

    def _read(
        self, prefix: Prefix, reader: SharedPrefix, rows: Tensor, next_ids: Tensor, signals: Tensor
    ) -> None:
        """Send `rows` (n, R) on after the prefix; row r gives the signals of `next_ids[:, r]`."""
        n, length = rows.shape
        cache = SharedCache(prefix, n)
        with reading(reader):
            for part in self._pieces(n, length):
                logits, lookback = self._forward(rows[:, part], cache, reader)
                stats = token_stats(logits.flatten(0, 1), next_ids[:, part].flatten())
                found = stack_signals(stats, lookback.flatten(1))
                signals[..., part] = found.unflatten(1, (n, -1))

    def _pieces(self, n: int, length: int) -> Iterator[slice]:
        """The rows of n continuations in pieces: as many at a time as memory and habits allow."""
        step = 1 if self.habits.stepwise else max(1, self.batch_rows // n)
        return (slice(start, start + step) for start in range(0, length, step))

    def _looks(self, by_layer: bool) -> int:
        """How many numbers a token's attention leaves: A_t, and that of each layer."""
        return 1 + self.layers * by_layer

    def _room(self, shape: Sequence[int], device: torch.device, by_layer: bool = False) -> Tensor:
        """Room for the signals of continuations, (n, T), as `stack_signals` orders them."""
        numbers = len(SIGNALS) - 1 + self._looks(by_layer)
        return torch.empty(numbers, *shape, dtype=torch.float32, device=device)

    def _importance(
        self, prefix: Prefix, responses: list[Sequence[int]], layers: tuple[int, int]
    ) -> Tensor:
        """Attention that each source token receives from each response's rows, (n, source)."""
        ids = padded(responses).to(prefix.logits.device)
        n, length = ids.shape
        ends = torch.tensor([len(one) for one in responses], device=ids.device)
        valid = torch.arange(length, device=ids.device) < ends[:, None]
        cache, reader = SharedCache(prefix, n), Importance(prefix, n, layers)
        with reading(reader):
            for part in self._pieces(n, length):
                reader.valid = valid[:, part]
                self._forward(ids[:, part], cache, reader, keep=self.last_row)
        return reader.received

    def _forward(
        self,
        ids: Tensor,
        cache: SharedCache,
        reader: SharedPrefix,
        habits: Habits | None = None,
        keep: Mapping[str, int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logits (n, R, V) and A_t (1 or 1 + L, n, R) of the next R tokens of each continuation.

        `keep`: `last_row` for one row of logits alone, where nobody reads the others.
        """
        start, end = cache.prefix.length, cache.prefix.length + cache.fed + ids.shape[1]
        for length in self.switches:
            if start <= length < end:
                raise ValueError(
                    f"a prompt of {start} tokens goes on beyond {length}, where this model turns "
                    "all its positions in another way: make the response shorter"
                )
        more: dict[str, Any] = {}
        if cache.prefix.positions is not None or (habits or self.habits).positions:
            more["position_ids"] = cache.next_positions(ids)
        more |= keep or {}
        out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, **more)
        cache.fed += ids.shape[1]
        if not self.tap:
            nothing = torch.zeros(self._looks(reader.by_layer), *ids.shape, device=ids.device)
            return out.logits, nothing
        return out.logits, reader.lookback(self.layers).to(ids.device)

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
        """
        device = prefix.logits.device
        steps = min(max_new_tokens, self.max_length - prefix.length)
        uniform = torch.from_numpy(streams(seed, n, steps)).float().to(device)
        looks = self._looks(by_layer)
        signals = self._room((n, steps), device, by_layer)
        drawn = Drawn(n, end_tokens, stopped)
        every = self.look_every or (1 if cheap_to_read(signals) or self.switches else LOOK_EVERY)

        alive: slice | Tensor = slice(None)  # the rows that are still in the batch
        recent: list[Tensor] = []  # tokens that nobody has looked at
        logits, lookback = prefix.logits.expand(n, -1), prefix.lookback[:looks].expand(-1, n, 1)
        cache = SharedCache(prefix, n)
        reader = SharedPrefix(prefix, tap=self.tap, by_layer=by_layer)
        with self._running(prefix), reading(reader):
            for t in range(steps):
                probs = next_token_probs(logits, temperature, top_p, top_k)
                token = draw(probs, uniform[alive, t])
                recent.append(token)
                signals[:, alive, t] = stack_signals(token_stats(logits, token), lookback[..., 0])
                if len(recent) == every or t == steps - 1:
                    check_signals(signals[:, alive, t + 1 - len(recent) : t + 1])
                    keep = drawn.take(torch.stack(recent, 1).tolist())
                    recent = []
                    if not keep:
                        break
                    if len(keep) < len(token):  # what has ended leaves the batch
                        kept = torch.tensor(keep, device=device)
                        cache.reorder_cache(kept)
                        alive = torch.tensor(drawn.alive, device=device)
                        token = token[kept]
                if progress is not None:
                    progress(t + 1, steps)
                if t < steps - 1:
                    rows, lookback = self._forward(token[:, None], cache, reader)
                    logits = rows[:, -1]
        host = signals.cpu().numpy()
        return [
            Continuation.of(ids, host[:, i], drawn.finish[i]) for i, ids in enumerate(drawn.ids)
        ]

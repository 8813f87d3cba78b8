"""Token ids in, signals out: the passes of an LVLM over a prompt and N continuations of it.

Knows nothing of text. A prompt goes through the model once (`prefill`); given continuations are
scored against it in batches (`score`), new ones are drawn from it (`sample`). The row that matters
for token y_t is the one that predicts it: the prompt's last row for y_1, the row of y_{t-1} after.
All passes run under the tap; between them the model is as it was given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lookback.engines import UnsupportedModelError
from lookback.engines.common.compat import uncompiled
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
from lookback.engines.transformers.attention.source_weights import HiddenKeys, LastRowWeights
from lookback.engines.transformers.attention.tap import LastRow, reading, tapped
from lookback.engines.transformers.decoding.batch import Rows
from lookback.engines.transformers.decoding.decode_mode import DecodeMode, detect_decode_mode
from lookback.engines.transformers.decoding.prefix import (
    Prefix,
    SharedCache,
    SharedPrefix,
    has_state,
    prompt_cache,
    without_padding,
)
from lookback.engines.transformers.decoding.session import ModelSession, share, snapshot
from lookback.engines.transformers.support import (
    attention_layers,
    check_evaluating,
    check_supported,
    decoder_configs,
    text_config,
)
from lookback.signals import SIGNALS
from lookback.steering import Steering

if TYPE_CHECKING:
    from lookback.engines.common.stream import StreamNotifier

T = TypeVar("T")
LOGIT_BYTES = 2**28
"""Memory for one batch's logits in float32: it sets how many tokens are scored at once."""
READ_EVERY = 8
"""Steps between two reads of what was drawn, where a read makes the device wait."""

_MODES: WeakKeyDictionary[PreTrainedModel, DecodeMode] = WeakKeyDictionary()


class RotationError(ValueError):
    """A pass rotated its positions in another way than the prompt's pass did."""


class Decoder:
    """The passes over one model.

    Args:
        model: a transformers image-text-to-text model.
        tap: False runs the same passes and reads no attention (A_t is 0): for benchmarks.
    """

    def __init__(self, model: PreTrainedModel, *, tap: bool = True) -> None:
        self.image_token = check_supported(model)
        share(model)
        self.model = model
        self.tap = tap
        self.read_every = 0  # steps between two reads of what was drawn; 0: by the kind of device
        self.layers = attention_layers(model)
        self.configs = decoder_configs(model)
        text = text_config(model)
        self.vocab = int(text.vocab_size)
        self.max_length = getattr(text, "max_position_embeddings", None) or 2**31
        takes = inspect.signature(model.forward).parameters
        self.last_row = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self.batch_rows = max(64, LOGIT_BYTES // (4 * self.vocab))
        if not model.training:
            _ = self.mode  # a model that cannot go on is refused here, not at its first prompt

    @property
    def mode(self) -> DecodeMode:
        """How continuations go through the model; detected once."""
        if self.model not in _MODES:
            self._check_ready()
            fallback = DecodeMode(stepwise=has_state(prompt_cache(self.model).layers))
            _MODES[self.model] = detect_decode_mode(self.model, self._attempt, fallback)
        return _MODES[self.model]

    def _attempt(self, mode: DecodeMode, prompt: list[int], response: list[int]) -> Tensor:
        """Return log-probabilities (T, V) of a response's rows after a prompt, in one mode."""
        ids = torch.tensor([[*prompt, *response[:-1]]], device=self.model.device)
        inputs = {"input_ids": ids[:, : len(prompt)]}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        prefix = self.prefill(inputs, torch.zeros(len(prompt), dtype=torch.bool))
        cache, reader = SharedCache(prefix, 1), SharedPrefix(prefix, tap=self.tap)
        logits = [prefix.logits]
        with self.session(prefix), reading(reader):
            for rows in ids[:, len(prompt) :].split(1 if mode.stepwise else len(response), 1):
                logits += self.forward(rows, cache, reader, mode)[0]
        return torch.cat([row.float() for row in logits]).log_softmax(-1)

    def session(self, prefix: Prefix | None = None) -> ModelSession:
        """Return the block in which a new prompt, or a prefix's continuations, use the model."""
        self._check_ready()
        return ModelSession(self.model, None if prefix is None else prefix.state, self._tapping)

    def _check_ready(self) -> None:
        """Check that passes compute what the model's weights say.

        Raises:
            ValueError: the model is in training mode, or torch.autocast is active.
        """
        check_evaluating(self.model)
        device = self.model.device.type
        if device != "meta" and torch.is_autocast_enabled(device):  # meta: put aside by accelerate
            dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
            raise ValueError(
                f"torch.autocast({device!r}, {dtype}) is active, under which attention gets keys "
                "and values of unlike types: leave its block, or turn it off inside with "
                f"torch.autocast({device!r}, enabled=False); for passes in {dtype} load the model "
                f"with dtype={dtype!r}"
            )

    @contextmanager
    def _tapping(self) -> Iterator[None]:
        with torch.no_grad(), tapped(self.configs), uncompiled(self.model):
            yield

    def prefill(
        self,
        inputs: Mapping[str, Any],
        source: Tensor,
        layers: tuple[int, int] | None = None,
        hidden: Tensor | None = None,
    ) -> Prefix:
        """Send a prompt, as a processor made it (batch of one), through the model.

        Args:
            inputs: what the model takes.
            source: (P,), True for the tokens whose attention A_t is.
            layers: if given, `Prefix.weights` are read in these attention layers, end exclusive.
            hidden: (source,), the source tokens, in their order, that no row may look at; not
                together with `layers`.

        Raises:
            ValueError: it is no prompt of this model.
            UnsupportedModelError: it cannot hide tokens from every row.
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
        if hidden is not None:
            reader = self._hiding(cache.layers, source, hidden)
        with self.session(), reading(reader):
            try:
                out = self.model(**inputs, past_key_values=cache, use_cache=True, **self.last_row)
            except IndexError:
                self._refuse_unknown(ids)
                raise
            logits, lookback = out.logits[:, -1], reader.lookback(self.layers).float()
            prefix = Prefix.of(cache, ids[0], source, logits, lookback)
            if isinstance(reader, LastRowWeights):
                prefix.weights = reader.rows.take()
            prefix.state = snapshot(self.model)
        if inputs.get("position_ids") is not None:
            prefix.positions = inputs["position_ids"][..., -1:] + 1
        return prefix

    def _hiding(self, layers: Sequence[Any], source: Tensor, hidden: Tensor) -> HiddenKeys:
        """Return the reader of a prompt's pass that hides some of its source tokens.

        Raises:
            UnsupportedModelError: a layer keeps a state, by which they would be seen all the same.
        """
        if has_state(list(layers)):
            raise UnsupportedModelError(
                f"{type(self.model).__name__} mixes attention with layers that keep a state: what "
                "is hidden from attention goes on in there"
            )
        places = torch.zeros_like(source)
        places[source.nonzero()[:, 0][hidden.to(source.device)]] = True
        return HiddenKeys(source[None], places)

    def _refuse_unknown(self, ids: Tensor) -> None:
        """Raise ValueError if a prompt that failed has tokens that the model does not know.

        Not before it failed: some models take placeholders that they do not know.
        """
        known, largest = self.model.get_input_embeddings().weight.shape[0], int(ids.max())
        if largest >= known:
            raise ValueError(
                f"the prompt has the token {largest}, and the model knows {known}: do its "
                "tokenizer and its weights belong together?"
            )

    def check_length(self, prefix: Prefix, longest: int) -> None:
        """Raise ValueError if a response of this length is too long after this prompt."""
        if prefix.length + longest > self.max_length:
            raise ValueError(
                f"prompt and response together have {prefix.length + longest} tokens, "
                f"the model takes {self.max_length}"
            )

    def pieces(self, n: int, length: int) -> Iterator[slice]:
        """Yield the rows of n continuations in pieces as large as memory and mode allow."""
        step = 1 if self.mode.stepwise else max(1, self.batch_rows // n)
        return (slice(start, start + step) for start in range(0, length, step))

    def shares(self, by_layer: bool) -> int:
        """Return how many shares of attention a token has: A_t, and that of each layer."""
        return 1 + self.layers * by_layer

    def empty_signals(
        self, shape: Sequence[int], device: torch.device, by_layer: bool = False
    ) -> Tensor:
        """Return room for the signals of continuations, (n, T), as `stack_signals` orders them."""
        numbers = len(SIGNALS) - 1 + self.shares(by_layer)
        return torch.empty(numbers, *shape, dtype=torch.float32, device=device)

    def forward(
        self,
        ids: Tensor,
        cache: SharedCache,
        reader: SharedPrefix,
        mode: DecodeMode | None = None,
        keep: Mapping[str, int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return logits (n, R, V) and A_t (1 or 1 + L, n, R) of each continuation's next R tokens.

        `keep`: `last_row` for one row of logits alone, where nobody reads the others.

        Raises:
            RotationError: the prompt's keys do not fit to these tokens.
        """
        more: dict[str, Any] = {}
        if cache.prefix.positions is not None or (mode or self.mode).positions:
            more["position_ids"] = cache.next_positions(ids)
        more |= keep or {}
        out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, **more)
        self._check_rotation(cache.prefix, cache.fed, ids.shape[1])
        cache.fed += ids.shape[1]
        if not self.tap:
            shares = self.shares(reader.by_layer)
            return out.logits, ids.new_zeros(shares, *ids.shape, dtype=torch.float32)
        return out.logits, reader.lookback(self.layers).to(ids.device, torch.float32)

    def _check_rotation(self, prefix: Prefix, fed: int, rows: int) -> None:
        """Check that the pass that just ended rotated its positions as the prompt's pass did.

        Some kinds of rotary positions (longrope, dynamic) choose the frequencies of a whole pass by
        its largest position, which need not be the number of tokens: the frequencies alone tell.
        Rotary modules hold them as buffers. Most never replace these, and then nothing is compared.

        Raises:
            RotationError: it did not.
        """
        for module, held in prefix.state.items():
            for name, before in held["_buffers"].items():
                now = module._buffers.get(name)
                if now is before or (now is not None and now.is_meta):  # on meta: offloaded
                    continue
                if now is None or before is None or not _equal(now, before):
                    raise RotationError(
                        f"{type(module).__name__}.{name} changes within tokens {fed + 1} to "
                        f"{fed + rows} after a prompt of {prefix.length} tokens: from there on "
                        "this model rotates all positions in another way, and the prompt's keys no "
                        "longer fit; make the response (max_new_tokens) shorter"
                    )

    def score(
        self,
        prefix: Prefix,
        responses: Sequence[Sequence[int]],
        progress: Progress | None = None,
        *,
        by_layer: bool = False,
    ) -> list[Continuation]:
        """Return the signals of given continuations, each at least one token long."""
        work = partial(self.score_batch, prefix, by_layer=by_layer)
        return self.batched(prefix, responses, work, progress)

    def batched(
        self,
        prefix: Prefix,
        responses: Sequence[Sequence[int]],
        work: Callable[[list[Sequence[int]], ModelSession], list[T]],
        progress: Progress | None,
    ) -> list[T]:
        """Work on responses of like length together; return results in the responses' order."""
        self.check_length(prefix, max(len(ids) for ids in responses))
        found: dict[int, T] = {}
        with self.session(prefix) as session:
            for batch in batches([len(ids) for ids in responses], self.batch_rows):
                found |= zip(batch, work([responses[i] for i in batch], session), strict=True)
                if progress is not None:
                    progress(len(found), len(responses))
        return [found[i] for i in range(len(responses))]

    def score_batch(
        self,
        prefix: Prefix,
        responses: list[Sequence[int]],
        session: ModelSession,
        by_layer: bool,
        hidden: Tensor | None = None,
    ) -> list[Continuation]:
        ids = padded(responses).to(prefix.logits.device)
        n, shares = len(responses), self.shares(by_layer)
        signals = self.empty_signals(ids.shape, ids.device, by_layer)
        stats = token_stats(prefix.logits.expand(n, -1), ids[:, 0])
        signals[..., 0] = stack_signals(stats, prefix.lookback[:shares, 0].expand(-1, n))
        reader = SharedPrefix(prefix, tap=self.tap, by_layer=by_layer, hidden=hidden)
        self.read_rows(prefix, reader, ids[:, :-1], ids[:, 1:], signals[..., 1:], session)
        return unpadded(responses, signals)

    def read_rows(
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
            for part in self.pieces(n, length):
                session.yield_turn()
                logits, lookback = self.forward(rows[:, part], cache, reader)
                stats = token_stats(logits.flatten(0, 1), next_ids[:, part].flatten())
                found = stack_signals(stats, lookback.flatten(1))
                signals[..., part] = found.unflatten(1, (n, -1))

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

        Continuation i draws from the stream (seed, i).

        Args:
            stopped: says of the tokens so far whether to end there.
            steering: decides at its checkpoints which go on, and which are forked.
            complete: what is kept of a continuation that has ended, for `steering` to judge.
            top: keep so many of the likeliest tokens of each step; not with forks.
            notifier: is called with them while they are drawn, when it is due.
        """
        steps = min(max_new_tokens, self.max_length - prefix.length)
        signals = self.empty_signals((1 + n, steps), prefix.logits.device, by_layer)
        drawn = Drawn(n, end_tokens, stopped)
        often = cheap_to_read(signals) or notifier is not None
        every = self.read_every or (1 if often else READ_EVERY)
        reader = SharedPrefix(prefix, tap=self.tap, by_layer=by_layer)

        def forward(ids: Tensor, cache: SharedCache) -> tuple[Tensor, Tensor]:
            return self.forward(ids, cache, reader)

        rows = Rows(prefix, signals, self.shares(by_layer), seed, forward, top)
        with self.session(prefix) as session, reading(reader):
            for t in range(1, steps + 1):
                rows.draw(temperature, top_p, top_k)
                due = steering is not None and t < steps and steering.due(t)
                if due or rows.fresh == every or t == steps:
                    drawn.take(rows.read())
                    forks = None
                    if steering is not None and due and drawn.alive:
                        so_far = [complete(one) for one in drawn.continuations(rows.signals())]
                        decision = steering.decide(t, drawn.drafts(so_far))
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
                            drawn.take(rows.read())
                        if drawn.alive:
                            raise
                        break
        return drawn.continuations(rows.signals(), rows.top())


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other.to(one.device))

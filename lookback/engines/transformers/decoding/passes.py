"""The passes of an LVLM over one prompt and what follows it: the model as the decoder sends it on.

A prompt goes through the model once (`prefill`), its continuations after it in pieces (`_forward`),
under the tap; between passes the model is as it was given.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lookback.engines import UnsupportedModelError
from lookback.engines.common.compat import uncompiled
from lookback.engines.transformers.attention.source_weights import (
    HiddenKeys,
    LastRowWeights,
)
from lookback.engines.transformers.attention.tap import LastRow, reading, tapped
from lookback.engines.transformers.decoding.decode_mode import DecodeMode, detect_decode_mode
from lookback.engines.transformers.decoding.kv_cache import has_state, prompt_cache, without_padding
from lookback.engines.transformers.decoding.prefix import Prefix, SharedCache, SharedPrefix
from lookback.engines.transformers.decoding.session import ModelSession, share, snapshot
from lookback.engines.transformers.support import (
    attention_layers,
    check_evaluating,
    check_supported,
    decoder_configs,
    text_config,
)
from lookback.signals import SIGNALS

LOGIT_BYTES = 2**28
"""Memory for one batch's logits in float32: it sets how many tokens are scored at once."""

_MODES: WeakKeyDictionary[PreTrainedModel, DecodeMode] = WeakKeyDictionary()


class RotationError(ValueError):
    """A pass rotated its positions in another way than the prompt's pass did."""


class Passes:
    """The passes over one model, which stays as it was between them.

    Args:
        model: a transformers image-text-to-text model.
        tap: False runs the same passes and reads no attention (A_t is 0): for benchmarks.
    """

    def __init__(self, model: PreTrainedModel, *, tap: bool = True) -> None:
        self.image_token = check_supported(model)
        share(model)
        self.model = model
        self.tap = tap
        self.look_every = 0  # steps between two looks at what was drawn; 0: as the device likes it
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
        """How continuations go through the model; found out once."""
        if self.model not in _MODES:
            self._check_ready()
            fallback = DecodeMode(stepwise=has_state(prompt_cache(self.model).layers))
            _MODES[self.model] = detect_decode_mode(self.model, self._attempt, fallback)
        return _MODES[self.model]

    def _attempt(self, mode: DecodeMode, prompt: list[int], response: list[int]) -> Tensor:
        """Log-probabilities (T, V) of a response's rows after a prompt, sent through in one way."""
        ids = torch.tensor([[*prompt, *response[:-1]]], device=self.model.device)
        inputs = {"input_ids": ids[:, : len(prompt)]}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        prefix = self.prefill(inputs, torch.zeros(len(prompt), dtype=torch.bool))
        cache, reader = SharedCache(prefix, 1), SharedPrefix(prefix, tap=self.tap)
        found = [prefix.logits]
        with self._running(prefix), reading(reader):
            for rows in ids[:, len(prompt) :].split(1 if mode.stepwise else len(response), 1):
                found += self._forward(rows, cache, reader, mode)[0]
        return torch.cat([one.float() for one in found]).log_softmax(-1)

    def _running(self, prefix: Prefix | None = None) -> ModelSession:
        """Passes of a new prompt, or of a prefix's continuations; then the model is as before."""
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
        with self._running(), reading(reader):
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
        """The reader of a prompt's pass that hides some of its source tokens.

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

    def _pieces(self, n: int, length: int) -> Iterator[slice]:
        """The rows of n continuations in pieces: as many at a time as memory and mode allow."""
        step = 1 if self.mode.stepwise else max(1, self.batch_rows // n)
        return (slice(start, start + step) for start in range(0, length, step))

    def _looks(self, by_layer: bool) -> int:
        """How many numbers a token's attention leaves: A_t, and that of each layer."""
        return 1 + self.layers * by_layer

    def _room(self, shape: Sequence[int], device: torch.device, by_layer: bool = False) -> Tensor:
        """Room for the signals of continuations, (n, T), as `stack_signals` orders them."""
        numbers = len(SIGNALS) - 1 + self._looks(by_layer)
        return torch.empty(numbers, *shape, dtype=torch.float32, device=device)

    def _forward(
        self,
        ids: Tensor,
        cache: SharedCache,
        reader: SharedPrefix,
        mode: DecodeMode | None = None,
        keep: Mapping[str, int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logits (n, R, V) and A_t (1 or 1 + L, n, R) of the next R tokens of each continuation.

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
            looks = self._looks(reader.by_layer)
            return out.logits, ids.new_zeros(looks, *ids.shape, dtype=torch.float32)
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


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other.to(one.device))

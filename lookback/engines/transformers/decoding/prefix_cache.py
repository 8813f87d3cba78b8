"""The prefix cache: prompts that were asked last, kept for those that ask the same or begin alike.

A prompt that begins as a kept one takes over the keys of the common part (`extend_prefix`). That is
sound only for a decoder whose tokens look back alone and leave keys, and nothing else, behind.
Models known to be otherwise are refused by their kind; and for each model the first result is
compared with that of the plain way (`agree`).
"""

from __future__ import annotations

import copy
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lookback.engines.base import PREFIX_BYTES
from lookback.engines.common.compat import DynamicLayer
from lookback.engines.transformers.attention.tap import reading
from lookback.engines.transformers.decoding.decoder import Decoder, RotationError
from lookback.engines.transformers.decoding.model_changes import ChangeDetector
from lookback.engines.transformers.decoding.prefix import (
    KEYED,
    Prefix,
    SharedCache,
    SharedPrefix,
    without_padding,
)
from lookback.engines.transformers.decoding.session import State, snapshot
from lookback.engines.transformers.support import text_config

BOTH_WAYS = ("paligemma",)
"""Models whose prompt looks both ways: what an image's keys are depends on the question."""
BY_LENGTH = ("dynamic", "longrope")
"""Kinds of rotary positions that turn all keys by the length of the whole prompt."""
_SOUND: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()
"""Of each model, whether continuing a common part was found to agree with the plain way."""


@dataclass(frozen=True)
class Prompt:
    """What a model is given, in a form that can be compared.

    Attributes:
        ids: its tokens.
        source: which of them are the source.
        rows: what it says of its tokens one by one, by name: (..., P).
        others: everything else, pixels above all, by name: its mark.
    """

    ids: list[int]
    source: list[bool]
    rows: dict[str, Tensor]
    others: dict[str, Any]

    @classmethod
    def of(cls, inputs: Mapping[str, Any], source: Tensor) -> Prompt:
        shape = inputs["input_ids"].shape
        rows, others = {}, {}
        for name, value in inputs.items():
            if isinstance(value, Tensor) and (
                value.shape == shape or (name == "position_ids" and value.shape[-1] == shape[1])
            ):
                rows[name] = value.cpu()
            else:
                others[name] = _mark(value)
        return cls(inputs["input_ids"][0].tolist(), source.tolist(), rows, others)

    def equals(self, other: Prompt) -> bool:
        lengths = {len(self.ids), len(other.ids), self._common(other)}
        return self.source == other.source and len(lengths) == 1

    def shared_with(self, kept: Prompt, media: Sequence[int]) -> int:
        """Return how many of its first tokens can be taken over from a prompt that is kept.

        All that the vision inputs stand for must be among them, and what follows must be text that
        continues as responses do.
        """
        length = min(self._common(kept), len(self.ids) - 1)
        vision = [i for ids in (self.ids, kept.ids) for i, x in enumerate(ids) if x in media]
        if not vision or max(vision) >= length or any(self.source[length:]):
            return 0
        return length if all(_plain(name, row, length) for name, row in self.rows.items()) else 0

    def _common(self, other: Prompt) -> int:
        """Return how many first tokens are the same in all rows; 0 if images or others differ."""
        if self.others != other.others or self.rows.keys() != other.rows.keys():
            return 0
        shorter = min(len(self.ids), len(other.ids))
        same = torch.ones(shorter, dtype=torch.bool)
        for name, row in self.rows.items():
            theirs = other.rows[name]
            if row.dtype != theirs.dtype or row.shape[:-1] != theirs.shape[:-1]:
                return 0
            equal = row[..., :shorter] == theirs[..., :shorter]
            same &= equal.flatten(0, -2).all(0)
        return int(same.int().cumprod(0).sum())


def _plain(name: str, row: Tensor, length: int) -> bool:
    """Whether a row from `length` on is as a response's: all the same, or positions in a row."""
    rest = row[..., length:]
    if name == "input_ids":
        return True
    if name == "position_ids":
        return bool((rest == rest[..., :1] + torch.arange(rest.shape[-1])).all())
    return bool((rest == rest[..., -1:]).all())


def _mark(value: Any) -> Any:
    """Return what is equal for equal values only; for values of unknown kinds, never."""
    if isinstance(value, Tensor):
        raw = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest = hashlib.blake2b(raw.numpy().data).digest()
        return str(value.dtype), tuple(value.shape), digest
    if isinstance(value, (list, tuple)):
        return [_mark(item) for item in value]
    return value if value is None or type(value) in (bool, int, float, str) else object()


@dataclass
class PrefixCache:
    """The prefixes of the last prompts; none once the model was changed.

    Attributes:
        decoder: the passes over the model.
        media: the ids of image and video placeholders.
        most: how many are kept.
        limit: how many bytes their keys may have together.
        same: how many prompts were there already.
        continued: how many went on from a common part.
        new: how many went through the model whole.
        saved: how many tokens did not go through the model.
    """

    decoder: Decoder
    media: Sequence[int]
    most: int
    limit: int = PREFIX_BYTES
    same: int = 0
    continued: int = 0
    new: int = 0
    saved: int = 0
    _kept: OrderedDict[int, tuple[Prompt, Prefix]] = field(default_factory=OrderedDict)
    _count: int = 0
    _changes: ChangeDetector | None = None

    def prefill(self, inputs: Mapping[str, Any], source: Tensor) -> Prefix:
        if self._changes is not None and self._changes.changed():
            self._kept.clear()
            _SOUND.pop(self.decoder.model, None)
        inputs, source = without_padding(inputs, source)
        prompt = Prompt.of(inputs, source)
        for number, (kept, prefix) in self._kept.items():
            if prompt.equals(kept):
                self._kept.move_to_end(number)
                self.same += 1
                self.saved += len(prompt.ids)
                return prefix
        prefix = self._extended(prompt, inputs, source) or self._whole(inputs, source)
        if self._changes is None:  # not earlier: a model's first pass may set things up
            self._changes = ChangeDetector(self.decoder.model)
        self._keep(prompt, prefix)
        return prefix

    @property
    def bytes(self) -> int:
        return sum(size_of(prefix) for _, prefix in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def _whole(self, inputs: Mapping[str, Any], source: Tensor) -> Prefix:
        self.new += 1
        return self.decoder.prefill(inputs, source)

    def _extended(self, prompt: Prompt, inputs: Mapping[str, Any], source: Tensor) -> Prefix | None:
        """Return the prefix of a prompt that begins as a kept one, if the model allows it."""
        shared = {i: prompt.shared_with(kept, self.media) for i, (kept, _) in self._kept.items()}
        number = max(shared, key=lambda i: shared[i], default=None)
        if number is None or not shared[number] or len(prompt.ids) >= self.decoder.max_length:
            return None
        length, kept = shared[number], self._kept[number][1]
        model = self.decoder.model
        if not _SOUND.get(model, True) or not can_reuse_prefix(self.decoder, kept):
            return None
        self._kept.move_to_end(number)
        ids = inputs["input_ids"][0]
        positions = inputs.get("position_ids")

        def extend() -> Prefix:
            return extend_prefix(self.decoder, kept, length, ids, source.to(ids.device), positions)

        if model not in _SOUND:
            if prompt.ids == self._kept[number][0].ids:
                return None  # another source of the same prompt: whatever looks ahead looks alike
            plain = self._whole(inputs, source)
            _SOUND[model] = _agrees(extend, plain)
            return plain
        try:
            prefix = extend()
        except RotationError:  # the kept keys are of another length than the whole prompt's
            return None
        self.continued += 1
        self.saved += length
        return prefix

    def _keep(self, prompt: Prompt, prefix: Prefix) -> None:
        self._kept[self._count] = prompt, prefix
        self._count += 1
        while self._kept and (len(self._kept) > self.most or self.bytes > self.limit):
            self._kept.popitem(last=False)


Prefixes = PrefixCache
"""Its former name."""


def _agrees(extend: Callable[[], Prefix], plain: Prefix) -> bool:
    try:
        return agree(extend(), plain)
    except Exception:  # whatever a model raises says that it cannot be extended
        return False


def size_of(prefix: Prefix) -> int:
    tensors = (getattr(layer, name, None) for layer in prefix.layers for name in ("keys", "values"))
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))


def can_reuse_prefix(decoder: Decoder, prefix: Prefix) -> bool:
    """Whether the model and its cache are of kinds whose keys can be taken over."""
    if decoder.model.config.model_type in BOTH_WAYS:
        return False
    if any(word in kind for kind in _rope_kinds(decoder) for word in BY_LENGTH):
        return False
    return all(type(layer) is DynamicLayer for layer in prefix.layers)


def _rope_kinds(decoder: Decoder) -> set[str]:
    parameters = getattr(text_config(decoder.model), "rope_parameters", None) or {}
    sets = [parameters, *parameters.values()]  # one for all layers, or one for each kind
    return {str(one.get("rope_type")) for one in sets if isinstance(one, dict)}


def extend_prefix(
    decoder: Decoder,
    kept: Prefix,
    length: int,
    ids: Tensor,
    source: Tensor,
    positions: Tensor | None = None,
) -> Prefix:
    """Return the prefix of a prompt of which the first `length` tokens are those of another one.

    Args:
        decoder: the passes over the model.
        kept: the other prompt.
        length: how many tokens are common, all vision tokens of both among them.
        ids: (P,), the prompt.
        source: (P,), its source, all of which is in the common part.
        positions: (..., 1, P), its `position_ids`, if it has any.
    """
    stem = _stem(kept, length, source[:length])
    if positions is not None:
        stem.positions = positions[..., length : length + 1]
    cache, reader = SharedCache(stem, 1), SharedPrefix(stem, tap=decoder.tap, by_layer=True)
    rest = ids[None, length:]
    with decoder.session(stem), reading(reader):
        for part in decoder.pieces(1, rest.shape[1]):
            logits, lookback = decoder.forward(rest[:, part], cache, reader, keep=decoder.last_row)
        state = snapshot(decoder.model)
    return Prefix(
        [_joined(layer, own) for layer, own in zip(stem.layers, cache.layers, strict=True)],
        torch.cat([stem.order, torch.arange(length, len(ids), device=stem.order.device)]),
        stem.source,
        int(ids[-1]),
        logits[:, -1],
        lookback[..., -1:],
        state=state,
        positions=None if positions is None else positions[..., -1:] + 1,
    )


def _stem(prefix: Prefix, length: int, source: Tensor) -> Prefix:
    """Return the first tokens of a prompt, perhaps with another source: its keys come first."""
    order = torch.cat([source.nonzero()[:, 0], (~source).nonzero()[:, 0]]).to(prefix.order.device)
    places = prefix.order.argsort()[order]  # where the prefix holds each of them
    layers = []
    for layer in prefix.layers:
        shorter = copy.copy(layer)
        if layer.is_initialized:
            at = places.to(layer.keys.device)
            shorter.keys = layer.keys.index_select(2, at)
            shorter.values = layer.values.index_select(2, at)
        layers.append(shorter)
    return Prefix(
        layers,
        order,
        int(source.sum()),
        prefix.last,
        prefix.logits,
        prefix.lookback,
        state=prefix.state,
    )


def _joined(layer: Any, own: Any) -> Any:
    """Return a layer of the stem with the keys of the rest behind its own."""
    whole = copy.copy(layer)
    if own.length:
        whole.keys = torch.cat([layer.keys, own.keys[:, :, : own.length]], 2)
        whole.values = torch.cat([layer.values, own.values[:, :, : own.length]], 2)
    return whole


def agree(ours: Prefix, plain: Prefix) -> bool:
    """Whether two prefixes have the same keys, prediction, A_t and state."""
    allowed = max(1e-4, 8 * torch.finfo(plain.logits.dtype).eps)
    pairs = [(ours.logits, plain.logits), (ours.lookback, plain.lookback)]
    for mine, other in zip(ours.layers, plain.layers, strict=True):
        if type(other) in KEYED and other.is_initialized:
            pairs += [(mine.keys, other.keys), (mine.values, other.values)]
    return (
        torch.equal(ours.order, plain.order)
        and all(_distance(*pair) <= allowed for pair in pairs)
        and _same_state(ours.state, plain.state)
    )


def _distance(ours: Tensor, plain: Tensor) -> float:
    """Return the largest difference relative to the largest number; equal infinities agree."""
    if ours.shape != plain.shape:
        return torch.inf
    ours, plain = ours.float(), plain.float().to(ours.device)
    apart = (ours - plain).abs().masked_fill(ours == plain, 0.0)
    largest = plain.abs().masked_fill(~plain.isfinite(), 0.0).amax().clamp(min=1e-6)
    return float((apart.amax() / largest).nan_to_num(torch.inf))


def _same_state(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(_same(one[m], other[m]) for m in one)


def _same(one: Any, other: Any) -> bool:
    """Whether data is equal; other attributes (flags, functions) are not compared."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        both = isinstance(one, Tensor) and isinstance(other, Tensor)
        return both and one.shape == other.shape and torch.equal(one, other.to(one.device))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    number = (int, float)
    return one == other if isinstance(one, number) and isinstance(other, number) else True

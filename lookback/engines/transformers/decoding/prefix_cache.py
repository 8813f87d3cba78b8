"""The prompts that were asked last, kept for those that ask the same or begin as they do."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lookback.engines.transformers.decoding.kv_cache import without_padding
from lookback.engines.transformers.decoding.model_changes import ChangeDetector
from lookback.engines.transformers.decoding.passes import Passes, RotationError
from lookback.engines.transformers.decoding.prefix import Prefix
from lookback.engines.transformers.decoding.prefix_reuse import (
    agree,
    can_reuse_prefix,
    extend_prefix,
)

BYTES = 2**30
"""Memory for the keys that are kept, unless another limit is given."""

_SOUND: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()
"""Of each model, whether going on from a common part was found to agree with the plain way."""


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
        """Of what a processor made, without padding."""
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
        """Whether it is the same in everything."""
        lengths = {len(self.ids), len(other.ids), self._common(other)}
        return self.source == other.source and len(lengths) == 1

    def shared_with(self, kept: Prompt, media: Sequence[int]) -> int:
        """How many of its first tokens can be taken over from a prompt that is kept; 0 if none.

        All that the vision inputs stand for must be among them, and what follows must be text that
        goes on as responses do.
        """
        length = min(self._common(kept), len(self.ids) - 1)
        vision = [i for ids in (self.ids, kept.ids) for i, x in enumerate(ids) if x in media]
        if not vision or max(vision) >= length or any(self.source[length:]):
            return 0
        return length if all(_plain(name, row, length) for name, row in self.rows.items()) else 0

    def _common(self, other: Prompt) -> int:
        """How many of the first tokens are the same in all that is said of them; 0 if the images,
        or anything else, are not."""
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
    """Whether what is said of the tokens from `length` on is what a response's tokens would have:
    the same of all, or positions one after another."""
    rest = row[..., length:]
    if name == "input_ids":
        return True
    if name == "position_ids":
        return bool((rest == rest[..., :1] + torch.arange(rest.shape[-1])).all())
    return bool((rest == rest[..., -1:]).all())


def _mark(value: Any) -> Any:
    """What is equal for equal values only; of what is not understood, for none."""
    if isinstance(value, Tensor):
        raw = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest = hashlib.blake2b(raw.numpy().data).digest()
        return str(value.dtype), tuple(value.shape), digest
    if isinstance(value, (list, tuple)):
        return [_mark(one) for one in value]
    return value if value is None or type(value) in (bool, int, float, str) else object()


@dataclass
class PrefixCache:
    """The prefixes of the prompts that were asked last; none once the model was changed.

    Attributes:
        passes: over the model.
        media: the ids of image and video placeholders.
        most: how many are kept.
        limit: how many bytes their keys may have together.
        same: how many prompts were there already.
        continued: how many went on from a common part.
        new: how many went through the model whole.
        saved: how many tokens did not go through the model.
    """

    passes: Passes
    media: Sequence[int]
    most: int
    limit: int = BYTES
    same: int = 0
    continued: int = 0
    new: int = 0
    saved: int = 0
    _kept: OrderedDict[int, tuple[Prompt, Prefix]] = field(default_factory=OrderedDict)
    _count: int = 0
    _changes: ChangeDetector | None = None

    def prefill(self, inputs: Mapping[str, Any], source: Tensor) -> Prefix:
        """As `Passes.prefill`, where not all may have to go through the model."""
        if self._changes is not None and self._changes.changed():
            self._kept.clear()
            _SOUND.pop(self.passes.model, None)
        inputs, source = without_padding(inputs, source)
        prompt = Prompt.of(inputs, source)
        for number, (kept, prefix) in self._kept.items():
            if prompt.equals(kept):
                self._kept.move_to_end(number)
                self.same += 1
                self.saved += len(prompt.ids)
                return prefix
        prefix = self._begun(prompt, inputs, source) or self._whole(inputs, source)
        if self._changes is None:  # not earlier: a model's first pass may set things up
            self._changes = ChangeDetector(self.passes.model)
        self._keep(prompt, prefix)
        return prefix

    @property
    def bytes(self) -> int:
        """How many the kept keys have."""
        return sum(size_of(prefix) for _, prefix in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def _whole(self, inputs: Mapping[str, Any], source: Tensor) -> Prefix:
        self.new += 1
        return self.passes.prefill(inputs, source)

    def _begun(self, prompt: Prompt, inputs: Mapping[str, Any], source: Tensor) -> Prefix | None:
        """The prefix of a prompt that begins as a kept one, if this model lets it be found so."""
        shared = {i: prompt.shared_with(kept, self.media) for i, (kept, _) in self._kept.items()}
        number = max(shared, key=lambda i: shared[i], default=None)
        if number is None or not shared[number] or len(prompt.ids) >= self.passes.max_length:
            return None
        length, kept = shared[number], self._kept[number][1]
        model = self.passes.model
        if not _SOUND.get(model, True) or not can_reuse_prefix(self.passes, kept):
            return None
        self._kept.move_to_end(number)
        ids = inputs["input_ids"][0]
        positions = inputs.get("position_ids")

        def begun() -> Prefix:
            return extend_prefix(self.passes, kept, length, ids, source.to(ids.device), positions)

        if model not in _SOUND:
            if prompt.ids == self._kept[number][0].ids:
                return None  # another source of the same prompt: whatever looks ahead looks alike
            plain = self._whole(inputs, source)
            _SOUND[model] = _agrees(begun, plain)
            return plain
        try:
            found = begun()
        except RotationError:  # the kept keys are of another length than the whole prompt's
            return None
        self.continued += 1
        self.saved += length
        return found

    def _keep(self, prompt: Prompt, prefix: Prefix) -> None:
        self._kept[self._count] = prompt, prefix
        self._count += 1
        while self._kept and (len(self._kept) > self.most or self.bytes > self.limit):
            self._kept.popitem(last=False)


def _agrees(begun: Any, plain: Prefix) -> bool:
    try:
        return agree(begun(), plain)
    except Exception:  # whatever a model raises says that it cannot go this way
        return False


def size_of(prefix: Prefix) -> int:
    """The bytes of a prefix's keys and values."""
    tensors = (getattr(layer, name, None) for layer in prefix.layers for name in ("keys", "values"))
    return sum(one.nbytes for one in tensors if isinstance(one, Tensor))

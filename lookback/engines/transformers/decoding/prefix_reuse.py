"""A prompt that begins as another one did: the keys of the common part are taken over.

Sound only for a decoder whose tokens look back alone and leave keys, and nothing else, behind. What
is known to be otherwise is refused by its kind; and whatever model it is, the first time both ways
are gone and compared (`agree`).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lookback.engines.common.compat import DynamicLayer
from lookback.engines.transformers.attention.tap import reading
from lookback.engines.transformers.decoding.kv_cache import KEYED
from lookback.engines.transformers.decoding.prefix import Prefix, SharedCache, SharedPrefix
from lookback.engines.transformers.decoding.session import State, snapshot
from lookback.engines.transformers.support import text_config

if TYPE_CHECKING:
    from lookback.engines.transformers.decoding.passes import Passes

BOTH_WAYS = ("paligemma",)
"""Models whose prompt looks both ways: what an image's keys are depends on the question."""
BY_LENGTH = ("dynamic", "longrope")
"""Kinds of rotary positions that turn all keys by the length of the whole prompt."""


def can_reuse_prefix(passes: Passes, prefix: Prefix) -> bool:
    """Whether nothing is known that speaks against taking keys of a prefix over."""
    if passes.model.config.model_type in BOTH_WAYS:
        return False
    if any(word in kind for kind in _rope_kinds(passes) for word in BY_LENGTH):
        return False
    return all(type(layer) is DynamicLayer for layer in prefix.layers)


def _rope_kinds(passes: Passes) -> set[str]:
    parameters = getattr(text_config(passes.model), "rope_parameters", None) or {}
    sets = [parameters, *parameters.values()]  # one for all layers, or one for each kind
    return {str(one.get("rope_type")) for one in sets if isinstance(one, dict)}


def extend_prefix(
    passes: Passes,
    kept: Prefix,
    length: int,
    ids: Tensor,
    source: Tensor,
    positions: Tensor | None = None,
) -> Prefix:
    """The prefix of a prompt of which the first `length` tokens are those of another one.

    Args:
        passes: over the model.
        kept: the other prompt.
        length: how many tokens are common, all vision tokens of both among them.
        ids: (P,), the prompt.
        source: (P,), its source, all of which is in the common part.
        positions: (..., 1, P), where its tokens stand, if that is not for the model to say.
    """
    stem = _stem(kept, length, source[:length])
    if positions is not None:
        stem.positions = positions[..., length : length + 1]
    cache, reader = SharedCache(stem, 1), SharedPrefix(stem, tap=passes.tap, by_layer=True)
    rest = ids[None, length:]
    with passes._running(stem), reading(reader):
        for part in passes._pieces(1, rest.shape[1]):
            logits, lookback = passes._forward(rest[:, part], cache, reader, keep=passes.last_row)
        state = snapshot(passes.model)
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
    """The first tokens of a prompt, with another source perhaps: its keys in that order."""
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
    """A layer of the stem, with the keys of the rest behind its own."""
    whole = copy.copy(layer)
    if own.length:
        whole.keys = torch.cat([layer.keys, own.keys[:, :, : own.length]], 2)
        whole.values = torch.cat([layer.values, own.values[:, :, : own.length]], 2)
    return whole


def agree(ours: Prefix, plain: Prefix) -> bool:
    """Whether two ways lead to one prefix: its keys, its prediction and A_t, and its state."""
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
    """The largest difference, in parts of the largest number; what both rule out agrees."""
    if ours.shape != plain.shape:
        return torch.inf
    ours, plain = ours.float(), plain.float().to(ours.device)
    apart = (ours - plain).abs().masked_fill(ours == plain, 0.0)
    largest = plain.abs().masked_fill(~plain.isfinite(), 0.0).amax().clamp(min=1e-6)
    return float((apart.amax() / largest).nan_to_num(torch.inf))


def _same_state(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(_same(one[m], other[m]) for m in one)


def _same(one: Any, other: Any) -> bool:
    """Whether data is equal; what is no data (flags, functions) does not count."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        both = isinstance(one, Tensor) and isinstance(other, Tensor)
        return both and one.shape == other.shape and torch.equal(one, other.to(one.device))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    number = (int, float)
    return one == other if isinstance(one, number) and isinstance(other, number) else True

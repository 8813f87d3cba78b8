"""The KV cache of a prompt, of layers whose behaviour is known; and prompts without padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from lookback.engines import UnsupportedModelError
from lookback.engines.common.compat import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    HybridLayer,
    HybridSlidingLayer,
    StateLayer,
)
from lookback.engines.transformers.support import text_config

KEYED = (DynamicLayer, HybridLayer)
"""Layers that keep every key, alone or beside a state."""


def prompt_cache(model: PreTrainedModel) -> DynamicCache:
    """An empty cache for one prompt.

    Windows are the mask's business: layers that slide keep every key here, so that continuations
    can share them.

    Raises:
        UnsupportedModelError: the model has a cache layer of its own, or a kind without any.
    """
    try:
        cache = DynamicCache(config=text_config(model))
    except KeyError as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} has layers of the kind {error}, for which transformers has no "
            "cache: its responses cannot go on after their prompt"
        ) from None
    cache.layers = [_unwindowed(layer) for layer in cache.layers]
    check_layers(cache.layers)
    return cache


def check_layers(layers: list[Any]) -> None:
    """Check that every layer of a cache is of a class that is understood.

    Raises:
        UnsupportedModelError: it names the class that is not.
    """
    for layer in layers:
        if type(layer) not in (*KEYED, StateLayer):
            raise UnsupportedModelError(
                f"the keys of a {type(layer).__name__} cannot be shared between continuations: "
                "what such a cache layer keeps is not known to LookBack"
            )


def has_state(layers: list[Any]) -> bool:
    """Whether a layer keeps a state (convolution, linear attention), with or without keys."""
    return any(type(layer) in (StateLayer, HybridLayer) for layer in layers)


def _unwindowed(layer: Any) -> Any:
    if type(layer) is DynamicSlidingWindowLayer:
        return DynamicLayer()
    if type(layer) is HybridSlidingLayer:
        return HybridLayer(number_of_states=layer.number_of_states)
    return layer


def without_padding(inputs: Mapping[str, Any], source: Tensor) -> tuple[dict[str, Any], Tensor]:
    """One prompt's inputs, and the mask of its source (P,), less the padding at either end.

    Causal decoders see the rest as if the padding had never been there: generation counts their
    positions without it.

    Raises:
        ValueError: the attention mask does more than pad, or pads source tokens.
    """
    ids: Tensor = inputs["input_ids"]
    mask = inputs.get("attention_mask")
    if mask is None:
        return dict(inputs), source
    if mask.shape != ids.shape:
        raise ValueError(
            f"attention_mask has the shape {tuple(mask.shape)}, the prompt's tokens "
            f"{tuple(ids.shape)}: only a mask of padding is understood"
        )
    seen = mask[0].bool()
    if seen.all():
        return dict(inputs), source
    places = seen.nonzero()[:, 0]
    if not len(places):
        raise ValueError("attention_mask hides the whole prompt: nothing is asked")
    first, last = int(places[0]), int(places[-1]) + 1
    if last - first != len(places):
        raise ValueError(
            "attention_mask hides tokens inside the prompt: leave them out, only padding before "
            "and after it is understood"
        )
    if source.to(seen.device)[~seen].any():
        raise ValueError("attention_mask hides source tokens: they are padding or source, not both")
    kept = slice(first, last)
    return {name: _cut(name, value, ids, kept) for name, value in inputs.items()}, source[kept]


def _cut(name: str, value: Any, ids: Tensor, kept: slice) -> Any:
    """What belongs to the tokens one by one loses those of the padding."""
    if not isinstance(value, Tensor):
        return value
    if value.shape == ids.shape or (name == "position_ids" and value.shape[-1] == ids.shape[1]):
        return value[..., kept]
    return value

"""The cache that a prompt goes through the model with: only layers whose ways are known.

A cache layer is known by its exact class. One that a model derives for itself may drop, compress or
reorder keys in any way, and its numbers would be wrong without a word: it is refused by name.
"""

from __future__ import annotations

from typing import Any

from transformers import DynamicCache, PreTrainedModel

from lookback.engines import UnsupportedModelError
from lookback.engines.transformers.compat import (
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

"""What LookBack touches of torch and transformers beyond their public names: here and nowhere else.

A release of either library that moves one of these is mended in this file. pyproject.toml states
the releases that were tested; `make test` runs the newest of them, `make test-oldest` the oldest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig, cache_utils
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    causal_mask_function,
    sdpa_mask,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

__all__ = [
    "ALL_MASK_ATTENTION_FUNCTIONS",  # the mask function that the tap stands in front of
    "AttentionInterface",  # where the tap registers its attention function
    "AttentionMaskInterface",  # and, under the same name, its mask function
    "DynamicLayer",  # the cache layer whose keys can be shared, and that SharedLayer extends
    "DynamicSlidingWindowLayer",  # the one that forgets keys: a DynamicLayer takes its place
    "HybridLayer",  # holds a state and keys
    "HybridSlidingLayer",  # the same, and forgets keys
    "StateLayer",  # holds a state (convolution, linear attention) and no keys
    "attention_function",
    "attention_name",
    "causal_mask_function",  # tells a plain causal mask, which needs no tensor
    "flash_attention_with_lse",
    "hub_commit",
    "sdpa_attention_forward",  # tells a layer on sdpa, which drops a softcap
    "sdpa_mask",  # a boolean mask, whatever attention the model uses
    "set_attention_name",
]

StateLayer: Any = cache_utils.LinearAttentionLayer
HybridLayer: Any = cache_utils.LinearAttentionAndFullAttentionLayer
# Not in every release; no layer is of this class then.
HybridSlidingLayer: Any = getattr(
    cache_utils, "LinearAttentionAndSlidingWindowAttentionLayer", None
)


def attention_name(config: PretrainedConfig) -> str | None:
    """The name under which a config's modules look up their attention function."""
    name: str | None = config._attn_implementation
    return name


def set_attention_name(config: PretrainedConfig, name: str | None) -> None:
    """Change that name, and nothing else: the public setter checks it, and loads kernels."""
    config._attn_implementation = name


def attention_function(module: str, name: str) -> Callable[..., Any] | None:
    """The attention function that a modeling file calls by that name; None if it has none.

    Each modeling file has an eager function of its own, and may override others for itself.
    """
    namespace = vars(sys.modules[module])
    if name == "eager":
        return namespace.get("eager_attention_forward")
    function: Callable[..., Any] = namespace.get(
        "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS
    )[name]
    return function


def hub_commit(name: str, revision: str | None) -> str | None:
    """The commit of a hub id's revision in the local cache, once loaded; None for a folder.

    A config no longer says which commit it came from (transformers 5.16 still had
    `config._commit_hash`), but the cache keeps each commit in a folder of its name.
    """
    if Path(name).exists():
        return None
    path = try_to_load_from_cache(name, "config.json", revision=revision)
    return Path(path).parent.name if isinstance(path, str) else None


def flash_attention_with_lse(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """The kernel behind scaled_dot_product_attention on CPU, with the rows' log-sum-exp.

    That function does not return it. The kernel takes grouped heads and strided keys as they are.
    """
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=bias, scale=scale
    )
    return out, lse

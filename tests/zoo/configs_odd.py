"""LLaVA over decoders that do something of their own: states, caches, masks, positions."""

from __future__ import annotations

import copy
import functools
import zlib
from typing import Any

import torch
from transformers import AutoConfig, LlavaForConditionalGeneration, PreTrainedModel

from . import Zoo, build
from .configs import HIDDEN, text
from .models import _randomise

_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 8}
_HYBRID = ["linear_attention", "hybrid", "linear_attention", "hybrid"]

DECODERS: dict[str, dict[str, Any]] = {
    "jamba": text(
        "jamba",
        num_hidden_layers=4,
        attn_layer_period=2,
        attn_layer_offset=1,
        num_experts=2,
        mamba_d_state=8,
        mamba_dt_rank=8,
        use_mamba_kernels=False,
    ),
    "bamba": text("bamba", num_hidden_layers=4, attn_layer_indices=[1, 3], **_MAMBA2),
    "granitemoehybrid": text(
        "granitemoehybrid",
        num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention"] * 2,
        num_local_experts=2,
        shared_intermediate_size=HIDDEN,
        position_embedding_type="rope",
        **_MAMBA2,
    ),
    "falcon_h1": text("falcon_h1", mamba_d_ssm=128, **_MAMBA2),
    "zamba2": text(
        "zamba2",
        num_hidden_layers=4,
        layers_block_type=_HYBRID,
        n_mamba_heads=8,
        mamba_d_state=16,
        chunk_size=8,
        use_mem_rope=True,
        use_mamba_kernels=False,
        kv_heads=4,
        attention_head_dim=32,
    ),
    "phi3": text("phi3", kv_heads=4, sliding_window=None),
    "doge": text("doge", kv_heads=2, keep_window_size=8),
    "minimax": text(
        "minimax",
        num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention"] * 2,
        block_size=8,
        num_local_experts=2,
    ),
}
"""Text decoders by name."""


def odd_model(decoder: str, **changes: Any) -> PreTrainedModel:
    """A new LLaVA over one of `DECODERS`; `changes` go into the decoder's config."""
    zoo = build("llava")
    config = copy.deepcopy(zoo.model.config)
    values = copy.deepcopy(DECODERS[decoder]) | changes
    old = config.text_config
    for name in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id"):
        values[name] = getattr(old, name)
    config.text_config = AutoConfig.for_model(values.pop("model_type"), **values)
    seed = zlib.crc32(decoder.encode())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = LlavaForConditionalGeneration(config).eval().requires_grad_(False)
    unspoken = [config.image_token_index]
    _randomise(made, seed, unspoken)
    made.generation_config.update(
        **{f"{kind}_token_id": getattr(old, f"{kind}_token_id") for kind in ("bos", "eos", "pad")}
    )
    return made


@functools.cache
def build_odd(decoder: str) -> Zoo:
    """The same with LLaVA's processor, made once."""
    return Zoo(decoder, odd_model(decoder), build("llava").processor)

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
_SPARSE = {
    "kv_heads": 4,
    "first_k_dense_replace": 3,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "index_topk": 4,
    "index_n_heads": 2,
    "index_head_dim": 16,
}

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
    "deepseek_v32": text("deepseek_v32", **_SPARSE),
    "glm_moe_dsa": text("glm_moe_dsa", **_SPARSE),
    "minimax_m3": text(
        "minimax_m3_vl_text",
        layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
        mlp_layer_types=["dense"] * 3,
        dense_intermediate_size=HIDDEN,
        rotary_dim=8,
        index_n_heads=2,
        index_head_dim=16,
        index_block_size=4,
        index_topk_blocks=2,
    ),
}
"""Text decoders by name."""
SPARSE = ["deepseek_v32", "glm_moe_dsa", "minimax_m3"]
"""Decoders that choose few keys for each row, and do so by the name of the attention function."""


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

"""Decoders of text models behind LLaVA's tower: LLaVA takes any, so each is one config away.

What differs between them is what the engine lives on: norms and scales of queries and keys, partial
rotary positions, windows, mixtures of experts, layers with a state in place of keys.
"""

from __future__ import annotations

from typing import Any

from .configs import WINDOW, Table, llava, text

_EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
}
_HYBRID = ["linear_attention", "full_attention", "linear_attention"]
_WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 8}
_DELTA = {
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}

_DENSE = [
    *("apertus", "arcee", "bitnet", "cohere", "ernie4_5", "gemma", "glm", "glm4", "gpt_neox"),
    *("granite", "helium", "hunyuan_v1_dense", "hyperclovax", "jais2", "ministral3", "nanochat"),
    *("nemotron", "olmo", "olmo2", "persimmon", "phi", "phi3", "qwen2", "qwen3", "seed_oss"),
    *("smollm3", "stablelm"),
]
_MIXTURES = [
    *("dots1", "ernie4_5_moe", "exaone_moe", "flex_olmo", "glm4_moe", "granitemoe"),
    *("granitemoeshared", "hunyuan_v1_moe", "hy_v3", "laguna", "minimax_m2", "mixtral", "olmoe"),
    *("phimoe", "qwen2_moe", "qwen3_moe", "solar_open"),
]
_SLIDING = ["cwm", "gemma2", "gemma3_text", "ministral", "olmo3", "vaultgemma"]

SHAPES: dict[str, dict[str, Any]] = {
    **{name: {} for name in _DENSE},
    **dict.fromkeys(_MIXTURES, _EXPERTS),
    **{name: {"sliding_window": WINDOW, "layer_types": _WINDOWS} for name in _SLIDING},
    **{name: {"sliding_window": 2 * WINDOW} for name in ("mistral", "starcoder2")},
    "lfm2_moe": _EXPERTS | {"layer_types": ["conv", "full_attention", "conv"]},
    "granitemoehybrid": _EXPERTS | _MAMBA | {"layer_types": _HYBRID},
    "qwen3_next": _EXPERTS | _DELTA | {"layer_types": _HYBRID},
    "olmo_hybrid": _DELTA | {"layer_types": _HYBRID},
}


def _behind_llava(model_type: str, shape: dict[str, Any]) -> Any:
    """LLaVA-1.5's config with another decoder."""
    base = llava(kv_heads=2)
    return lambda ids: base(ids) | {"text_config": text(model_type, **shape)}


DECODERS: Table = {f"llava+{name}": _behind_llava(name, shape) for name, shape in SHAPES.items()}

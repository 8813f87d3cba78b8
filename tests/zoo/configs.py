"""Configurations of the families: each real model's shape, shrunk to a few layers of width 64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .images import IMAGE, PATCH, TILES

HIDDEN = 64
WINDOW = 16  # of the sliding layers: shorter than any prompt with an image
_MIXED = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}

Ids = Callable[[str], int]
Table = dict[str, Callable[[Ids], dict[str, Any]]]


def text(model_type: str | None = None, *, kv_heads: int = 2, **more: Any) -> dict[str, Any]:
    """A decoder of three layers with four heads of 16; `more` overrides anything."""
    shape = {
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": kv_heads,
        "head_dim": 16,
        "max_position_embeddings": 1024,
    }
    return ({"model_type": model_type} if model_type else {}) | shape | more


def vision(model_type: str | None = None, **more: Any) -> dict[str, Any]:
    """A vision tower of two layers; `more` overrides anything."""
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": IMAGE,
        "patch_size": PATCH,
    }
    return ({"model_type": model_type} if model_type else {}) | shape | more


def siglip(**more: Any) -> dict[str, Any]:
    """SigLIP without its pooling head, which no language model uses."""
    return vision("siglip_vision_model", vision_use_head=False, **more)


def llava(kv_heads: int) -> Callable[[Ids], dict[str, Any]]:
    """LLaVA-1.5 with a Llama of `kv_heads` key/value heads."""

    def make(ids: Ids) -> dict[str, Any]:
        return {
            "model_type": "llava",
            "text_config": text("llama", kv_heads=kv_heads),
            "vision_config": vision("clip_vision_model", num_hidden_layers=3),
            "image_token_index": ids("<image>"),
            "image_seq_length": (IMAGE // PATCH) ** 2,
        }

    return make


def qwen(
    model_type: str, tower: dict[str, Any], /, **decoder: Any
) -> Callable[[Ids], dict[str, Any]]:
    """The Qwen-VL line: its own vision tower and rotary positions in three dimensions."""

    def make(ids: Ids) -> dict[str, Any]:
        shape = {"depth": 2, "num_heads": 2, "patch_size": PATCH // 2}
        return {
            "model_type": model_type,
            "text_config": text(**{"rope_parameters": MROPE} | decoder),
            "vision_config": shape | tower,
            "image_token_id": ids("<|image_pad|>"),
            "video_token_id": ids("<|video_pad|>"),
            "vision_start_token_id": ids("<|vision_start|>"),
            "vision_end_token_id": ids("<|vision_end|>"),
        }

    return make


def _idefics(model_type: str) -> Callable[[Ids], dict[str, Any]]:
    """Idefics3 and SmolVLM: pixel shuffle into a Llama."""
    return lambda ids: {
        "model_type": model_type,
        "text_config": text("llama"),
        "vision_config": vision(),
        "image_token_id": ids("<image>"),
        "scale_factor": 2,
    }


def _paligemma(decoder: dict[str, Any]) -> Callable[[Ids], dict[str, Any]]:
    """PaliGemma over either Gemma: the whole prompt attends to itself in both directions."""
    return lambda ids: {
        "model_type": "paligemma",
        "text_config": decoder,
        "vision_config": siglip(),
        "projection_dim": HIDDEN,
        "hidden_size": HIDDEN,
        "image_token_index": ids("<image>"),
    }


QWEN3_TOWER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "out_hidden_size": HIDDEN,
    "num_position_embeddings": 64,
}
# Soft caps low enough to bite: at their real values of 50 and 30 a tiny model never notices them.
_GEMMA2 = text(
    "gemma2",
    query_pre_attn_scalar=16,
    attn_logit_softcapping=4.0,
    final_logit_softcapping=10.0,
    sliding_window=WINDOW,
    num_hidden_layers=4,
    layer_types=_MIXED,
)

SUPPORTED: Table = {
    "llava": llava(kv_heads=4),
    "llava_gqa": llava(kv_heads=2),
    "qwen2_5_vl": qwen(
        "qwen2_5_vl",
        {
            "hidden_size": 32,
            "intermediate_size": 64,
            "out_hidden_size": HIDDEN,
            "window_size": 2 * PATCH,
            "fullatt_block_indexes": [1],
        },
    ),
    "internvl": lambda ids: {
        "model_type": "internvl",
        "text_config": text("qwen2"),
        "vision_config": vision(patch_size=PATCH // 2),
        "image_token_id": ids("<IMG_CONTEXT>"),
        "image_seq_length": (IMAGE // PATCH) ** 2,
        "tie_word_embeddings": False,
    },
    "llava_next": lambda ids: {
        "model_type": "llava_next",
        "text_config": text("mistral", sliding_window=None),
        "vision_config": vision("clip_vision_model", num_hidden_layers=3, patch_size=2 * PATCH),
        "image_token_index": ids("<image>"),
        "image_grid_pinpoints": TILES,
    },
    "llava_onevision": lambda ids: {
        "model_type": "llava_onevision",
        "text_config": text("qwen2"),
        "vision_config": siglip(patch_size=2 * PATCH),
        "image_token_index": ids("<image>"),
        "video_token_index": ids("<video>"),
        "image_grid_pinpoints": TILES,
    },
    "qwen2_vl": qwen("qwen2_vl", {"embed_dim": 32, "hidden_size": HIDDEN, "mlp_ratio": 2}),
    "qwen3_vl": qwen(
        "qwen3_vl",
        QWEN3_TOWER | {"deepstack_visual_indexes": [0, 1]},
        rope_parameters=MROPE | {"mrope_interleaved": True},
    ),
    "idefics3": _idefics("idefics3"),
    "smolvlm": _idefics("smolvlm"),
    "gemma3": lambda ids: {
        "model_type": "gemma3",
        "text_config": text(
            query_pre_attn_scalar=16,
            sliding_window=WINDOW,
            num_hidden_layers=4,
            layer_types=_MIXED,
        ),
        "vision_config": siglip(image_size=2 * IMAGE),
        "mm_tokens_per_image": (IMAGE // PATCH) ** 2,
        "image_token_index": ids("<image_soft_token>"),
        "boi_token_index": ids("<start_of_image>"),
        "eoi_token_index": ids("<end_of_image>"),
    },
    "paligemma": _paligemma(text("gemma", kv_heads=1)),
    "paligemma2": _paligemma(_GEMMA2),
    "mistral3": lambda ids: {
        "model_type": "mistral3",
        "text_config": text("mistral", sliding_window=None),
        "vision_config": vision("pixtral", image_size=2 * IMAGE, patch_size=PATCH // 2),
        "image_token_index": ids("[IMG]"),
        "spatial_merge_size": 2,
        "tie_word_embeddings": False,
    },
}

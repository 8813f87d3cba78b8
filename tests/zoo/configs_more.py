"""Configurations of further families: decoders, towers and mixtures that the first ones lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .configs import HIDDEN, MROPE, QWEN3_TOWER, WINDOW, Ids, Table, qwen, siglip, text, vision
from .images import IMAGE, PATCH, TILES

_INTERLEAVED = MROPE | {"mrope_interleaved": True}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_CLIP = vision("clip_vision_model", num_hidden_layers=3)
# Cohere's layers: sliding ones with rotary positions, full ones with none.
_COHERE2 = text(
    "cohere2",
    num_hidden_layers=4,
    sliding_window=WINDOW,
    layer_types=["sliding_attention", "full_attention"] * 2,
    logit_scale=1.0,
)


def _glm(model_type: str, /, **decoder: Any) -> Callable[[Ids], dict[str, Any]]:
    """The GLM-V line: rotary positions in three dimensions over half of each head."""

    def make(ids: Ids) -> dict[str, Any]:
        return {
            "model_type": model_type,
            "text_config": text(rope_parameters=MROPE | {"mrope_section": [2, 1, 1]}, **decoder)
            | {"partial_rotary_factor": 0.5},
            "vision_config": {
                "depth": 2,
                "hidden_size": 32,
                "num_heads": 2,
                "image_size": IMAGE,
                "patch_size": PATCH // 2,
                "out_hidden_size": HIDDEN,
                "intermediate_size": 64,
            },
            "image_token_id": ids("<|image|>"),
            "video_token_id": ids("<|video|>"),
            "image_start_token_id": ids("<|begin_of_image|>"),
            "image_end_token_id": ids("<|end_of_image|>"),
            "video_start_token_id": ids("<|begin_of_video|>"),
            "video_end_token_id": ids("<|end_of_video|>"),
        }

    return make


def _pixtral(model_type: str, decoder: dict[str, Any], **more: Any) -> Callable[[Ids], Any]:
    """A Pixtral tower before any decoder."""
    return lambda ids: {
        "model_type": model_type,
        "text_config": decoder,
        "vision_config": vision("pixtral", image_size=2 * IMAGE, patch_size=PATCH // 2),
        "image_token_id": ids("[IMG]"),
        **more,
    }


MORE: Table = {
    "vipllava": lambda ids: {
        "model_type": "vipllava",
        "text_config": text("llama"),
        "vision_config": _CLIP,
        "vision_feature_layers": [-2, -1, 1],
        "image_token_index": ids("<image>"),
    },
    "video_llava": lambda ids: {
        "model_type": "video_llava",
        "text_config": text("llama"),
        "vision_config": _CLIP,
        "image_token_index": ids("<image>"),
        "video_token_index": ids("<video>"),
    },
    "llava_next_video": lambda ids: {
        "model_type": "llava_next_video",
        "text_config": text("llama"),
        "vision_config": _CLIP | {"patch_size": PATCH},
        "image_token_index": ids("<image>"),
        "video_token_index": ids("<video>"),
        "image_grid_pinpoints": TILES,
    },
    "pixtral": _pixtral(
        "llava",
        text("mistral", sliding_window=None),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    ),
    "lighton_ocr": _pixtral("lighton_ocr", text("qwen3")),
    "aya_vision": lambda ids: {
        "model_type": "aya_vision",
        "text_config": _COHERE2,
        "vision_config": siglip(),
        "image_token_index": ids("<|IMG_PATCH|>"),
    },
    "cohere2_vision": lambda ids: {
        "model_type": "cohere2_vision",
        "text_config": _COHERE2,
        "vision_config": siglip(),
        "alignment_intermediate_size": 2 * HIDDEN,
        "image_token_id": ids("<|IMG_PATCH|>"),
    },
    "deepseek_vl": lambda ids: {
        "model_type": "deepseek_vl",
        "text_config": text("llama"),
        "vision_config": siglip(),
        "image_token_id": ids("<image_placeholder>"),
    },
    "deepseek_vl_hybrid": lambda ids: {
        "model_type": "deepseek_vl_hybrid",
        "text_config": text("llama"),
        "vision_config": siglip(),
        "high_res_vision_config": {
            "model_type": "sam_vision_model",
            "hidden_size": 32,
            "output_channels": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 4 * IMAGE,
            "patch_size": PATCH,
            "window_size": 2,
            "global_attn_indexes": [1],
            "mlp_dim": 64,
        },
        "image_token_id": ids("<image_placeholder>"),
    },
    "janus": lambda ids: {
        "model_type": "janus",
        "text_config": text("llama"),
        "vision_config": vision(projection_dim=HIDDEN, num_image_tokens=(IMAGE // PATCH) ** 2),
        "vq_config": {
            "num_embeddings": 16,
            "latent_channels": 8,
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
            "projection_dim": HIDDEN,
            "image_token_embed_dim": HIDDEN,
        },
        "image_token_id": ids("<image_placeholder>"),
    },
    "got_ocr2": lambda ids: {
        "model_type": "got_ocr2",
        "text_config": text("qwen2"),
        "vision_config": {
            "hidden_size": 32,
            "output_channels": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 4 * IMAGE,
            "patch_size": PATCH,
            "window_size": 2,
            "global_attn_indexes": [1],
            "mlp_dim": 64,
        },
        "image_token_index": ids("<imgpad>"),
    },
    "ovis2": lambda ids: {
        "model_type": "ovis2",
        "text_config": text("qwen2"),
        "vision_config": vision(vocab_size=32, hidden_stride=2),
        "image_token_id": ids("<IMG_ATOM>"),
        "visual_indicator_token_ids": [
            ids(f"<IMG_{name}>") for name in ("START", "GRID", "COL", "ROW", "END")
        ],
        "hidden_size": HIDDEN,
        "vocab_size": ids("<IMG_END>") + 1,
    },
    "idefics2": lambda ids: {
        "model_type": "idefics2",
        "text_config": text("mistral", sliding_window=2 * WINDOW),
        "vision_config": vision(),
        "perceiver_config": {
            "hidden_size": HIDDEN,
            "resampler_n_latents": 6,
            "resampler_depth": 2,
            "resampler_n_heads": 2,
            "resampler_head_dim": 16,
            "num_key_value_heads": 1,
        },
        "image_token_id": ids("<image>"),
    },
    "aria": lambda ids: {
        "model_type": "aria",
        "text_config": text("aria_text", moe_num_experts=4, moe_num_shared_experts=1),
        "vision_config": vision("idefics3_vision", image_size=980, patch_size=245),
        "projector_patch_to_query_dict": {4**2: 8},
        "image_token_index": ids("<|img|>"),
    },
    "glm4v": _glm("glm4v"),
    "glm46v": _glm("glm46v", model_type="glm4v_text"),
    "glm_ocr": _glm("glm_ocr"),
    "glm4v_moe": _glm(
        "glm4v_moe", n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "qwen3_vl_moe": qwen(
        "qwen3_vl_moe",
        QWEN3_TOWER | {"deepstack_visual_indexes": [0, 1]},
        rope_parameters=_INTERLEAVED,
        **_EXPERTS,
    ),
    "qwen3_5_moe": qwen(
        "qwen3_5_moe",
        QWEN3_TOWER,
        num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention"] * 2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        shared_expert_intermediate_size=32,
        rope_parameters=_INTERLEAVED | {"mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5},
        **_EXPERTS,
    ),
    "exaone4_5": qwen(
        "exaone4_5",
        {
            "hidden_size": 32,
            "intermediate_size": 64,
            "out_hidden_size": HIDDEN,
            "window_size": 2 * PATCH,
            "fullatt_block_indexes": [1],
            "num_key_value_heads": 1,
        },
        model_type="exaone4",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        num_hidden_layers=4,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"] * 2,
    ),
    "video_llama_3": qwen(
        "video_llama_3",
        vision(patch_size=PATCH // 2),
        model_type="qwen2",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    "paddleocr_vl": lambda ids: {
        "model_type": "paddleocr_vl",
        "text_config": text(rope_parameters=MROPE),
        "vision_config": vision(patch_size=PATCH // 2),
        "image_token_id": ids("<|IMAGE_PLACEHOLDER|>"),
        "vision_start_token_id": ids("<|IMAGE_START|>"),
        "vision_end_token_id": ids("<|IMAGE_END|>"),
    },
    "ernie4_5_vl_moe": lambda ids: {
        "model_type": "ernie4_5_vl_moe",
        "text_config": text(
            rope_parameters=MROPE | {"mrope_section": [3, 3, 2]},
            moe_intermediate_size=[32, 16],
            moe_k=2,
            moe_num_experts=4,
            moe_num_shared_experts=1,
        ),
        "vision_config": {
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": PATCH // 2,
        },
        **{
            f"{kind}_{edge}token_id": ids(f"<|{kind}_{edge}token|>")
            for kind in ("image", "video")
            for edge in ("", "start_", "end_")
        },
    },
    "hunyuan_vl": lambda ids: {
        "model_type": "hunyuan_vl",
        "text_config": text(
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [2, 2, 2, 2],
            }
        ),
        "vision_config": vision(
            patch_size=PATCH // 2, out_hidden_size=HIDDEN, max_image_size=2 * IMAGE
        ),
        "image_token_id": ids("<image>"),
        "im_start_id": ids("<im_start>"),
        "im_end_id": ids("<im_end>"),
    },
    "qianfan_ocr": lambda ids: {
        "model_type": "qianfan_ocr",
        "text_config": text("qwen3"),
        "vision_config": vision(patch_size=PATCH // 2),
        "image_token_id": ids("<IMG_CONTEXT>"),
        "image_seq_length": (IMAGE // PATCH) ** 2,
    },
}

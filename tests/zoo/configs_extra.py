"""Configurations of hybrid models, and of models that the engine is expected to refuse."""

from __future__ import annotations

from .configs import HIDDEN, MROPE, QWEN3_TOWER, WINDOW, Table, llava, qwen, text, vision
from .images import PATCH

# Layers that are not all plain attention with a cache of their own.
EXTRA: Table = {
    "lfm2_vl": lambda ids: {
        "model_type": "lfm2_vl",
        "text_config": text(
            "lfm2",
            num_hidden_layers=4,
            layer_types=["conv", "full_attention", "conv", "full_attention"],
            block_auto_adjust_ff_dim=False,
        ),
        "vision_config": vision(
            "siglip2_vision_model",
            patch_size=PATCH // 2,
            num_patches=64,
            vision_use_head=False,
        ),
        "image_token_id": ids("<image>"),
        "projector_hidden_size": HIDDEN,
        "downsample_factor": 2,
    },
    "qwen3_5": qwen(
        "qwen3_5",
        QWEN3_TOWER,
        num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention"] * 2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        rope_parameters=MROPE
        | {"mrope_interleaved": True, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5},
    ),
    "gemma4": lambda ids: {
        "model_type": "gemma4",
        "text_config": text(
            num_hidden_layers=6,
            layer_types=["sliding_attention", "full_attention"] * 3,
            num_kv_shared_layers=2,
            sliding_window=WINDOW,
            global_head_dim=16,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=ids("<|video|>") + 1,
            use_bidirectional_attention="vision",
        ),
        "vision_config": vision(
            "gemma4_vision",
            num_key_value_heads=2,
            head_dim=16,
            patch_size=PATCH // 2,
            pooling_kernel_size=2,
            position_embedding_size=64,
        ),
        "image_token_id": ids("<image_soft_token>"),
        "boi_token_id": ids("<start_of_image>"),
        "eoi_token_id": ids("<end_of_image>"),
        "video_token_id": ids("<|video|>"),
        "audio_token_id": ids("<audio>"),
        "boa_token_id": ids("<boa>"),
        "eoa_token_index": ids("<eoa>"),
    },
    "llama4": lambda ids: {
        "model_type": "llama4",
        "text_config": text(
            num_hidden_layers=4,
            no_rope_layers=[1, 0, 1, 0],
            attention_chunk_size=WINDOW,
            intermediate_size_mlp=2 * HIDDEN,
            num_local_experts=2,
            moe_layers=[1, 3],
            floor_scale=WINDOW,
        ),
        "vision_config": vision(
            intermediate_size=4 * 32,  # four patches are merged into one
            patch_size=PATCH // 2,
            vision_output_dim=HIDDEN,
            projector_input_dim=HIDDEN,
            projector_output_dim=HIDDEN,
        ),
        "image_token_index": ids("<|patch|>"),
        "boi_token_index": ids("<|image_start|>"),
        "eoi_token_index": ids("<|image_end|>"),
    },
}

# Models whose image does not reach the decoder as a run of cached tokens, or whose decoder chooses
# the keys that it attends to by other means than a mask.
UNSUPPORTED: Table = {
    "llava_indexed": lambda ids: (
        llava(kv_heads=4)(ids)
        | {
            "text_config": text(
                "deepseek_v32",
                kv_heads=4,
                q_lora_rank=32,
                kv_lora_rank=16,
                qk_nope_head_dim=16,
                qk_rope_head_dim=8,
                v_head_dim=12,
                index_topk=8,
                index_n_heads=2,
                index_head_dim=16,
                n_routed_experts=4,
                num_experts_per_tok=2,
                moe_intermediate_size=32,
                n_group=1,
                topk_group=1,
            )
        }
    ),
    "mllama": lambda ids: {
        "model_type": "mllama",
        "text_config": text(num_hidden_layers=4, cross_attention_layers=[1, 3]),
        "vision_config": vision(
            attention_heads=2,
            num_global_layers=1,
            intermediate_layers_indices=[0, 1],
            vision_output_dim=96,
            max_num_tiles=1,
            supported_aspect_ratios=[[1, 1]],
        ),
        "image_token_index": ids("<|image|>"),
    },
    "florence2": lambda ids: {
        "model_type": "florence2",
        "text_config": {
            "model_type": "bart",
            "d_model": HIDDEN,
            **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": 2 * HIDDEN for side in ("encoder", "decoder")},
            "decoder_start_token_id": ids("</s>"),
            "forced_eos_token_id": None,
        },
        "vision_config": {
            "depths": [1, 1],
            "patch_size": [7, 3],
            "patch_stride": [4, 2],
            "patch_padding": [3, 1],
            "patch_prenorm": [False, True],
            "embed_dim": [16, 32],
            "num_heads": [2, 2],
            "num_groups": [2, 2],
            "window_size": 4,
            "projection_dim": HIDDEN,
        },
        "image_token_id": ids("<image>"),
    },
}

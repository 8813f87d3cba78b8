"""The arithmetic of docs/scale.md: against the real classes on no device, and published counts."""

from pathlib import Path

import pytest

from tools.scale import Numbers, table

N = Numbers()
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"


def test_the_page_has_the_table():
    assert table(N) in PAGE.read_text(encoding="utf-8")


def test_the_weights_are_those_of_the_published_model():
    """Llama-2-7B has 6,738,415,616 parameters, of which 65 x 4,096 are norms and 32,000 x 4,096 the
    input embedding, which is looked up."""
    llama = Numbers(vocabulary=32_000)
    assert llama.weights == 6_738_415_616 - 65 * 4096 - 32_000 * 4096


def count(model, **inputs):
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        model(**inputs)
    return counter.get_total_flops()


def decoder():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=N.layers, hidden_size=N.hidden, intermediate_size=N.inner,
        num_attention_heads=32, num_key_value_heads=32, vocab_size=N.vocabulary,
        attn_implementation="eager",
    )  # fmt: skip
    with torch.device("meta"):
        return LlamaForCausalLM(config)


def test_prefill_and_decode_are_what_torch_counts():
    import torch

    model = decoder()
    ids = torch.zeros(1, N.prompt, dtype=torch.long, device="meta")
    seen = torch.zeros(1, 1, N.prompt, N.prompt, device="meta")
    counted = count(model, input_ids=ids, attention_mask=seen, logits_to_keep=1, use_cache=False)
    causal = 2 * N.layers * N.prompt**2 * N.hidden  # torch counts both triangles
    assert N.prefill_flops + causal == pytest.approx(counted, rel=1e-3)
    one = torch.zeros(1, 1, dtype=torch.long, device="meta")
    alone = count(model, input_ids=one, attention_mask=seen[..., :1, :1], use_cache=False)
    attended = 4 * N.layers * N.hidden
    assert N.decode_flops == pytest.approx(alone - attended + attended * N.context, rel=1e-3)


def test_the_tower_is_what_torch_counts():
    import torch
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(
        hidden_size=N.tower_hidden, intermediate_size=N.tower_inner, num_attention_heads=16,
        num_hidden_layers=N.tower_layers, image_size=336, patch_size=14,
        attn_implementation="eager",
    )  # fmt: skip
    with torch.device("meta"):
        model = CLIPVisionModel(config)
        counted = count(model, pixel_values=torch.zeros(1, 3, 336, 336))
    assert N.tower_flops == pytest.approx(counted, rel=5e-3)  # patches are embedded, too


def test_the_limits_of_a_step():
    """Reading bounds a step of few tokens; reading each prompt once saves (n - 1) of n prompts."""
    few = N.step_seconds(True, 1)
    assert few == pytest.approx(N.step_bytes(True, 1) / (3.35e12 * 0.6))
    saved = N.step_bytes(False, 7) - N.step_bytes(True, 7)
    assert saved == 7 * 24 * N.prompt * N.kv_bytes
    assert N.kv_bytes == 512 * 1024
    used = N.questions * (N.prompt + 25 * 128) * N.kv_bytes + 2 * N.weights
    assert used <= 0.85 * 80e9 < used + (N.prompt + 25 * 128) * N.kv_bytes


def test_hours_fall_with_gpus_and_rise_with_images():
    twice, half = Numbers(gpus=16), Numbers(images=500_000)
    hours = N.decode_hours(True, N.questions)
    assert twice.decode_hours(True, N.questions) == pytest.approx(hours / 2)
    assert half.decode_hours(True, N.questions) == pytest.approx(hours / 2)

"""The model of the benchmarks: a LLaVA with random weights, 12 layers of width 512."""

import torch
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

VOCAB = 32000
IMAGE_TOKEN = VOCAB - 1


def build(vision_tokens: int = 576) -> LlavaForConditionalGeneration:
    """A LLaVA whose image has so many vision tokens (a square number)."""
    side = round(vision_tokens**0.5)
    torch.manual_seed(0)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=14 * side,
            patch_size=14,
        ),
        text_config=LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=512,
            intermediate_size=1408,
            num_hidden_layers=12,
            num_attention_heads=8,
            max_position_embeddings=8192,
        ),
        image_token_index=IMAGE_TOKEN,
        image_seq_length=vision_tokens,
    )
    model = LlavaForConditionalGeneration(config).eval().requires_grad_(False)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def prompt(model: LlavaForConditionalGeneration, text_tokens: int = 50) -> dict[str, torch.Tensor]:
    """A prompt with one image, as a processor would make it."""
    vision = model.config.image_seq_length
    ids = torch.tensor([[1] + [5] * (text_tokens - 20) + [IMAGE_TOKEN] * vision + [7] * 19])
    side = model.config.vision_config.image_size
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(1, 3, side, side),
    }


def prefill(decoder, inputs):
    """The prompt's pass, with its image tokens as the source."""
    return decoder.prefill(inputs, inputs["input_ids"][0] == IMAGE_TOKEN)


def responses(n: int, length: int) -> list[list[int]]:
    """Random responses."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(10, VOCAB - 2, (n, length), generator=generator).tolist()


def eager_scores(model, inputs, response):
    """What people do: one sequence, whole attention maps, then a sum. (A_t, log p)."""
    prompt = inputs["input_ids"].shape[1]
    ids = torch.cat([inputs["input_ids"], torch.tensor([response])], 1)
    out = model(
        input_ids=ids,
        pixel_values=inputs["pixel_values"],
        output_attentions=True,
        use_cache=False,
    )
    maps = torch.stack([m[0, :, prompt - 1 : -1] for m in out.attentions])  # (L, H, T, K)
    lookback = maps[..., ids[0] == IMAGE_TOKEN].sum(-1).mean((0, 1))
    log_p = out.logits[0, prompt - 1 : -1].log_softmax(-1)
    return lookback, log_p.gather(-1, torch.tensor(response)[:, None])[:, 0]

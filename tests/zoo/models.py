"""Real model classes with random weights that make every part of the computation count.

The usual initialisation (standard deviation 0.02) yields uniform attention, flat distributions and
layers that hardly change their input, under which a wrong mask, position or cache goes unseen.
"""

from __future__ import annotations

import copy
import zlib
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    PretrainedConfig,
    PreTrainedModel,
)

from .configs import HIDDEN, SUPPORTED
from .configs_extra import EXTRA, UNSUPPORTED
from .configs_more import MORE
from .decoders import DECODERS
from .remote import RemoteAttention

SHARPNESS = 2.5  # standard deviation of the attention scores
PEAKEDNESS = 2.8  # standard deviation of the logits
CONFIGS = SUPPORTED | EXTRA | MORE | DECODERS | UNSUPPORTED


def model(name: str, tokenizer: Any) -> PreTrainedModel:
    """The model `name` in float32, for inference only, over the vocabulary of `tokenizer`."""
    seed = zlib.crc32(name.encode())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = AutoModelForImageTextToText.from_config(
            _config(name, tokenizer), dtype=torch.float32
        )
    if getattr(made.config.get_text_config(), "attn_logit_softcapping", None):
        # The oldest release gives it sdpa, which drops the cap: refused, with this as the way out.
        made.set_attn_implementation({"text_config": "eager"})
    made = made.eval().requires_grad_(False)
    _randomise(made, seed, _unspoken(made, tokenizer))
    vocabulary = tokenizer.get_vocab()
    ends = [tokenizer.eos_token, "<|endoftext|>", "<end_of_turn>"]  # often more than one, as here
    eos = [vocabulary[end] for end in ends if end in vocabulary]
    made.generation_config.update(
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=eos if len(eos) > 1 else eos[0],
    )
    return made


def _config(name: str, tokenizer: Any) -> PretrainedConfig:
    """The configuration of `name` over the vocabulary of `tokenizer`."""
    values = copy.deepcopy(CONFIGS[name](tokenizer.convert_tokens_to_ids))
    special = [f"{kind}_token_id" for kind in ("bos", "eos", "pad")]
    values["text_config"] |= {key: getattr(tokenizer, key) for key in special}
    values["text_config"] |= {"vocab_size": len(tokenizer)}
    return AutoConfig.for_model(values.pop("model_type"), **values)


def remote(tokenizer: Any) -> PreTrainedModel:
    """LLaVA with a hand-written attention in its decoder."""
    made = model("llava_gqa", tokenizer)
    for layer in made.get_decoder().layers:
        layer.self_attn = RemoteAttention(layer.self_attn)
    return made


def _unspoken(made: PreTrainedModel, tokenizer: Any) -> list[int]:
    """Tokens that no trained model answers with: placeholders of images and the like, lone bytes.

    A greedy answer without them can be decoded and tokenized again, and holds no second image.
    """
    kinds = [f"{kind}_token_id" for kind in ("image", "video", "audio")]
    placeholders = {getattr(made.config, kind, None) for kind in kinds}
    return [
        token
        for token in range(len(tokenizer))
        if token in placeholders or "\ufffd" in tokenizer.decode([token])
    ]


def _randomise(made: PreTrainedModel, seed: int, unspoken: list[int]) -> None:
    """Draws all weights so that activations keep a scale of about one from layer to layer."""
    generator = torch.Generator().manual_seed(seed)

    def draw(weight: Tensor, std: float) -> None:
        weight.normal_(std=std, generator=generator)

    for module in made.modules():
        rows = isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d))
        for weight in module.parameters(recurse=False):
            if weight.dim() > 1:
                draw(weight, (weight[0].numel() if rows else weight.shape[-2]) ** -0.5)
            elif weight.numel() == 1 and weight == 0:  # the gate of a cross-attention, still closed
                weight.fill_(1.0)
    inputs, outputs = made.get_input_embeddings(), made.get_output_embeddings()
    scale = getattr(inputs, "scalar_embed_scale", 1.0)  # Gemma multiplies its embeddings
    tied = outputs.weight is inputs.weight
    size = 0.5 if tied else 1.0  # a tied model with large embeddings would only repeat its input
    draw(outputs.weight, PEAKEDNESS * HIDDEN**-0.5)
    draw(inputs.weight, size / scale)
    if tied:
        _gain(_final_norm(made), PEAKEDNESS * HIDDEN**-0.5 * scale / size)
    outputs.weight[unspoken] *= 0.1
    for attention in made.get_decoder().modules():
        if hasattr(attention, "q_proj") and hasattr(attention, "scaling"):  # else it keeps a state
            _sharpen(attention)


def _sharpen(attention: Any) -> None:
    """Scales queries and keys, or their norms, for scores that vary by `SHARPNESS`."""
    plain = attention.scaling * attention.head_dim**0.5  # deviation with queries and keys of one
    gain = (SHARPNESS / plain) ** 0.5
    for side in "qk":
        norms = (getattr(attention, f"{side}_{name}", None) for name in ("norm", "layernorm"))
        norm = next((norm for norm in norms if hasattr(norm, "weight")), None)
        if norm is not None:
            _gain(norm, gain)
        elif hasattr(attention, f"{side}_proj"):  # layers that share keys have no projection
            getattr(attention, f"{side}_proj").weight.mul_(gain)


def _final_norm(made: PreTrainedModel) -> Any:
    """The norm before the output matrix, where the decoder has one."""
    decoder = made.get_decoder()
    return getattr(decoder, "norm", None) or getattr(decoder, "embedding_norm", None)


def _gain(norm: Any, gain: float) -> None:
    """Multiplies what a fresh norm returns, be its weight a factor (one) or an excess (zero)."""
    if norm is not None:
        norm.weight.add_(gain - 1)

"""The slow way: whole attention maps of one sequence at a time. The measure of every engine."""

from contextlib import contextmanager

import numpy as np
import torch
from PIL import Image

from lookback.engines.transformers.support import decoder_configs
from lookback.families import image_token_id

QUESTION = "what is in the picture?"


def noise(seed=0, size=(48, 40)):
    """A picture of coloured noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@contextmanager
def attention(model, implementation):
    """The model with another attention implementation, for a while."""
    configs = decoder_configs(model)
    before = [config._attn_implementation for config in configs]
    model.set_attn_implementation(implementation)
    try:
        yield
    finally:
        for config, was in zip(configs, before, strict=True):
            config._attn_implementation = was


def whole(model, inputs, response):
    """Model inputs for prompt and response in one sequence."""
    added = torch.tensor([list(response)])
    full = dict(inputs)
    full["input_ids"] = torch.cat([inputs["input_ids"], added], 1)
    # Response tokens are text (0 for most, 1 for PaliGemma's suffix) and are not padding.
    text = 1 if model.config.model_type == "paligemma" else 0
    for name, value in (("attention_mask", 1), ("token_type_ids", text), ("mm_token_type_ids", 0)):
        if name in inputs:
            full[name] = torch.cat([inputs[name], torch.full_like(added, value)], 1)
    return full


def eager_maps(model, full):
    """A pass with attention maps: its logits, and L maps (H, Q, K)."""
    with torch.no_grad(), attention(model, "eager"):
        out = model(**full, output_attentions=True, use_cache=False)
    return out.logits[0], [m[0] for m in out.attentions if m is not None]


def eager_signals(model, inputs, response):
    """log p, self-certainty, entropy and A_t of a response, from maps, in float64.

    The row that predicts token t is position P + t - 1: the row before the token's own.
    """
    prompt = inputs["input_ids"].shape[1]
    full = whole(model, inputs, response)
    logits, maps = eager_maps(model, full)
    vision = full["input_ids"][0] == image_token_id(model.config)
    rows = slice(prompt - 1, prompt - 1 + len(response))
    mass = torch.cat([m[:, rows][..., vision].sum(-1) for m in maps]).double().mean(0)
    return np.stack([*token_signals(logits[rows], response), mass])


def token_signals(logits, response):
    """log p, self-certainty and entropy of each token of a response, in float64."""
    log_p = logits.double().log_softmax(-1)
    return [
        log_p.gather(-1, torch.tensor(list(response))[:, None])[:, 0],
        -log_p.mean(-1) - np.log(log_p.shape[-1]),
        -(log_p.exp() * log_p).sum(-1),
    ]

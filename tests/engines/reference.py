"""The slow way: whole attention maps of one sequence at a time. The measure of every engine."""

from contextlib import contextmanager

import numpy as np
import torch
from PIL import Image

from lookback.conversations import Conversation
from lookback.engines.transformers.support import decoder_configs
from lookback.families import image_token_id

QUESTION = "what is in the picture?"


def noise(seed=0, size=(48, 40)):
    """A picture of coloured noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def inputs_of(lb, image, question=QUESTION):
    """What a model is given for an image (or none) and a question."""
    source = "none" if image is None else None
    return lb.inputs(Conversation.of(image, question), source)[0]


def prefill(decoder, inputs):
    """A prompt's pass with every image token as the source."""
    return decoder.prefill(inputs, inputs["input_ids"][0] == decoder.image_token)


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
    added_values = {
        "attention_mask": 1,
        "token_type_ids": text,
        "mm_token_type_ids": 0,
        "moe_mm_token_type_ids": 0,
    }
    for name, value in added_values.items():
        if name in inputs:
            full[name] = torch.cat([inputs[name], torch.full_like(added, value)], 1)
    return full


def eager_maps(model, full):
    """A pass with attention maps: its logits, and L maps (H, Q, K)."""
    with torch.no_grad(), attention(model, "eager"):
        out = model(**full, output_attentions=True, use_cache=False)
    return out.logits[0], [m[0] for m in out.attentions if m is not None]


def eager_signals(model, inputs, response, source=None):
    """log p, A_t, self-certainty and entropy of a response, from maps, in float64.

    The row that predicts token t is position P + t - 1: the row before the token's own. `source`
    marks the prompt's tokens that count; by default its image tokens.
    """
    logits, shares = _eager_shares(model, inputs, response, source)
    log_prob, *spread = token_signals(logits, response)
    return np.stack([log_prob, torch.cat(shares).mean(0), *spread])


def eager_by_layer(model, inputs, response, source=None):
    """A_t of a response in each layer that attends, (T, L), from maps."""
    _, shares = _eager_shares(model, inputs, response, source)
    return np.stack([share.mean(0) for share in shares], axis=1)


def eager_look(model, inputs, response, layers, source=None):
    """The attention of a response's rows on each source token, (T, V), from maps, in float64.

    The mean over all heads of the layers first..last - 1 that attend.
    """
    _, maps = _eager_rows(model, inputs, response, source)
    return torch.cat(maps[slice(*layers)]).mean(0).numpy()


def _eager_shares(model, inputs, response, source):
    """The logits of a response's rows, and for each layer the heads' shares (H, T)."""
    logits, maps = _eager_rows(model, inputs, response, source)
    return logits, [m.sum(-1) for m in maps]


def _eager_rows(model, inputs, response, source):
    """The logits of a response's rows, and for each layer their attention (H, T, V), in float64."""
    prompt = inputs["input_ids"].shape[1]
    logits, maps = eager_maps(model, whole(model, inputs, response))
    if source is None:
        source = inputs["input_ids"][0] == image_token_id(model.config)
    columns = source.nonzero()[:, 0]
    rows = slice(prompt - 1, prompt - 1 + len(response))
    return logits[rows], [m[:, rows][..., columns].double() for m in maps]


def token_signals(logits, response):
    """log p, self-certainty and entropy of each token of a response, in float64."""
    log_p = logits.double().log_softmax(-1)
    return [
        log_p.gather(-1, torch.tensor(list(response))[:, None])[:, 0],
        -log_p.mean(-1) - np.log(log_p.shape[-1]),
        -(log_p.exp() * log_p).sum(-1),
    ]

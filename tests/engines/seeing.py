"""What a vision token sees, by trial: a model whose patches cannot mix, and what a spot changes."""

from contextlib import contextmanager

import numpy as np
import torch
from PIL import Image
from torch import nn

from lookback.conversations import Conversation
from lookback.engines.transformers.layouts import pictures

QUESTION = "what is in the picture?"
# The last matrix of an attention, by all the names that vision towers have for it.
OUTPUTS = {"out_proj", "o_proj", "proj", "projection_layer", "linear_proj", "dense"}


def towers(model):
    """The parts of a model that see: whatever takes pixels before the decoder."""
    decoder = {id(module) for module in model.get_decoder().modules()}
    for name, module in model.named_modules():
        if id(module) not in decoder and "ttention" in type(module).__name__:
            yield name, module


@contextmanager
def without_mixing(model):
    """No patch can see another: every attention before the decoder gives nothing."""
    children = [child for _, module in towers(model) for child in module.named_children()]
    # Gemma 4 wraps its matrices.
    found = [getattr(child, "linear", child) for name, child in children if name in OUTPUTS]
    # The convolutions of DeepSeek's second tower look beyond a patch: only the first one is tried.
    found += [one for name, one in model.named_modules() if name.endswith("high_res_vision_proj")]
    muted = {id(one): one for one in found if isinstance(one, nn.Linear)}.values()
    assert muted, f"no attention found in the tower of {type(model).__name__}"
    before = [one.weight.clone() for one in muted]
    for one in muted:
        one.weight.zero_()
    try:
        yield
    finally:
        for one, weight in zip(muted, before, strict=True):
            one.weight.copy_(weight)


class _Seen(Exception):
    """Carries what the decoder was given, in place of its answer."""


def embeddings(lb, conversation):
    """What stands at the source's tokens before the first layer of the decoder, (V, width)."""
    inputs, mask = lb.inputs(conversation)

    def stop(module, args, kwargs):
        raise _Seen(kwargs["inputs_embeds"])

    hook = lb.model.get_decoder().register_forward_pre_hook(stop, with_kwargs=True)
    try:
        with torch.no_grad():
            lb.model(**inputs)
    except _Seen as seen:
        return seen.args[0][0, mask].double().numpy()
    finally:
        hook.remove()


def pictures_of(lb, conversation, source=None):
    inputs, mask = lb.inputs(conversation, source)
    return pictures(lb.prompter, conversation, inputs, mask, lb.model.config)


def asking(*images):
    return Conversation.of(list(images), QUESTION)


def grey(size, seed=0):
    """A picture that is nearly grey everywhere, so that a spot stands out."""
    width, height = size
    values = np.random.default_rng(seed).integers(118, 138, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def with_spot(image, box, share=0.6):
    """The picture with the middle of a box, in shares of its sides, in white and black."""
    pixels = np.array(image)
    height, width = pixels.shape[:2]
    x0, y0, x1, y1 = box
    x0, x1 = (x0 + x1) / 2 + np.array([-share, share]) * (x1 - x0) / 2
    y0, y1 = (y0 + y1) / 2 + np.array([-share, share]) * (y1 - y0) / 2
    left, right = round(x0 * width), max(round(x1 * width), round(x0 * width) + 1)
    top, bottom = round(y0 * height), max(round(y1 * height), round(y0 * height) + 1)
    pixels[top:bottom, left:right] = (255, 255, 0)
    pixels[top : (top + bottom) // 2, left : (left + right) // 2] = (0, 0, 255)
    return Image.fromarray(pixels)


def change(before, after):
    """By how much each token differs, (V,)."""
    return np.abs(after - before).max(1)


def frame_number(image, clip):
    """Which frame of a clip an image is."""
    return next(k for k, one in enumerate(clip) if np.array_equal(np.array(one), np.array(image)))

"""Hiding what a response looks at, against whole attention maps with columns taken out."""

import sys

import numpy as np
import pytest
import torch
from engines.reference import (
    QUESTION,
    attention,
    eager_maps,
    inputs_of,
    noise,
    prefill,
    token_signals,
    whole,
)
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from zoo import EXTRA_NAMES, NAMES, build

import lookback
from lookback.engines import UnsupportedModelError
from lookback.engines.transformers.attention import source_weights
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.decoding.source_attention import _importance
from lookback.engines.transformers.support import decoder_configs
from lookback.families import image_token_id

RESPONSES = [[20, 33, 41, 52, 60], [77], [90, 21, 64]]


def hidden_pass(model, full, first_row, columns):
    """Logits of an eager pass in which rows from `first_row` on do not see those columns."""

    def attend(module, query, key, value, mask, **kwargs):
        eager = sys.modules[type(module).__module__].eager_attention_forward
        rows, keys = query.shape[2], key.shape[2]
        bias = torch.zeros(1, 1, rows, keys) if mask is None else mask[..., :keys].clone()
        bias = bias.expand(-1, -1, rows, -1).contiguous()
        bias[:, :, first_row:, columns] = torch.finfo(torch.float32).min
        return eager(module, query, key, value, bias, **kwargs)

    AttentionInterface.register("knockout_reference", attend)
    AttentionMaskInterface.register("knockout_reference", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    configs = decoder_configs(model)
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = "knockout_reference"
        with torch.no_grad():
            return model(**full).logits[0]
    finally:
        for config, was in zip(configs, before, strict=True):
            config._attn_implementation = was


def reference(model, inputs, response, layers, share):
    prompt = inputs["input_ids"].shape[1]
    full = whole(model, inputs, response)
    vision = (full["input_ids"][0] == image_token_id(model.config)).nonzero()[:, 0]
    _, maps = eager_maps(model, full)
    received = sum(m[:, prompt:][..., vision].double().sum((0, 1)) for m in maps[slice(*layers)])
    columns = vision[received.topk(max(1, int(len(vision) * share))).indices]
    if model.config.model_type == "paligemma":
        # Its prompt's rows see one another, the last one too, which must stay as it was for them:
        # keep the prompt's keys, and send its last token again.
        cache = DynamicCache()
        with torch.no_grad(), attention(model, "eager"):
            model(**inputs, past_key_values=cache, use_cache=True)
        cache.crop(-1)
        again = {"input_ids": full["input_ids"][:, prompt - 1 : -1], "past_key_values": cache}
        logits = hidden_pass(model, again | {"use_cache": True}, 0, columns)
    else:
        logits = hidden_pass(model, full | {"use_cache": False}, prompt - 1, columns)[
            prompt - 1 : -1
        ]
    return np.stack(token_signals(logits, response))


@pytest.mark.parametrize("name", NAMES)
def test_every_family_equals_maps_with_columns_taken_out(name):
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    depth = lb.decoder.layers
    layers, share = (depth // 2, depth), 0.4
    found = lb.knockout(noise(), QUESTION, RESPONSES, layers=layers, share=share)
    seen = lb.score(noise(), QUESTION, RESPONSES)
    inputs = inputs_of(lb, noise(), QUESTION)
    moved = 0.0
    for response, masked, plain in zip(RESPONSES, found, seen, strict=True):
        expected = reference(zoo.model, inputs, response, layers, share)
        got = np.stack([masked.log_prob, masked.self_certainty, masked.entropy])
        np.testing.assert_allclose(got, expected, atol=2e-5, rtol=2e-5)
        assert (
            masked.visual_lookback < plain.visual_lookback
        ).all()  # what is hidden is not looked at
        moved = max(moved, float(np.abs(masked.entropy - plain.entropy).max()))
    assert moved > 1e-5


@pytest.fixture(scope="module")
def lb():
    zoo = build("llava")
    return lookback.load(zoo.model, zoo.processor)


@pytest.mark.parametrize("layers", [(0, 1), (0, 2), (1, 2), (1, 3), (0, 3)])
@pytest.mark.parametrize("rows", [2, 6, 100])
def test_importance_is_what_the_chosen_layers_maps_say(lb, layers, rows, monkeypatch):
    """Of the first layer to the last but one, in one pass or in pieces, of rows that are there."""
    monkeypatch.setattr(source_weights, "MATH_SCORES", 100)  # some continuations at a time
    inputs, decoder = inputs_of(lb, noise(), QUESTION), Decoder(lb.model)
    decoder.batch_rows = rows
    prefix, prompt = prefill(decoder, inputs), inputs["input_ids"].shape[1]
    vision = (inputs["input_ids"][0] == decoder.image_token).nonzero()[:, 0]
    with decoder.session(prefix) as session:
        found = _importance(decoder, prefix, RESPONSES, layers, session)
    for response, received in zip(RESPONSES, found, strict=True):
        _, maps = eager_maps(lb.model, whole(lb.model, inputs, response))
        chosen = torch.stack(maps[slice(*layers)])[:, :, prompt:][..., vision]
        torch.testing.assert_close(received, chosen.sum((0, 1, 2)), atol=1e-5, rtol=1e-5)


def test_batches_do_not_matter(lb):
    one = [lb.knockout(noise(), QUESTION, [r], layers=(0, 2), share=0.5)[0] for r in RESPONSES]
    together = lb.knockout(noise(), QUESTION, RESPONSES, layers=(0, 2), share=0.5)
    for a, b in zip(one, together, strict=True):
        np.testing.assert_allclose(a.entropy, b.entropy, atol=1e-5)


def test_all_vision_tokens_can_go(lb):
    found = lb.knockout(noise(), QUESTION, RESPONSES, layers=(0, 2), share=1.0)
    assert all((c.visual_lookback == 0).all() for c in found)
    assert all(np.isfinite(c.entropy).all() for c in found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": (0, 9), "share": 0.5}, r"layers 0-9 .* has 3 attention layers"),
        ({"layers": (1, 1), "share": 0.5}, "layers 1-1"),
        ({"share": 0.5}, r"layers 10-25 .* has 3"),  # LLaVA-1.5's own, on a shallow model
        ({"layers": (0, 1), "share": 0.0}, "share = 0.0"),
        ({"layers": (0, 1), "share": 1.1}, "share = 1.1"),
    ],
)
def test_wrong_settings_are_named(lb, settings, message):
    with pytest.raises(ValueError, match=message):
        lb.knockout(noise(), QUESTION, RESPONSES, **settings)


def test_without_an_image_there_is_nothing_to_hide(lb):
    with pytest.raises(ValueError, match="this prompt has no source"):
        lb.knockout(None, QUESTION, RESPONSES, layers=(0, 1), share=0.5)


def test_an_unknown_family_says_which_layers_it_takes():
    zoo = build("idefics3")
    engine = lookback.load(zoo.model, zoo.processor)
    with pytest.warns(UserWarning, match="middle half"):
        engine.knockout(noise(), QUESTION, RESPONSES)


def test_layers_without_keys_are_refused():
    name = next(n for n in EXTRA_NAMES if "lfm" in n)
    zoo = build(name)
    engine = lookback.load(zoo.model, zoo.processor)
    with pytest.raises(UnsupportedModelError, match="cannot go back by one token"):
        engine.knockout(noise(), QUESTION, RESPONSES, layers=(0, 1), share=0.5)

"""Prompts in which one part of the attention has no keys: they must not reach the fused kernel."""

import numpy as np
import pytest
import torch
from engines.reference import eager_signals, inputs_of, noise
from engines.test_knockout import reference
from zoo import build

import lookback
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.decoding.source_attention import knockout

RESPONSES = [[30, 31, 32, 33], [40], [50, 51]]


def image_then(text):
    """LLaVA's prompt cut down to its image tokens and these ids behind them."""
    zoo = build("llava")
    decoder = Decoder(zoo.model)
    inputs = dict(inputs_of(lookback.load(zoo.model, zoo.processor), noise()))
    image = inputs["input_ids"][:, inputs["input_ids"][0] == decoder.image_token]
    ids = torch.cat([image, torch.tensor([text], dtype=torch.long)], 1)
    inputs |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return zoo.model, decoder, inputs


@pytest.mark.parametrize("text", [[], [21]])
def test_a_prompt_of_image_tokens_alone(text):
    """With the source the whole prompt, nothing is left for the other part."""
    model, decoder, inputs = image_then(text)
    source = torch.ones(inputs["input_ids"].shape[1], dtype=torch.bool)
    prefix = decoder.prefill(inputs, source)
    for found, response in zip(decoder.score(prefix, RESPONSES), RESPONSES, strict=True):
        expected = eager_signals(model, inputs, response, source)
        np.testing.assert_allclose(found.signals, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_knockout_with_one_token_after_the_image(share):
    """The prompt without its last token is all source; with a share of 1 nothing at all is seen."""
    model, decoder, inputs = image_then([21])
    prefix = decoder.prefill(inputs, inputs["input_ids"][0] == decoder.image_token)
    found = knockout(decoder, prefix, RESPONSES, (0, 2), share)
    for one, response in zip(found, RESPONSES, strict=True):
        expected = reference(model, inputs, response, (0, 2), share)
        np.testing.assert_allclose(one.signals[[0, 2, 3]], expected, atol=2e-5, rtol=2e-5)


def test_knockout_without_a_source_is_refused():
    _, decoder, inputs = image_then([21])
    prefix = decoder.prefill(inputs, torch.zeros(inputs["input_ids"].shape[1], dtype=torch.bool))
    with pytest.raises(ValueError, match="no source tokens to hide"):
        knockout(decoder, prefix, RESPONSES, (0, 2), 0.5)

"""A padded batch of one is the prompt without its padding, and says where its tokens stand."""

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_maps, eager_signals, inputs_of, noise, prefill, whole
from engines.test_decoder import draw
from zoo import EXTRA_NAMES, NAMES, build

import lookback
from lookback.engines.transformers.decoding.decoder import Decoder

RESPONSES = [[30, 31, 32, 33, 34, 35, 36], [40], [50, 51, 52]]
PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")


def setup(name):
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    return zoo.model, Decoder(zoo.model), dict(inputs_of(lb, noise(), QUESTION))


def padded(inputs, left, right=0):
    """The same prompt with pads; their ids are words, so that looking at them would show."""
    found = dict(inputs)
    for name in PER_TOKEN:
        if name in inputs:
            fill = 21 if name == "input_ids" else 0
            found[name] = torch.nn.functional.pad(inputs[name], (left, right), value=fill)
    return found


@pytest.mark.parametrize("name", NAMES + EXTRA_NAMES)
@pytest.mark.parametrize("pads", [(5, 0), (0, 3)])
def test_pads_change_nothing(name, pads):
    model, decoder, inputs = setup(name)
    prefix = prefill(decoder, padded(inputs, *pads))
    assert prefix.last == int(inputs["input_ids"][0, -1])
    for found, response in zip(decoder.score(prefix, RESPONSES), RESPONSES, strict=True):
        expected = eager_signals(model, inputs, response)
        np.testing.assert_allclose(found.signals, expected, atol=5e-5, rtol=2e-5)
    plain = draw(decoder, prefill(decoder, inputs))
    for a, b in zip(draw(decoder, prefix), plain, strict=True):
        assert a.token_ids == b.token_ids
        np.testing.assert_allclose(a.signals, b.signals, atol=1e-4)


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl"])
@pytest.mark.parametrize("pads", [0, 4])
def test_positions_that_the_prompt_says_go_on(name, pads):
    """Every second position, so that rotary ones, which are relative, show it."""
    model, decoder, inputs = setup(name)
    length = inputs["input_ids"].shape[1]
    positions = 3 + 2 * torch.arange(length)[None]
    response = RESPONSES[0]
    after = positions[:, -1:] + 1 + torch.arange(len(response))
    full = whole(model, inputs, response) | {"position_ids": torch.cat([positions, after], 1)}
    given = torch.nn.functional.pad(positions, (pads, 0))
    if name == "qwen2_5_vl":  # in three dimensions
        full["position_ids"], given = full["position_ids"].expand(3, 1, -1), given.expand(3, 1, -1)
    prefix = prefill(decoder, padded(inputs, pads) | {"position_ids": given})
    found = decoder.score(prefix, [response])[0]
    logits, _ = eager_maps(model, full)
    log_p = logits[length - 1 : -1].log_softmax(-1)
    expected = log_p.gather(-1, torch.tensor(response)[:, None])[:, 0]
    np.testing.assert_allclose(found.signals[0], expected, atol=2e-5)


@pytest.mark.parametrize(
    ("hide", "message"),
    [
        (lambda mask: mask[:, 3:5].zero_(), "hides tokens inside the prompt"),
        (lambda mask: mask.zero_(), "hides the whole prompt"),
        (lambda mask: mask.unsqueeze_(0), "only a mask of padding"),
    ],
)
def test_masks_that_do_more_than_pad_are_refused(hide, message):
    _, decoder, inputs = setup("llava")
    mask = torch.ones_like(inputs["input_ids"])
    hide(mask)
    with pytest.raises(ValueError, match=message):
        prefill(decoder, inputs | {"attention_mask": mask})


def test_pads_that_are_the_source_are_refused():
    _, decoder, inputs = setup("llava")
    source = torch.ones(inputs["input_ids"].shape[1] + 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="padding or source, not both"):
        decoder.prefill(padded(inputs, 2), source)

"""Hiding what a response looks at from every row: against plain passes with a 2-D attention mask.

That is how VAUQ's public script does it (deeplearning-wisc/vauq, lvlm/llava.py).
"""

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_maps, inputs_of, noise, token_signals, whole
from engines.test_knockout import RESPONSES, hidden_pass
from zoo import EXTRA_NAMES, NAMES, build

import lookback
from lookback.engines import UnsupportedModelError
from lookback.engines.transformers.attention.source_weights import HiddenKeys
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.families import image_token_id

SHARE = 0.4
COUNTED_BY_MASK = ["qwen2_5_vl", "qwen2_vl", "qwen3_vl"]
"""They count positions by the 2-D mask: their own code cannot place an image that has holes."""


def core(model, full, prompt, layers, share=SHARE):
    """The vision tokens that a response's rows look at most, as the public script finds them."""
    vision = (full["input_ids"][0] == image_token_id(model.config)).nonzero()[:, 0]
    _, maps = eager_maps(model, full)
    received = sum(m[:, prompt:][..., vision].double().sum((0, 1)) for m in maps[slice(*layers)])
    return vision[received.topk(max(1, int(len(vision) * share))).indices]


def masked_logits(model, full, columns):
    """A plain pass in which those tokens are 0 in the attention mask of the whole sequence."""
    mask = full["attention_mask"].clone()
    mask[0, columns] = 0
    with torch.no_grad():
        return model(**full | {"attention_mask": mask, "use_cache": False}).logits[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_family_equals_a_pass_of_the_whole_with_that_mask(name):
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    layers = lb.decoder.layers // 2, lb.decoder.layers
    settings = {"layers": layers, "share": SHARE}
    found = lb.knockout(noise(), QUESTION, RESPONSES, rows="all", **settings)
    later = lb.knockout(noise(), QUESTION, RESPONSES, rows="response", **settings)
    inputs = inputs_of(lb, noise(), QUESTION)
    prompt, moved = inputs["input_ids"].shape[1], 0.0
    for response, ours, other in zip(RESPONSES, found, later, strict=True):
        full = whole(zoo.model, inputs, response)
        columns = core(zoo.model, full, prompt, layers)
        if name in COUNTED_BY_MASK:
            with pytest.raises(RuntimeError, match="shape mismatch"):
                masked_logits(zoo.model, full, columns)
            logits = hidden_pass(zoo.model, full | {"use_cache": False}, 0, columns)
        else:
            logits = masked_logits(zoo.model, full, columns)
        expected = np.stack(token_signals(logits[prompt - 1 : -1], response))
        got = np.stack([ours.log_prob, ours.self_certainty, ours.entropy])
        np.testing.assert_allclose(got, expected, atol=1e-5, rtol=1e-5)
        moved = max(moved, float(np.abs(ours.entropy - other.entropy).max()))
    assert moved > 1e-5  # it is another thing than to hide them from the response alone


@pytest.fixture(scope="module")
def lb():
    zoo = build("llava")
    return lookback.load(zoo.model, zoo.processor)


def test_llavas_logits_are_the_public_scripts(lb):
    """The whole distribution after the prompt, and log p of what follows."""
    inputs = inputs_of(lb, noise(), QUESTION)
    full, prompt = whole(lb.model, inputs, RESPONSES[0]), inputs["input_ids"].shape[1]
    columns = core(lb.model, full, prompt, (0, 2))
    expected = masked_logits(lb.model, full, columns)[prompt - 1 : -1].float()
    source = inputs["input_ids"][0] == lb.decoder.image_token
    hidden = torch.isin(source.nonzero()[:, 0], columns)
    prefix = Decoder(lb.model).prefill(inputs, source, hidden=hidden)
    torch.testing.assert_close(prefix.logits[0].float(), expected[0], atol=1e-5, rtol=1e-5)
    (found,) = lb.knockout(noise(), QUESTION, RESPONSES[:1], layers=(0, 2), share=SHARE, rows="all")
    chosen = expected.log_softmax(-1)[torch.arange(5), torch.tensor(RESPONSES[0])]
    np.testing.assert_allclose(found.log_prob, chosen, atol=1e-5)


def test_each_response_hides_its_own(lb):
    settings = {"layers": (0, 2), "share": 0.3, "rows": "all"}
    together = lb.knockout(noise(), QUESTION, RESPONSES, **settings)
    for response, one in zip(RESPONSES, together, strict=True):
        (alone,) = lb.knockout(noise(), QUESTION, [response], **settings)
        np.testing.assert_allclose(alone.entropy, one.entropy, atol=1e-6)


def test_all_vision_tokens_can_go(lb):
    """Then A_t is 0, and it is told of response after response."""
    told = []
    found = lb.knockout(
        noise(),
        QUESTION,
        RESPONSES,
        layers=(0, 2),
        share=1.0,
        rows="all",
        progress=lambda *count: told.append(count),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert all((c.visual_lookback == 0).all() for c in found)
    assert all(np.isfinite(c.entropy).all() for c in found)


def test_what_is_kept_of_prompts_stays_as_it_was(lb):
    """A prompt that hides something is none to go on from."""
    settings = {"layers": (0, 2), "share": 0.5}
    expected = lb.knockout(noise(), QUESTION, RESPONSES, rows="all", **settings)
    plain = lb.score(noise(), QUESTION, RESPONSES)
    lb.keep_prefixes(4)
    try:
        for _ in range(2):
            found = lb.knockout(noise(), QUESTION, RESPONSES, rows="all", **settings)
            again = lb.score(noise(), QUESTION, RESPONSES)
            for a, b in zip((*found, *again), (*expected, *plain), strict=True):
                np.testing.assert_allclose(a.entropy, b.entropy, atol=1e-6)
    finally:
        lb.keep_prefixes(0)


def test_other_words_than_the_two_are_named(lb):
    with pytest.raises(ValueError, match="rows = 'question': hide from 'response' or from 'all'"):
        lb.knockout(noise(), QUESTION, RESPONSES, layers=(0, 1), share=0.5, rows="question")


def test_layers_with_a_state_are_refused():
    zoo = build(next(n for n in EXTRA_NAMES if "lfm" in n))
    engine = lookback.load(zoo.model, zoo.processor)
    with pytest.raises(UnsupportedModelError, match="layers that keep a state"):
        engine.knockout(noise(), QUESTION, RESPONSES, layers=(0, 1), share=0.5, rows="all")


def test_a_layer_that_would_show_them_is_refused(lb, monkeypatch):
    """Rather than to give numbers of a pass that hid nothing."""
    monkeypatch.setattr(HiddenKeys, "mask", lambda self, base, **kwargs: base(**kwargs))
    with pytest.raises(UnsupportedModelError, match="shows tokens that were to be hidden"):
        lb.knockout(noise(), QUESTION, RESPONSES, layers=(0, 1), share=0.5, rows="all")


def test_rows_behind_a_window_do_not_vouch_for_those_before(monkeypatch):
    """By its window alone the last row sees nothing of the picture."""
    zoo = build("llava+mistral")
    engine = lookback.load(zoo.model, zoo.processor)
    settings = {"layers": (0, 1), "share": 0.5, "rows": "all"}
    long = "and what is in it, who is it, and where? " * 3
    assert len(engine.knockout(noise(), long, RESPONSES, **settings)) == len(RESPONSES)
    monkeypatch.setattr(HiddenKeys, "mask", lambda self, base, **kwargs: base(**kwargs))
    with pytest.raises(UnsupportedModelError, match="shows tokens that were to be hidden"):
        engine.knockout(noise(), long, RESPONSES, **settings)

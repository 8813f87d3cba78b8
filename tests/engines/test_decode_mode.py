"""Decoders that go on in ways of their own: exact, or refused in one line."""

import copy
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, attention, eager_signals, inputs_of, noise, prefill
from transformers import (
    Blip2Config,
    Blip2ForConditionalGeneration,
    InstructBlipConfig,
    InstructBlipForConditionalGeneration,
)
from zoo import build
from zoo.configs_odd import build_odd, odd_model

import lookback
from lookback.engines.transformers.check import slow_signals
from lookback.engines.transformers.decoding import decode_mode
from lookback.engines.transformers.decoding.decode_mode import (
    PROMPT,
    RESPONSE,
    DecodeMode,
    _distance,
    _tolerances,
    _words,
)
from lookback.engines.transformers.decoding.decoder import Decoder, RotationError
from lookback.engines.transformers.decoding.source_attention import knockout, look
from lookback.signals import SIGNALS

RESPONSES = [[30, 31, 32, 33, 34, 35, 36], [40], [50, 51, 52]]
STATES = ["jamba", "bamba", "granitemoehybrid", "falcon_h1", "zamba2"]


def stack(candidate):
    return np.stack([getattr(candidate, name) for name in SIGNALS])


@pytest.mark.parametrize("name", STATES)
def test_hybrid_decoders_equal_eager_maps(name):
    zoo = build_odd(name)
    lb = lookback.load(zoo.model, zoo.processor)
    inputs = inputs_of(lb, noise(), QUESTION)
    for found, response in zip(lb.score(noise(), QUESTION, RESPONSES), RESPONSES, strict=True):
        expected = eager_signals(zoo.model, inputs, response)
        np.testing.assert_allclose(stack(found), expected, atol=5e-5, rtol=5e-5)


@pytest.mark.parametrize("name", STATES)
def test_what_hybrid_decoders_sample_scores_the_same(name):
    # Zamba2's own step differs from its own pass over several tokens by this much.
    tolerance = 2e-2 if name == "zamba2" else 5e-5
    zoo = build_odd(name)
    lb = lookback.load(zoo.model, zoo.processor)
    drawn = lb.sample(noise(), QUESTION, 4, max_new_tokens=8, seed=3, keep_end=True)
    for a, b in zip(drawn, lb.score(noise(), QUESTION, list(drawn)), strict=True):
        np.testing.assert_allclose(stack(a), stack(b), atol=tolerance, rtol=tolerance)


def test_habits_are_found_by_trying():
    assert Decoder(build_odd("jamba").model).mode == (True, False)
    assert Decoder(build_odd("bamba").model).mode.positions
    assert Decoder(build("llava").model).mode == (False, False)
    assert Decoder(build("paligemma").model).mode == (False, False)  # it counts from 1


def test_trying_leaves_positions_of_a_prompt_alone():
    """Qwen-VL keeps the shift of its positions on itself; somebody's own loop may be at work."""
    model = copy.deepcopy(build("qwen2_5_vl").model)
    keeper = next(m for m in model.modules() if "rope_deltas" in vars(m))
    keeper.rope_deltas = left = torch.tensor([[-7]])
    Decoder(model)
    assert keeper.rope_deltas is left


def test_rounding_is_told_from_another_computation():
    good, bearable = _tolerances(torch.float32)
    rough, rougher = _tolerances(torch.bfloat16)
    assert good < bearable < rough < rougher
    one = torch.tensor([[-1.0, -2.0, -torch.inf]])
    assert _distance(one, one.clone()) == 0
    assert _distance(one, torch.tensor([[-1.0, -2.3, -torch.inf]])) == pytest.approx(0.1)
    for other in ([-1.0, -2.0, -5.0], [-1.0, torch.nan, -torch.inf]):
        assert _distance(one, torch.tensor([other])) > 1e6


def test_what_is_tried_are_plain_words():
    """No token that the config names: a placeholder would ask for an image."""
    model = build("qwen2_5_vl").model
    config = model.config.to_dict() | {"some_token_ids": list(range(100, 300))}
    plain = SimpleNamespace(config=SimpleNamespace(
        to_dict=lambda: config, get_text_config=model.config.get_text_config))  # fmt: skip
    words = _words(plain)
    assert len(set(words)) == PROMPT + RESPONSE
    assert not set(words) & {*range(100, 300), model.config.image_token_id}


def test_a_model_between_rounding_and_wrong_takes_the_nearest_way():
    """In the order of what is cheapest: several tokens per pass, positions by the cache."""
    model, tried = build("llava").model, []
    off = {(False, False): 0.3, (False, True): 0.012, (True, False): 0.015, (True, True): 0.4}

    def attempt(mode, prompt, response):
        tried.append(tuple(mode))
        expected = decode_mode._generated(model, prompt, response)
        return expected + off[tuple(mode)]

    assert decode_mode.detect_decode_mode(model, attempt, DecodeMode()) == (False, True)
    assert tried == list(off)
    off[(True, False)] = 0.0
    assert decode_mode.detect_decode_mode(model, attempt, DecodeMode()) == (True, False)
    off |= dict.fromkeys(off, 0.03)
    with pytest.raises(lookback.UnsupportedModelError, match=r"off by 0\.03"):
        decode_mode.detect_decode_mode(model, attempt, DecodeMode())


class Loses(torch.nn.Module):
    """A layer that keeps something from one pass to the next where no cache knows of it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, hidden_states, *args, past_key_values=None, **kwargs):
        out = self.layer(hidden_states, *args, past_key_values=past_key_values, **kwargs)
        cache = past_key_values
        if cache is not None and type(cache).__name__ == "DynamicCache":
            out = out + 0.5 * out.roll(1, -1)  # as if it knew its own cache class alone
        return out


def test_a_model_that_never_agrees_is_refused_when_it_is_taken_in():
    zoo = build("llava")
    model = copy.deepcopy(zoo.model)
    layers = model.get_decoder().layers
    layers[1] = Loses(layers[1])
    with pytest.raises(lookback.UnsupportedModelError, match="own generation"):
        lookback.load(model, zoo.processor)


def test_a_model_in_training_mode_is_tried_when_it_is_asked():
    zoo = build("llava")
    model = copy.deepcopy(zoo.model).train()
    decoder = Decoder(model)
    model.eval()
    inputs = inputs_of(lookback.load(zoo.model, zoo.processor), noise(), QUESTION)
    found = decoder.score(prefill(decoder, inputs), RESPONSES)[0]
    expected = eager_signals(model, inputs, RESPONSES[0])
    np.testing.assert_allclose(found.signals, expected, atol=1e-5, rtol=1e-5)


def test_trying_is_not_recorded_and_leaves_no_trace():
    """Somebody's own recording goes on around it, and the model is as it was."""
    zoo = build("qwen2_5_vl")
    model = copy.deepcopy(zoo.model)
    plain = lookback.load(zoo.model, zoo.processor)
    inputs = inputs_of(plain, noise(), QUESTION)
    with lookback.record(model, zoo.processor) as recorder:
        lookback.load(model, zoo.processor)
        assert recorder._generations == []
        out = model.generate(**inputs, do_sample=False, max_new_tokens=4)
    found = recorder.candidates(out)[0]
    expected = plain.score(noise(), QUESTION, [found])[0]
    np.testing.assert_allclose(stack(found), stack(expected), atol=1e-5, rtol=1e-5)


def test_masks_of_a_models_own_are_refused():
    """Doge passes its mask by name, and makes it of its values: nothing that can be shared."""
    zoo = build_odd("doge")
    with pytest.raises(lookback.UnsupportedModelError, match="mask of its own"):
        lookback.load(zoo.model, zoo.processor)


def test_masks_of_a_models_own_are_read_where_they_are_whole():
    """Recording needs no sharing: the last row's mask is all there."""
    zoo = build_odd("doge")
    inputs = inputs_of(lookback.load(build("llava").model, zoo.processor), noise(), QUESTION)
    asked = {"do_sample": False, "max_new_tokens": 4, "min_new_tokens": 4}
    told = {"output_attentions": True, "return_dict_in_generate": True}
    with attention(zoo.model, "eager"):
        with lookback.record(zoo.model, zoo.processor) as recorder:
            out = zoo.model.generate(**inputs, **asked)
        maps = zoo.model.generate(**inputs, **asked, **told).attentions
    found = recorder.candidates(out)[0]
    vision = inputs["input_ids"][0] == zoo.model.config.image_token_index
    for t, layers in enumerate(maps):
        seen = torch.cat([vision, torch.zeros(t, dtype=torch.bool)])
        mass = torch.cat([one[0, :, -1, seen].sum(-1) for one in layers]).mean()
        assert found.visual_lookback[t] == pytest.approx(float(mass), abs=1e-5)


def test_a_cache_class_of_a_models_own_is_refused_in_one_line():
    zoo = build_odd("minimax")
    with pytest.raises(lookback.UnsupportedModelError, match="cache of its own") as refused:
        lookback.load(zoo.model, zoo.processor)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (Blip2ForConditionalGeneration, Blip2Config(image_token_index=7)),
        (InstructBlipForConditionalGeneration, InstructBlipConfig(image_token_index=7)),
    ],
)
def test_models_that_cannot_go_on_themselves_are_refused(kind, config):
    with torch.device("meta"):
        model = kind(config).eval()
    with pytest.raises(lookback.UnsupportedModelError, match="takes no past_key_values"):
        Decoder(model)


def ruling_out(tokens, value):
    """LLaVA with tokens that it never says, as Chameleon does it."""
    model = odd_model("falcon_h1")

    def hook(module, args, output):
        output[..., tokens] = value
        return output

    model.lm_head.register_forward_hook(hook)
    return model


@pytest.mark.parametrize("value", [-torch.inf, torch.finfo(torch.float32).min])
def test_tokens_that_a_model_rules_out(value):
    """Token 0, which fills up short responses, is one of them."""
    tokens = [0, 60, 61, 62]
    model = ruling_out(tokens, value)
    zoo = build("llava")
    lb = lookback.load(model, zoo.processor)
    inputs = inputs_of(lb, noise(), QUESTION)
    ids = torch.cat([inputs["input_ids"], torch.tensor([RESPONSES[0]])], 1)
    with torch.no_grad():
        logits = model(**inputs | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}).logits
    rows = logits[0, inputs["input_ids"].shape[1] - 1 : -1].double()
    left = [i for i in range(rows.shape[1]) if i not in tokens]
    log_p = rows[:, left].log_softmax(-1)
    found = lb.score(noise(), QUESTION, RESPONSES)[0]
    at = [left.index(token) for token in RESPONSES[0]]
    np.testing.assert_allclose(found.log_prob, log_p[range(len(at)), at], atol=5e-5)
    np.testing.assert_allclose(found.entropy, -(log_p.exp() * log_p).sum(-1), atol=5e-5)
    certain = -log_p.mean(-1) - np.log(len(left))
    np.testing.assert_allclose(found.self_certainty, certain, atol=5e-5)
    drawn = lb.sample(noise(), QUESTION, 8, temperature=2.0, top_p=1.0, max_new_tokens=8, seed=1)
    assert not {0, 60, 61, 62} & {int(t) for c in drawn for t in c.token_ids}
    with pytest.raises(ValueError, match="token id 61: the model rules this token out"):
        lb.score(noise(), QUESTION, [[30, 61, 31]])


def longrope(length):
    """Phi-3, whose rotary factors change for all positions beyond a length."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [1.0 + 0.5 * i for i in range(8)]}
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, **factors}
    return odd_model(
        "phi3",
        rope_parameters=rope | {"original_max_position_embeddings": length},
        original_max_position_embeddings=length,
    )


@pytest.mark.parametrize("after", [-5, 3, 20])
def test_positions_that_all_turn_at_a_length(after):
    """Exact on either side of it; a prompt before and a response beyond do not fit together."""
    zoo = build("llava")
    inputs = inputs_of(lookback.load(zoo.model, zoo.processor), noise(), QUESTION)
    model = longrope(inputs["input_ids"].shape[1] + after)
    decoder = Decoder(model)
    prefix = prefill(decoder, inputs)
    response = RESPONSES[0]
    if 0 <= after < len(response) - 1:
        with pytest.raises(RotationError, match=r"inv_freq.* shorter"):
            decoder.score(prefix, [response])
        response = response[: after + 1]
    found = decoder.score(prefix, [response])[0]
    expected = eager_signals(model, inputs, response)
    if 0 <= after < len(RESPONSES[0]) - 1:  # the whole pass has one token more: leave it out
        expected = eager_signals(model, inputs, response[:after])[:, :after]
        found = found.cut(after)
    np.testing.assert_allclose(found.signals, expected, atol=5e-5, rtol=5e-5)


LONG = {"short_factor": [1.0] * 8, "long_factor": [1.0 + 0.5 * i for i in range(8)]}


def rotating(name, rope, **changes):
    """A model of the zoo with another kind of rotary positions."""
    model = build(name).model
    config = copy.deepcopy(model.config)
    text = config.get_text_config()
    text.rope_parameters = text.rope_parameters | rope
    for key, value in changes.items():
        setattr(text, key, value)
    made = type(model)(config).eval().requires_grad_(False)
    made.load_state_dict(model.state_dict())
    return made


def picture_prompt(name):
    """A prompt with more vision tokens than positions, where a model counts so; and its source."""
    zoo = build(name)
    inputs = inputs_of(lookback.load(zoo.model, zoo.processor), noise(size=(96, 96)), QUESTION)
    return inputs, inputs["input_ids"][0] == zoo.model.config.image_token_id


def next_position(name, inputs):
    """Where the model places the first token of a response."""
    with torch.no_grad():
        return inputs["input_ids"].shape[1] + int(build(name).model(**inputs).rope_deltas)


def changes_rotation(model, position):
    """Whether frequencies change at a position; those of Qwen2-VL in transformers 5.16 never do."""
    rotary = copy.deepcopy(model.model.language_model.rotary_emb)
    before = rotary.inv_freq.clone()
    rotary(torch.zeros(1), torch.full((3, 1, 1), position))
    return not torch.equal(before, rotary.inv_freq)


@pytest.mark.parametrize("after", [-1, 0, 2, 5, 7])
@pytest.mark.parametrize("name", ["qwen2_vl", "qwen3_vl"])
def test_a_rotation_that_changes_at_a_position_not_at_a_number_of_tokens(name, after):
    """Exact while one rotation holds for prompt and response, else refused in every way."""
    inputs, source = picture_prompt(name)
    switch = next_position(name, inputs) + after
    assert switch < inputs["input_ids"].shape[1]
    rope = {"rope_type": "longrope", "original_max_position_embeddings": switch, **LONG}
    model = rotating(name, rope | {"factor": 8.0})
    decoder, response = Decoder(model), RESPONSES[0]
    prefix = decoder.prefill(inputs, source)
    drawing = {"temperature": 1.0, "top_p": 1.0, "top_k": None, "seed": 1, "end_tokens": []}
    ways = [
        lambda: decoder.score(prefix, [response])[0],
        lambda: decoder.sample(prefix, 2, max_new_tokens=len(response), **drawing)[0],
        lambda: look(decoder, inputs, source, response, (0, decoder.layers)),
        lambda: knockout(decoder, prefix, [response], (0, 1), 0.5),
    ]
    if 0 <= after < len(response) - 1 and changes_rotation(model, switch):
        for way in ways:
            with pytest.raises(RotationError, match="inv_freq"):
                way()
        return
    scored, drawn, looked, _ = (way() for way in ways)
    for found in (scored, drawn):
        slow = slow_signals(model, inputs, source[None], [found.token_ids])[0]
        expected = np.stack([slow[name] for name in SIGNALS])
        np.testing.assert_allclose(found.signals, expected, atol=5e-5, rtol=5e-5)
    np.testing.assert_allclose(looked.sum(1), scored.signals[1], atol=1e-5)


@pytest.mark.parametrize("shift", [0, 5])
def test_frequencies_that_grow_with_positions_that_are_given(shift):
    """Dynamic: where fewer tokens than the model takes stand at later positions."""
    zoo = build("llava")
    inputs = inputs_of(lookback.load(zoo.model, zoo.processor), noise(), QUESTION)
    length, response = inputs["input_ids"].shape[1], RESPONSES[0]
    inputs["position_ids"] = torch.arange(length)[None] + shift
    rope = {"rope_type": "dynamic", "factor": 8.0}
    model = rotating("llava", rope, max_position_embeddings=length + len(response))
    decoder = Decoder(model)
    prefix = prefill(decoder, inputs)
    if shift:
        with pytest.raises(RotationError, match="inv_freq"):
            decoder.score(prefix, [response])
        response = response[:2]
    (found,) = decoder.score(prefix, [response])
    places = torch.arange(length + len(response))[None] + shift
    expected = eager_signals(model, inputs | {"position_ids": places}, response)
    np.testing.assert_allclose(found.signals, expected, atol=5e-5, rtol=5e-5)


def test_frequencies_that_somebodys_longer_prompt_left_are_not_taken_over():
    """Dynamic: the library shrinks them again only for prompts within the trained length."""
    zoo = build("llava")
    inputs = inputs_of(lookback.load(zoo.model, zoo.processor), noise(), QUESTION)
    length = inputs["input_ids"].shape[1]
    places = torch.arange(length)[None]
    inputs["position_ids"] = places + 20
    rope = {"rope_type": "dynamic", "factor": 8.0}
    model = rotating("llava", rope, max_position_embeddings=length + 8)
    decoder, longer = Decoder(model), {**inputs, "position_ids": places + 200}

    def score():
        return decoder.score(prefill(decoder, inputs), [[30]])[0].signals

    alone = score()
    with torch.no_grad():
        left = model(**longer).logits
        np.testing.assert_array_equal(score(), alone)
        assert torch.equal(model(**longer).logits, left)
    with pytest.raises(RotationError):
        decoder.score(prefill(decoder, inputs), [[30, 31]])


FREQUENCIES = torch.arange(3.0)


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (FREQUENCIES, FREQUENCIES, True),
        (FREQUENCIES, FREQUENCIES.clone(), True),
        (FREQUENCIES, FREQUENCIES.to("meta"), True),  # put aside by accelerate
        (None, None, True),
        (FREQUENCIES, FREQUENCIES + 1, False),
        (FREQUENCIES, FREQUENCIES[:2], False),
        (FREQUENCIES, None, False),
        (None, FREQUENCIES, False),
    ],
)
def test_frequencies_that_are_others_than_those_of_the_prompt_are_found(before, now, same):
    module = torch.nn.Module()
    module.register_buffer("inv_freq", now, persistent=False)
    prefix = SimpleNamespace(state={module: {"_buffers": {"inv_freq": before}}}, length=4)
    with nullcontext() if same else pytest.raises(RotationError, match="inv_freq"):
        Decoder._check_rotation(None, prefix, 0, 1)


def test_who_has_ended_does_not_meet_another_rotation():
    """Where a look at what was drawn is dear, steps are taken that nobody needs."""
    inputs, source = picture_prompt("qwen2_vl")
    switch = next_position("qwen2_vl", inputs)
    rope = {"rope_type": "longrope", "original_max_position_embeddings": switch, **LONG}
    decoder = Decoder(rotating("qwen2_vl", rope | {"factor": 8.0}))
    decoder.read_every = 4
    drawn = decoder.sample(
        decoder.prefill(inputs, source), 3, temperature=1.0, top_p=1.0, top_k=None,
        max_new_tokens=9, seed=1, end_tokens=range(decoder.vocab),
    )  # fmt: skip
    assert [(len(one.token_ids), one.finish) for one in drawn] == [(1, "end")] * 3

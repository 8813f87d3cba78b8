"""Every family against eager attention maps: given, sampled and recorded responses."""

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, attention, eager_look, eager_signals, inputs_of, noise
from zoo import (
    EXTRA_NAMES,
    KNOWN,
    MORE_NAMES,
    NAMES,
    ONE_RUN,
    ROUNDING,
    TOLERANCE,
    UNSUPPORTED_NAMES,
    build,
    build_unsupported,
    generate_tolerance,
)

import lookback
from lookback.conversations import Conversation, SourceError
from lookback.families import image_token_id
from lookback.signals import SIGNALS

ALL = NAMES + EXTRA_NAMES + MORE_NAMES
SAMPLING = {"temperature": 1.2, "top_p": 0.9, "max_new_tokens": 12, "seed": 3}


@pytest.fixture(params=ALL)
def zoo(request):
    return build(request.param)


@pytest.fixture
def lb(zoo):
    return lookback.load(zoo.model, zoo.processor)


def stack(candidate):
    return np.stack([getattr(candidate, name) for name in SIGNALS])


def test_scored_signals_equal_those_from_attention_maps(zoo, lb):
    """Ragged responses, so that some are padded; one of a single token."""
    rng = np.random.default_rng(1)
    plain = [i for i in range(10, 250) if i not in lb.prompter.tokenizer.all_special_ids]
    responses = [rng.choice(plain, length).tolist() for length in (9, 1, 4, 17)]
    cands = lb.score(noise(), QUESTION, responses)
    inputs = inputs_of(lb, noise(), QUESTION)
    assert cands.prompt_ids.tolist() == inputs["input_ids"][0].tolist()
    for response, candidate in zip(responses, cands, strict=True):
        assert candidate.token_ids.tolist() == response
        expected = eager_signals(zoo.model, inputs, response)
        np.testing.assert_allclose(stack(candidate), expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert np.ptp(np.concatenate([c.visual_lookback for c in cands])) > 0.01  # not a constant


def test_where_it_looked_equals_attention_maps(zoo, lb):
    """Every token's attention on every vision token; it sums to A_t."""
    response = [30, 31, 45, 33, 90]
    (scored,) = lb.score(noise(), QUESTION, [response])
    found = lb.look(noise(), QUESTION, response)
    np.testing.assert_allclose(found.weights.sum(1), scored.visual_lookback, atol=1e-6, rtol=0)
    inputs, layers = inputs_of(lb, noise(), QUESTION), (0, lb.decoder.layers)
    expected = eager_look(zoo.model, inputs, response, layers)
    np.testing.assert_allclose(found.weights, expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert found.weights.std(0).max() > 1e-3  # rows differ, and so do columns
    assert found.weights.std(1).max() > 1e-3


@pytest.mark.parametrize("source", [None, "image:1"])
def test_several_images_equal_attention_maps(zoo, lb, source):
    """Of two sizes, so that they have not the same number of tokens where that can vary."""
    images = [noise(1), noise(2, (40, 64))]
    if source and zoo.name in ONE_RUN:
        with pytest.raises(SourceError, match="cannot tell the images apart"):
            lb.score(images, QUESTION, [[30, 31, 32]], source=source)
        return
    (found,) = lb.score(images, QUESTION, [[30, 31, 32]], source=source)
    inputs, mask = lb.inputs(Conversation.of(images, QUESTION), source)
    expected = eager_signals(lb.model, inputs, [30, 31, 32], mask)
    np.testing.assert_allclose(stack(found), expected, atol=TOLERANCE, rtol=TOLERANCE)
    look = lb.look(images, QUESTION, [30, 31, 32], source=source)
    assert look.source == int(mask.sum())
    np.testing.assert_allclose(look.weights.sum(1), found.visual_lookback, atol=1e-6, rtol=0)


def test_what_was_sampled_scores_the_same(zoo, lb):
    within = ROUNDING.get(zoo.name, TOLERANCE)
    drawn = lb.sample(noise(), QUESTION, 6, **SAMPLING)
    scored = lb.score(noise(), QUESTION, [c for c in drawn if len(c.signals)])
    for a, b in zip([c for c in drawn if len(c.signals)], scored, strict=True):
        assert a.text == b.text
        np.testing.assert_allclose(stack(a), stack(b), atol=within, rtol=within)


def test_greedy_equals_the_librarys_own_generation(zoo, lb):
    """Tokens, raw logits and maps of generate() itself, which prepares its inputs its own way."""
    tolerance = generate_tolerance(zoo.name)
    best = lb.sample(noise(), QUESTION, 1, temperature=0, max_new_tokens=6, keep_end=True)[0]
    inputs = inputs_of(lb, noise(), QUESTION)
    with attention(zoo.model, "eager"):
        out = zoo.model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=6,
            output_attentions=True,
            output_logits=True,
            return_dict_in_generate=True,
        )
    prompt = inputs["input_ids"].shape[1]
    assert best.token_ids.tolist() == out.sequences[0, prompt:].tolist()
    vision = inputs["input_ids"][0] == image_token_id(zoo.model.config)
    for t, (maps, logits) in enumerate(zip(out.attentions, out.logits, strict=True)):
        log_p = logits[0].double().log_softmax(-1)
        assert best.log_prob[t] == pytest.approx(float(log_p[best.token_ids[t]]), abs=tolerance)
        seen = torch.cat([vision, torch.zeros(t, dtype=torch.bool)])
        # A sliding cache holds the newest keys only, and its maps have no more columns.
        rows = [m[0, :, -1] for m in maps if m is not None]
        mass = torch.cat([row[:, seen[-row.shape[1] :]].sum(-1) for row in rows]).mean()
        assert best.visual_lookback[t] == pytest.approx(float(mass), abs=tolerance)


def test_recorded_generation_equals_scoring(zoo, lb):
    n = 1 if zoo.name == "llama4" else 3  # transformers does not repeat its pixels
    inputs = inputs_of(lb, noise(), QUESTION)
    torch.manual_seed(0)
    with lookback.record(zoo.model, zoo.processor) as rec:
        out = zoo.model.generate(
            **inputs, do_sample=True, temperature=1.3, num_return_sequences=n, max_new_tokens=8
        )
    cands = rec.candidates(out)
    assert len(cands) == n
    kept = [c for c in cands if len(c.signals)]
    for a, b in zip(kept, lb.score(noise(), QUESTION, kept), strict=True):
        np.testing.assert_allclose(stack(a), stack(b), atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("name", KNOWN)
def test_what_cannot_be_asked_yet_gives_no_number(name):
    """When one of these works, it moves among the families."""
    zoo = build(name)
    with pytest.raises((ValueError, lookback.UnsupportedModelError), match=KNOWN[name]):
        lookback.load(zoo.model, zoo.processor).score(noise(), QUESTION, [[11, 12]])


def test_recording_changes_nothing(zoo, lb):
    """A model that asks for its attention by name might take another way under the tap's."""
    inputs = inputs_of(lb, noise(), QUESTION)
    options = {"do_sample": False, "max_new_tokens": 3, "output_logits": True}
    plain = zoo.model.generate(**inputs, **options, return_dict_in_generate=True)
    with lookback.record(zoo.model, zoo.processor):
        seen = zoo.model.generate(**inputs, **options, return_dict_in_generate=True)
    assert seen.sequences.tolist() == plain.sequences.tolist()
    for a, b in zip(seen.logits, plain.logits, strict=True):
        torch.testing.assert_close(a, b, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("name", UNSUPPORTED_NAMES)
def test_what_cannot_be_read_is_refused(name):
    """By name where the config tells, else at the first pass: never a silent number."""
    zoo = build_unsupported(name)
    with pytest.raises(lookback.UnsupportedModelError):
        lookback.load(zoo.model, zoo.processor).score(noise(), QUESTION, [[11, 12]])
    with pytest.raises(lookback.UnsupportedModelError):
        record_generation(zoo)


def record_generation(zoo):
    with lookback.record(zoo.model, zoo.processor):
        inputs = zoo.processor(images=[[noise()]], text=["<image> hi"], return_tensors="pt")
        zoo.model.generate(**inputs, max_new_tokens=2)

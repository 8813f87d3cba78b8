"""`lookback.record` around other people's generate: what it sees, refuses and leaves behind."""

import copy

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, inputs_of, noise
from zoo import build

import lookback
from lookback.conversations import Conversation, SourceError
from lookback.engines.transformers.attention.tap import tapped
from lookback.engines.transformers.support import decoder_configs
from lookback.signals import SIGNALS


@pytest.fixture(scope="module")
def lb():
    zoo = build("qwen2_5_vl")
    return lookback.load(zoo.model, zoo.processor)


@pytest.fixture
def inputs(lb):
    return inputs_of(lb, noise(), QUESTION)


def check(lb, cands, image, question):
    kept = [c for c in cands if len(c.signals)]
    for a, b in zip(kept, lb.score(image, question, kept), strict=True):
        for name in SIGNALS:
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=1e-5, rtol=1e-5)


def test_greedy_and_the_dict_form(lb, inputs):
    with lookback.record(lb) as rec:
        out = lb.model.generate(
            **inputs, do_sample=False, max_new_tokens=5, return_dict_in_generate=True
        )
    cands = rec.candidates(out)
    assert cands.prompt_ids.tolist() == inputs["input_ids"][0].tolist()
    assert QUESTION in cands.question
    assert cands.defaults == {"alpha": 0.5, "lam": 1.25}
    check(lb, cands, noise(), QUESTION)


def test_what_is_generated_is_what_would_have_been(lb, inputs):
    def generate():
        torch.manual_seed(5)
        return lb.model.generate(**inputs, do_sample=True, num_return_sequences=4, max_new_tokens=9)

    plain = generate()
    with lookback.record(lb) as rec:
        recorded = generate()
    assert torch.equal(plain, recorded)
    assert len(rec.candidates(recorded)) == 4


def test_sampling_settings_do_not_touch_the_signals(lb, inputs):
    torch.manual_seed(0)
    with lookback.record(lb) as rec:
        out = lb.model.generate(
            **inputs,
            do_sample=True,
            temperature=2.0,
            top_k=5,
            repetition_penalty=1.5,
            num_return_sequences=3,
            max_new_tokens=7,
        )
    check(lb, rec.candidates(out), noise(), QUESTION)


@pytest.mark.parametrize("name", ["qwen2_5_vl", "llava", "gemma3", "paligemma"])
def test_several_prompts_padded_on_the_left(name):
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    questions, images = (
        [QUESTION, "a much longer question about the picture?"],
        [noise(0), noise(1)],
    )
    asked = [Conversation.of(i, q) for i, q in zip(images, questions, strict=True)]
    inputs = lb.prompter.inputs(asked, [lb.prompter.text(one) for one in asked], lb.model)
    assert (inputs["attention_mask"] == 0).any()
    torch.manual_seed(0)
    with lookback.record(lb) as rec:
        out = lb.model.generate(**inputs, do_sample=True, num_return_sequences=2, max_new_tokens=6)
    with pytest.raises(ValueError, match="given 2 prompts"):
        rec.candidates(out)
    with pytest.raises(IndexError, match="prompt 2"):
        rec.candidates(out, 2)
    for i in (0, 1):
        cands = rec.candidates(out, i)
        alone = inputs_of(lb, images[i], questions[i])["input_ids"][0].tolist()
        assert cands.prompt_ids.tolist() == alone
        check(lb, cands, images[i], questions[i])


def test_a_response_stops_before_its_end_token(lb, inputs):
    with lookback.record(lb) as rec:
        out = lb.model.generate(
            **inputs,
            do_sample=True,
            num_return_sequences=8,
            max_new_tokens=12,
            eos_token_id=list(range(10, 120)),
        )
    cands = rec.candidates(out)
    assert {c.finish for c in cands} >= {"end"}
    assert not any(10 <= t < 120 for c in cands for t in c.token_ids)
    check(lb, cands, noise(), QUESTION)


def test_several_calls_in_one_block(lb, inputs):
    other = inputs_of(lb, noise(7), "who is it?")
    with lookback.record(lb) as rec:
        first = lb.model.generate(**inputs, do_sample=False, max_new_tokens=4)
        second = lb.model.generate(**other, do_sample=False, max_new_tokens=4)
    check(lb, rec.candidates(second), noise(7), "who is it?")
    check(lb, rec.candidates(first), noise(), QUESTION)


def test_a_prompt_in_pieces(lb):
    """Transformers can send a long prompt through the model piece by piece."""
    llava = build("llava")
    other = lookback.load(llava.model, llava.processor)
    inputs = inputs_of(other, None, "a long question without any picture at all, in pieces")
    with lookback.record(other) as rec:
        out = llava.model.generate(
            **inputs, do_sample=False, max_new_tokens=4, prefill_chunk_size=7
        )
    with pytest.raises(lookback.SourceError, match="this prompt has no source"):
        rec.candidates(out)
    cands = rec.candidates(out, source="none")
    assert cands.prompt_ids.tolist() == inputs["input_ids"][0].tolist()
    assert (cands[0].visual_lookback == 0).all()


def test_a_static_cache(lb, inputs):
    with lookback.record(lb) as rec:
        out = lb.model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=5,
            cache_implementation="static",
            disable_compile=True,
        )
    check(lb, rec.candidates(out), noise(), QUESTION)


def test_beams_are_refused(lb, inputs):
    with lookback.record(lb), pytest.raises(ValueError, match="num_beams = 3"):
        lb.model.generate(**inputs, num_beams=3, max_new_tokens=3)


def test_assisted_generation_is_refused(lb, inputs):
    with lookback.record(lb), pytest.raises(ValueError, match="assisted"):
        lb.model.generate(**inputs, prompt_lookup_num_tokens=3, max_new_tokens=3)


def test_foreign_output_is_refused(lb, inputs):
    with lookback.record(lb) as rec:
        out = lb.model.generate(**inputs, do_sample=False, max_new_tokens=4)
    changed = out.clone()
    changed[0, -2] += 1
    for foreign in (changed, out[:, :-1], inputs["input_ids"]):
        with pytest.raises(ValueError, match="not what a recorded"):
            rec.candidates(foreign)


def test_what_is_no_prompt_of_the_call_or_no_source_is_refused(lb, inputs):
    with lookback.record(lb) as rec:
        out = lb.model.generate(**inputs, do_sample=False, max_new_tokens=2)
    assert len(rec.candidates(out, 0)) == 1
    for prompt in (-1, 1):
        with pytest.raises(IndexError, match=f"prompt {prompt}"):
            rec.candidates(out, prompt)
    with pytest.raises(SourceError, match="every vision token"):
        rec.candidates(out, source="image:0")


def test_a_processor_that_is_given_goes_before_the_engines_own(lb, inputs):
    given = copy.deepcopy(lb.processor)
    with lookback.record(lb, given) as rec:
        assert rec.processor is given
    with lookback.record(lb) as rec:
        assert rec.processor is lb.processor


def names(config):
    """The name of the attention function, and whether it is the tap's."""
    return config._attn_implementation, type(config._attn_implementation)


def state(model):
    return (
        [names(c) for c in (model.config, model.config.get_text_config())],
        dict(model._forward_hooks),
        dict(model._forward_pre_hooks),
        "generate" in model.__dict__,
    )


def test_the_model_is_left_as_it_was_also_after_an_error(lb):
    before = state(lb.model)
    with lookback.record(lb):
        assert state(lb.model) != before
    assert state(lb.model) == before
    with pytest.raises(KeyError), lookback.record(lb):
        raise KeyError
    assert state(lb.model) == before


def test_training_mode_is_refused(inputs):
    """Also of a part, whose dropout is at work whatever the whole says, and also once inside."""
    model = copy.deepcopy(build("qwen2_5_vl").model)
    parts = {"": model, "layers.1": model.get_decoder().layers[1]}
    for name, part in parts.items():
        part.train()
        with pytest.raises(ValueError, match=f"{name}.*training"), lookback.record(model):
            pass
        model.eval()
        with lookback.record(model):
            part.train()
            with pytest.raises(ValueError, match=f"{name}.*training"):
                model.generate(**inputs, max_new_tokens=2)
        model.eval()


def test_part_of_a_model_in_training_mode_is_not_scored(lb, monkeypatch):
    monkeypatch.setattr(lb.model.get_decoder().layers[1].self_attn, "training", True)
    with pytest.raises(ValueError, match=r"layers\.1.*training"):
        lb.score(noise(), QUESTION, ["red"])


def test_another_attention_can_be_set_inside(inputs):
    """It is what the calls after it are recorded with, and stays."""
    model = copy.deepcopy(build("qwen2_5_vl").model)
    given = dict(inputs) | {"do_sample": False, "max_new_tokens": 4, "eos_token_id": -1}
    with lookback.record(model) as rec:
        found = [rec.candidates(model.generate(**given))[0]]
        model.set_attn_implementation("eager")
        out = model.generate(**given, output_attentions=True, return_dict_in_generate=True)
        found.append(rec.candidates(out)[0])
        with tapped(decoder_configs(model)):
            model.set_attn_implementation("sdpa")
    assert out.attentions[0][0].ndim == 4
    np.testing.assert_allclose(*(one.visual_lookback for one in found), atol=1e-5)
    assert names(model.config.get_text_config()) == ("sdpa", str)


def test_it_does_not_nest(lb):
    before = state(lb.model)
    with lookback.record(lb):
        with pytest.raises(RuntimeError, match="on already"), lookback.record(lb):
            pass
        assert state(lb.model) != before
    assert state(lb.model) == before


def test_a_pass_that_breaks_off_leaves_nothing_behind(lb, inputs):
    """An error in the middle of the decoder, caught by the caller, who tries again."""
    layer = lb.model.get_decoder().layers[1]

    def fail(*args):
        raise KeyError("broken")

    with lookback.record(lb) as rec:
        hook = layer.register_forward_pre_hook(fail)
        with pytest.raises(KeyError, match="broken"):
            lb.model.generate(**inputs, do_sample=False, max_new_tokens=3)
        hook.remove()
        out = lb.model.generate(**inputs, do_sample=False, max_new_tokens=3)
    check(lb, rec.candidates(out), noise(), QUESTION)


def test_an_engine_at_work_inside_is_not_recorded(lb, inputs):
    with lookback.record(lb) as rec:
        out = lb.model.generate(**inputs, do_sample=False, max_new_tokens=4)
        inside = lb.score(noise(), QUESTION, ["a red circle"])[0]
        again = lb.model.generate(**inputs, do_sample=False, max_new_tokens=4)
    assert torch.equal(out, again)
    assert len(rec._generations) == 2
    outside = lb.score(noise(), QUESTION, ["a red circle"])[0]
    np.testing.assert_allclose(inside.visual_lookback, outside.visual_lookback, atol=1e-6)


def test_overlapping_taps_restore_what_the_first_found(lb):
    before, configs = state(lb.model), decoder_configs(lb.model)
    first, second = tapped(configs), tapped(configs)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert state(lb.model) != before
    second.__exit__(None, None, None)
    assert state(lb.model) == before


def test_without_a_processor_the_text_is_token_ids(lb, inputs):
    with lookback.record(lb.model) as rec:
        out = lb.model.generate(**inputs, do_sample=False, max_new_tokens=3)
    cands = rec.candidates(out)
    assert cands[0].tokens == tuple(f"<{t}>" for t in cands[0].token_ids)
    check(lb, cands, noise(), QUESTION)


def test_the_processor_of_the_folder_the_model_came_from(tmp_path, inputs):
    llava = build("llava")
    llava.model.save_pretrained(tmp_path)
    llava.processor.save_pretrained(tmp_path)
    lb = lookback.load(tmp_path)
    with lookback.record(lb.model) as rec:
        out = lb.model.generate(**inputs_of(lb, noise()), do_sample=False, max_new_tokens=3)
    assert QUESTION in rec.candidates(out).question

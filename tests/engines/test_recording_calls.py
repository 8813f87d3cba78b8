"""`lookback.record` and the ways to call generate: each is recorded right, or refused by name."""

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, attention, eager_signals, inputs_of, noise
from torch import nn
from transformers import DynamicCache, GenerationConfig, StaticCache
from zoo import OLDEST, build
from zoo.images import PilVideo

import lookback
from lookback.conversations import Conversation
from lookback.engines.common.compat import DynamicSlidingWindowLayer
from lookback.signals import SIGNALS

FAMILIES = ["qwen2_5_vl", "llava", "gemma3", "paligemma"]


@pytest.fixture(params=FAMILIES)
def family(request):
    zoo = build(request.param)
    return lookback.load(zoo.model, zoo.processor)


@pytest.fixture
def llava():
    zoo = build("llava")
    return lookback.load(zoo.model, zoo.processor)


def check(lb, cands, inputs, source=None, tolerance=1e-5):
    """Every signal of every candidate against attention maps of the whole sequence."""
    assert cands.prompt_ids.tolist() == inputs["input_ids"][0].tolist()
    for one in cands:
        if len(one.signals):
            expected = eager_signals(lb.model, inputs, one.token_ids.tolist(), source)
            ours = np.stack([getattr(one, name) for name in SIGNALS])
            np.testing.assert_allclose(ours, expected, atol=tolerance, rtol=1e-4)


def test_without_a_cache(family):
    if OLDEST and family.model.config.model_type == "paligemma":
        pytest.skip("without a cache, transformers 5.16 lets PaliGemma's answer look both ways")
    inputs = inputs_of(family, noise())
    with lookback.record(family) as rec:
        out = family.model.generate(
            **inputs, do_sample=False, max_new_tokens=5, use_cache=False, eos_token_id=-1
        )
    cands = rec.candidates(out)
    assert len(cands[0].signals) == 5
    check(family, cands, inputs)


def test_one_token_without_a_cache(llava):
    inputs = inputs_of(llava, noise())
    with lookback.record(llava) as rec:
        out = llava.model.generate(**inputs, max_new_tokens=1, use_cache=False, eos_token_id=-1)
    check(llava, rec.candidates(out), inputs)


@pytest.mark.parametrize("how", [{}, {"use_cache": False}, {"attention_mask": None}])
def test_two_prompts_padded(llava, how):
    """Also where generate is not told of the padding, and finds it by itself."""
    pictures, questions = [noise(0), noise(1)], [QUESTION, "a much longer question, is it not?"]
    asked = [Conversation.of(i, q) for i, q in zip(pictures, questions, strict=True)]
    texts = [llava.prompter.text(one) for one in asked]
    inputs = dict(llava.prompter.inputs(asked, texts, llava.model))
    assert (inputs["attention_mask"] == 0).any()
    with lookback.record(llava) as rec:
        out = llava.model.generate(
            **inputs | how, do_sample=True, num_return_sequences=2, max_new_tokens=4
        )
    for i, picture in enumerate(pictures):
        check(llava, rec.candidates(out, i), inputs_of(llava, picture, questions[i]))


def only(*tokens):
    """A logits processor that lets generate write these tokens, one after another."""
    rest = list(tokens)

    def force(ids, scores):
        forced = torch.full_like(scores, -torch.inf)
        forced[:, rest.pop(0)] = 0.0
        return forced

    return force


def mass_step_by_step(model, inputs, response):
    """A_t from maps, one token per pass: ids in the response stay what they are."""
    columns = (inputs["input_ids"][0] == model.config.image_token_id).nonzero()[:, 0]
    cache, given, found = DynamicCache(config=model.config), inputs, []
    with torch.no_grad(), attention(model, "eager"):
        for token in response:
            out = model(**given, past_key_values=cache, output_attentions=True, use_cache=True)
            maps = torch.cat([one[0, :, -1] for one in out.attentions])
            found.append(float(maps[:, columns].sum(-1).mean()))
            given = {"input_ids": torch.tensor([[token]])}
    return found


def test_a_generated_placeholder_is_not_vision(llava):
    inputs = inputs_of(llava, noise())
    image = llava.model.config.image_token_id
    ids = [30, image, 31, 32]
    with lookback.record(llava) as rec:
        out = llava.model.generate(**inputs, max_new_tokens=4, logits_processor=[only(*ids)])
    (one,) = rec.candidates(out)
    assert one.token_ids.tolist() == ids
    expected = mass_step_by_step(llava.model, inputs, ids)
    np.testing.assert_allclose(one.visual_lookback, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
@pytest.mark.parametrize("kinds", [["video"], ["image", "video"]])
def test_a_video_is_vision(name, kinds, monkeypatch):
    zoo = build(name)
    video = PilVideo(zoo.processor.image_processor)
    monkeypatch.setattr(zoo.processor, "video_processor", video)
    lb = lookback.load(zoo.model, zoo.processor)
    media = {"image": noise(7), "video": [noise(seed // 2) for seed in range(6)]}
    content = [{"type": kind, kind: media[kind]} for kind in kinds]
    content.append({"type": "text", "text": QUESTION})
    asked = Conversation.from_messages([{"role": "user", "content": content}])
    inputs, source = lb.inputs(asked)
    with lookback.record(lb) as rec:
        out = lb.model.generate(**inputs, do_sample=False, max_new_tokens=4, eos_token_id=-1)
    cands = rec.candidates(out)
    assert cands[0].visual_lookback.min() > 0
    placeholders = lb.processor.tokenizer.convert_ids_to_tokens(
        list(lb.prompter.media_tokens.values())
    )
    assert not any(token in cands.question for token in placeholders)
    check(lb, cands, inputs, source)


def test_a_config_by_position(llava):
    inputs = dict(inputs_of(llava, noise()))
    ids = inputs.pop("input_ids")
    config = GenerationConfig(num_return_sequences=3, do_sample=True, max_new_tokens=4)
    with lookback.record(llava) as rec:
        out = llava.model.generate(ids, config, **inputs)
    cands = rec.candidates(out)
    assert len(cands) == 3
    check(llava, cands, inputs | {"input_ids": ids})


def test_settings_that_the_model_has_by_default(llava, monkeypatch):
    """A config that is silent on something leaves it to the model's own."""
    inputs = inputs_of(llava, noise())
    monkeypatch.setattr(llava.model.generation_config, "num_return_sequences", 2)
    monkeypatch.setattr(llava.model.generation_config, "do_sample", True)
    with lookback.record(llava) as rec:
        out = llava.model.generate(**inputs, generation_config=GenerationConfig(max_new_tokens=3))
    assert len(rec.candidates(out)) == len(out) == 2
    monkeypatch.setattr(llava.model.generation_config, "num_beams", 2)
    with lookback.record(llava), pytest.raises(ValueError, match="num_beams = 2"):
        llava.model.generate(**inputs, generation_config=GenerationConfig(max_new_tokens=3))


def filled(lb, inputs, count):
    """A cache that holds the first `count` tokens of a prompt, image included."""
    cache = DynamicCache(config=lb.model.config)
    first = dict(inputs)
    for name in ("input_ids", "attention_mask"):
        first[name] = inputs[name][:, :count]
    with torch.no_grad():
        lb.model(**first, past_key_values=cache, use_cache=True)
    return cache


def test_a_cache_filled_before(llava):
    inputs = inputs_of(llava, noise())
    text = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    cache = filled(llava, inputs, inputs["input_ids"].shape[1] - 3)
    with lookback.record(llava) as rec:
        out = llava.model.generate(
            **text, past_key_values=cache, do_sample=False, max_new_tokens=5, eos_token_id=-1
        )
    check(llava, rec.candidates(out), inputs)


def test_a_cache_of_unknown_tokens_is_refused(llava):
    inputs = inputs_of(llava, noise())
    held = inputs["input_ids"].shape[1] - 3
    new = {"input_ids": inputs["input_ids"][:, held:], "attention_mask": inputs["attention_mask"]}
    cache = filled(llava, inputs, held)
    with lookback.record(llava), pytest.raises(ValueError, match=f"holds {held} tokens already"):
        llava.model.generate(**new, past_key_values=cache, max_new_tokens=3)


class PromptAndWindow(DynamicSlidingWindowLayer):
    """Keeps the prompt and a window: a short cache that does not hold the newest positions."""


@pytest.mark.parametrize("max_new_tokens", [1, 3])
def test_a_cache_of_another_kind_is_refused(llava, max_new_tokens):
    inputs = inputs_of(llava, noise())
    cache = DynamicCache(config=llava.model.config)
    cache.layers = [PromptAndWindow(20) for _ in cache.layers]
    with (
        lookback.record(llava),
        pytest.raises(lookback.UnsupportedModelError, match="PromptAndWindow"),
    ):
        llava.model.generate(**inputs, past_key_values=cache, max_new_tokens=max_new_tokens)


class OwnCache(DynamicCache):
    """May do anything with its layers' keys."""


def test_a_cache_class_of_its_own_is_refused(llava):
    inputs, cache = inputs_of(llava, noise()), OwnCache(config=llava.model.config)
    with lookback.record(llava), pytest.raises(lookback.UnsupportedModelError, match="OwnCache"):
        llava.model.generate(**inputs, past_key_values=cache, max_new_tokens=3)


@pytest.mark.parametrize("kind", [DynamicCache, StaticCache])
def test_windows_shorter_than_the_prompt(kind):
    """Layers that slide hand over the newest positions, with room to spare or without."""
    if OLDEST and kind is StaticCache:
        pytest.skip("transformers 5.16 cannot generate with this cache and Gemma 3")
    zoo = build("gemma3")
    lb = lookback.load(zoo.model, zoo.processor)
    inputs = inputs_of(lb, noise())
    room = {"max_cache_len": inputs["input_ids"].shape[1] + 12} if kind is StaticCache else {}
    cache = kind(config=zoo.model.config, **room)
    assert any(cache.is_sliding)
    assert zoo.model.config.text_config.sliding_window < inputs["input_ids"].shape[1]
    with lookback.record(lb) as rec:
        out = zoo.model.generate(
            **inputs,
            past_key_values=cache,
            do_sample=False,
            max_new_tokens=12,
            eos_token_id=-1,
            disable_compile=True,
        )
    check(lb, rec.candidates(out), inputs)


def test_the_last_piece_of_a_prompt_may_be_one_token(llava):
    inputs = inputs_of(llava, None, "a long question without any picture at all, in pieces")
    length = inputs["input_ids"].shape[1]
    with lookback.record(llava) as rec:
        out = llava.model.generate(
            **inputs, do_sample=False, max_new_tokens=4, prefill_chunk_size=length - 1
        )
    cands = rec.candidates(out, source="none")
    check(llava, cands, inputs)
    assert len(cands[0].token_ids) <= 4


@pytest.mark.parametrize("name", ["llava", "qwen3_vl"])
@pytest.mark.parametrize("how", ["in pieces", "not given"])
def test_vision_tokens_without_pixels_are_refused(name, how):
    """In pieces: generate itself leaves the pixels out, and Qwen's sizes of them in."""
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    inputs, settings = dict(inputs_of(lb, noise())), {"do_sample": False, "max_new_tokens": 2}
    if how == "in pieces":
        settings["prefill_chunk_size"] = 7
    else:
        del inputs["pixel_values"]
    with lookback.record(lb) as rec:
        with pytest.raises(ValueError, match="without pixels"):
            zoo.model.generate(**inputs, **settings)
        out = zoo.model.generate(**inputs_of(lb, noise()), do_sample=False, max_new_tokens=2)
    check(lb, rec.candidates(out), inputs_of(lb, noise()))


def test_guidance_passes_are_not_recorded(llava):
    """Classifier-free guidance runs the model a second time between the passes."""
    inputs = inputs_of(llava, noise())
    with lookback.record(llava) as rec:
        out = llava.model.generate(
            **inputs, do_sample=False, max_new_tokens=4, guidance_scale=1.5, eos_token_id=-1
        )
    check(llava, rec.candidates(out), inputs)


def test_guidance_without_a_cache_is_refused(llava):
    inputs = inputs_of(llava, noise())
    with lookback.record(llava), pytest.raises(ValueError, match="cannot be recorded"):
        llava.model.generate(**inputs, max_new_tokens=4, guidance_scale=1.5, use_cache=False)


def test_the_same_tokens_about_two_images(llava):
    """Two calls may return the same tokens; the object tells which call it was."""
    pictures = [noise(0), noise(1)]
    with lookback.record(llava) as rec:
        outs = [
            llava.model.generate(
                **inputs_of(llava, one), max_new_tokens=2, logits_processor=[only(30, 31)]
            )
            for one in pictures
        ]
    assert torch.equal(*outs)
    for picture, out in zip(pictures, outs, strict=True):
        check(llava, rec.candidates(out), inputs_of(llava, picture))
    with pytest.raises(ValueError, match="2 recorded calls"):
        rec.candidates(outs[0].clone())


def test_the_call_that_ended_last_is_meant_without_a_value(llava):
    with lookback.record(llava) as rec:
        for tokens in ([30, 31], [40, 41]):
            llava.model.generate(
                **inputs_of(llava, noise()), max_new_tokens=2, logits_processor=[only(*tokens)]
            )
    assert rec.candidates()[0].token_ids.tolist() == [40, 41]


def test_a_row_padded_with_its_end_token_ends_at_the_first(llava):
    """Rows that end early are filled up, with what is often an end token itself."""
    inputs, end, other = inputs_of(llava, noise()), 50, 51
    rows = [[30, end, end, end], [31, 32, other, end], [33, 34, 35, 36], [end] * 4]

    def force(ids, scores):
        step = ids.shape[1] - inputs["input_ids"].shape[1]
        forced = torch.full_like(scores, -torch.inf)
        for row, tokens in enumerate(rows):
            forced[row, tokens[step]] = 0.0
        return forced

    with lookback.record(llava) as rec:
        out = llava.model.generate(
            **inputs,
            do_sample=True,
            num_return_sequences=4,
            max_new_tokens=4,
            logits_processor=[force],
            eos_token_id=[end, other],
            pad_token_id=end,
        )
    cands = rec.candidates(out)
    assert [one.token_ids.tolist() for one in cands] == [[30], [31, 32], rows[2], []]
    assert [one.finish for one in cands] == ["end", "end", "length", "end"]
    check(llava, cands, inputs)


def write(rows, prompt):
    """A logits processor that makes each row write its tokens; behind them the first again."""

    def force(ids, scores):
        forced = torch.full_like(scores, -torch.inf)
        for row, tokens in enumerate(rows):
            forced[row, (tokens + tokens[:1] * 9)[ids.shape[1] - prompt]] = 0.0
        return forced

    return force


def ends_with(token):
    """A stopping criterion: each row ends with its first such token."""
    return lambda ids, scores, **_: ids[:, -1] == token


def forced(lb, rows, image=True, **settings):
    """What is recorded of a call that writes these tokens."""
    inputs = inputs_of(lb, noise() if image else None)
    force = write(rows, inputs["input_ids"].shape[1])
    with lookback.record(lb) as rec:
        rec.out = lb.model.generate(
            **inputs,
            do_sample=len(rows) > 1,
            num_return_sequences=len(rows),
            logits_processor=[force],
            **{"max_new_tokens": max(map(len, rows))} | settings,
        )
    found = rec.candidates(rec.out)
    check(lb, found, inputs)
    return [(one.token_ids.tolist(), one.finish) for one in found]


@pytest.mark.parametrize("given", [{"eos_token_id": None}, {}])
def test_without_an_end_token_nothing_ends_a_response(family, given, monkeypatch):
    """Not even the end token of the checkpoint: what counts is what the call itself ends with."""
    end, rows = family.end_tokens[0], [[30, family.end_tokens[0], 31, family.end_tokens[0], 32]]
    if not given:
        monkeypatch.setattr(family.model.config.get_text_config(), "eos_token_id", end)
        monkeypatch.setattr(family.model.generation_config, "eos_token_id", None)
    assert forced(family, rows, **given) == [(rows[0], "length")]


@pytest.mark.parametrize("pad", [40, 50, None])
def test_padding_ids_that_the_model_wrote_are_its_own(llava, pad):
    """Also if padding and end are one token, or no padding is known."""
    end, last = 50, pad or 41
    rows = [[30, 31, last, last], [last, end], [last] * 4, [32, end], [33, last, end]]
    expected = [(rows[0], "length"), ([last], "end"), (rows[2], "length"), ([32], "end"),
                ([33, last], "end")]  # fmt: skip
    if pad == end:
        expected = [([30, 31], "end"), ([], "end"), ([], "end"), ([32], "end"), ([33], "end")]
    assert forced(llava, rows, eos_token_id=end, pad_token_id=pad) == expected


def test_padding_ids_of_a_single_row_are_its_own(llava):
    for ids in ([30, 31, 40, 40], [40]):
        assert forced(llava, [ids], eos_token_id=50, pad_token_id=40) == [(ids, "length")]


def test_a_row_ends_where_a_criterion_ended_it(llava):
    """With its own padding ids before, and padding or (without an end token) more text behind."""
    rows, pad, stop = [[30, 40, 60], [60], [31, 40, 40, 40], [32, 33, 34, 60]], 40, 60
    expected = [(ids, "stop" if stop in ids else "length") for ids in rows]
    for end in (50, None):
        found = forced(
            llava, rows, eos_token_id=end, pad_token_id=pad, stopping_criteria=[ends_with(stop)]
        )
        assert found == expected


def test_a_stop_string_ends_a_single_row(llava):
    word = llava.processor.tokenizer.encode("circle", add_special_tokens=False)[-1]
    text = llava.processor.tokenizer.decode([word])
    ids = [30, word]
    found = forced(
        llava,
        [ids],
        stop_strings=[text],
        tokenizer=llava.processor.tokenizer,
        max_new_tokens=5,
        eos_token_id=50,
    )
    assert found == [(ids, "stop")]


def test_prompts_of_one_call_end_each_in_its_own_place(llava):
    """Two prompts, two sequences each, streamed to nobody; one ends before the others begin."""
    pictures, questions = [noise(0), noise(1)], [QUESTION, "a much longer question, is it not?"]
    asked = [Conversation.of(i, q) for i, q in zip(pictures, questions, strict=True)]
    texts = [llava.prompter.text(one) for one in asked]
    inputs = llava.prompter.inputs(asked, texts, llava.model)
    rows = [[50], [30, 40, 40], [31, 40, 50], [40, 40, 40]]
    with lookback.record(llava) as rec:
        out = llava.model.generate(
            **inputs,
            do_sample=True,
            num_return_sequences=2,
            max_new_tokens=3,
            eos_token_id=50,
            pad_token_id=40,
            logits_processor=[write(rows, inputs["input_ids"].shape[1])],
        )
    found = [one.token_ids.tolist() for i in (0, 1) for one in rec.candidates(out, i)]
    assert found == [[], rows[1], [31, 40], rows[3]]


def test_a_plain_call_inside_a_recorded_one_does_not_end_its_rows(llava):
    """A criterion that itself asks the model something."""
    other = inputs_of(llava, noise(3))

    def ask(ids, scores, **_):
        type(llava.model).generate(llava.model, **other, max_new_tokens=1, do_sample=False)
        return False

    rows = [[30, 31, 40], [32, 50]]
    found = forced(llava, rows, eos_token_id=50, pad_token_id=40, stopping_criteria=[ask])
    assert found == [(rows[0], "length"), ([32], "end")]


def test_continuous_batching_is_refused(llava):
    ids = inputs_of(llava, None)["input_ids"]
    with lookback.record(llava):
        with pytest.raises(ValueError, match="continuous batching"):
            llava.model.generate_batch(ids.tolist(), max_new_tokens=2)
        with pytest.raises(ValueError, match="continuous batching"):
            llava.model.generate(ids, cache_implementation="paged", max_new_tokens=2)
    assert "init_continuous_batching" not in vars(llava.model)


def test_a_compiled_model(llava):
    inputs, compiled = inputs_of(llava, noise()), torch.compile(llava.model, backend="eager")
    with lookback.record(compiled, llava.processor) as rec:
        out = compiled.generate(**inputs, do_sample=False, max_new_tokens=4, eos_token_id=-1)
    check(llava, rec.candidates(out), inputs)
    (found,) = lookback.load(compiled, llava.processor).score(noise(), QUESTION, ["a red circle"])
    (plain,) = llava.score(noise(), QUESTION, ["a red circle"])
    np.testing.assert_array_equal(found.visual_lookback, plain.visual_lookback)


def test_a_model_compiled_in_place(llava, monkeypatch):
    """Its passes are traced, the recorder's bookkeeping around them is not."""
    inputs = inputs_of(llava, noise())
    monkeypatch.setattr(llava.model, "_compiled_call_impl", None)  # put back afterwards
    llava.model.compile(backend="eager")
    with lookback.record(llava) as rec:
        out = llava.model.generate(**inputs, do_sample=False, max_new_tokens=3, eos_token_id=-1)
    monkeypatch.undo()
    torch.compiler.reset()
    check(llava, rec.candidates(out), inputs)


class Tuner(nn.Module):
    """What PEFT calls a LoraModel: it passes on what it does not have."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.model, name)


class Adapted(nn.Module):
    """The shape of a PeftModel."""

    def __init__(self, model, learned_prompt=False):
        super().__init__()
        self.base_model = Tuner(model)
        self.active_peft_config = GenerationConfig(is_prompt_learning=learned_prompt)

    def get_base_model(self):
        return self.base_model.model

    def generate(self, *args, **kwargs):
        return self.base_model.generate(*args, **kwargs)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_with_adapters(llava, compiled):
    adapted = Adapted(llava.model)
    if compiled:
        adapted = torch.compile(adapted, backend="eager")
    inputs = inputs_of(llava, noise())
    with lookback.record(adapted, llava.processor) as rec:
        out = adapted.generate(**inputs, do_sample=False, max_new_tokens=4, eos_token_id=-1)
    check(llava, rec.candidates(out), inputs)
    assert lookback.load(adapted, llava.processor).model is llava.model


def test_a_learned_prompt_is_refused(llava):
    adapted = Adapted(llava.model, learned_prompt=True)
    for take in (lookback.load, lambda *given: lookback.record(*given).__enter__()):
        with pytest.raises(lookback.UnsupportedModelError, match="learned prompt"):
            take(adapted, llava.processor)

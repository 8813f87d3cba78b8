"""Prompts that are kept: the same numbers as without, and fewer tokens through the model."""

import copy
import dataclasses
import functools
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engines.contract import chat
from engines.reference import QUESTION, noise
from zoo import OLDEST, TOLERANCE, build

import lookback
from lookback.conversations import Conversation
from lookback.engines.transformers.decoding import prefix_cache
from lookback.engines.transformers.decoding.prefix_cache import PrefixCache, Prompt, size_of
from lookback.signals import SIGNALS

GOOD = ["embedded", "llava", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "gemma3", "llava_next"]
GOOD += ["idefics3", "internvl", "mistral3", "paddleocr_vl", "glm4v", "aya_vision"]
REFUSED = ["paligemma", "paligemma2", "lfm2_vl", "qwen3_5", "llava+granitemoehybrid"]
QUESTIONS = ["what is in the picture?", "who is it, and where?", "what is it?", "how many dogs"]
RESPONSES = ["a red dog", "two", "yes no blue"]


@pytest.fixture(autouse=True)
def untried():
    """Whatever other tests found out."""
    prefix_cache._SOUND.clear()


def engine(name):
    if name == "embedded":
        return lookback.load()
    zoo = build(name)
    return lookback.load(zoo.model, zoo.processor)


@contextmanager
def counting(lb):
    """How many tokens each pass of the model had. Not by a hook: that would be a change of it."""
    seen, kind = [], type(lb.model)
    forward = kind.forward

    @functools.wraps(forward)
    def counted(model, *args, **kwargs):
        seen.append(kwargs["input_ids"].shape[1])
        return forward(model, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "forward", counted)
        yield seen


def conversation(question=QUESTION):
    return Conversation.of(noise(1), question)


def same(found, expected, tolerance=TOLERANCE):
    for a, b in zip(found, expected, strict=True):
        assert (a.text, a.token_ids.tolist()) == (b.text, b.token_ids.tolist())
        for name in (*SIGNALS, "by_layer"):
            ours, theirs = getattr(a, name), getattr(b, name)
            np.testing.assert_allclose(ours, theirs, atol=tolerance, rtol=1e-4)


def score(lb, question=QUESTION, image=None, responses=RESPONSES, **more):
    image = noise(1) if image is None else image
    return lb.score(image, question, responses, by_layer=True, **more)


def scored(lb, question=QUESTION, **more):
    """What is scored, the tokens of the passes, and those of the prompt."""
    with counting(lb) as seen:
        found = score(lb, question, **more)
    return found, seen, len(found.prompt_ids)


@pytest.mark.parametrize("name", GOOD)
def test_another_question_goes_on_from_the_image(name):
    lb = engine(name)
    plain = [score(lb, question) for question in QUESTIONS]
    kept = lb.keep_prefixes(8)
    counts = []
    for question, expected in zip(QUESTIONS, plain, strict=True):
        found, seen, length = scored(lb, question)
        same(found, expected)
        counts.append((seen[0], length))
    # The first is new, the second goes both ways, the others go on.
    assert [a == b for a, b in counts] == [True, True, False, False]
    assert (kept.new, kept.continued, kept.same) == (2, 2, 0)
    assert prefix_cache._SOUND[lb.model]
    vision = int(np.isin(found.prompt_ids, kept.media).sum())
    for rest, length in counts[2:]:
        assert rest <= length - vision
    assert kept.saved == sum(length - rest for rest, length in counts[2:])
    # What went on can be gone on from, and drawn from.
    drawn = lb.sample(noise(1), QUESTIONS[3], 3, max_new_tokens=6, seed=1, by_layer=True)
    assert kept.same == 1
    lb.keep_prefixes(0)
    same(drawn, lb.sample(noise(1), QUESTIONS[3], 3, max_new_tokens=6, seed=1, by_layer=True))


@pytest.mark.parametrize("name", REFUSED)
def test_where_keys_depend_on_the_question_or_there_are_none_it_is_not_done(name):
    lb = engine(name)
    plain = [score(lb, question) for question in QUESTIONS]
    kept = lb.keep_prefixes(8)
    for question, expected in zip(QUESTIONS, plain, strict=True):
        found, seen, length = scored(lb, question)
        same(found, expected, 0)
        assert seen[0] == length
    assert (kept.new, kept.continued) == (4, 0)
    with counting(lb) as seen:
        same(score(lb, QUESTIONS[0]), plain[0], 0)  # the same prompt is there, states and all
    assert max(seen) < length
    assert kept.same == 1


@pytest.mark.parametrize("name", ["paligemma", "paligemma2"])
def test_a_prompt_that_looks_both_ways_is_found_by_trial_too(name, monkeypatch):
    monkeypatch.setattr(prefix_cache, "BOTH_WAYS", ())
    lb = engine(name)
    plain = [score(lb, question) for question in QUESTIONS]
    kept = lb.keep_prefixes(8)
    for question, expected in zip(QUESTIONS, plain, strict=True):
        same(score(lb, question), expected)
    assert prefix_cache._SOUND[lb.model] is False
    assert kept.continued == 0


def test_the_trial_is_not_made_on_what_cannot_tell(monkeypatch):
    """The same tokens with another source: what looks ahead would look alike."""
    monkeypatch.setattr(prefix_cache, "BOTH_WAYS", ())
    lb = engine("llava")
    lb.keep_prefixes(8)
    images = [noise(1), noise(2)]
    score(lb, image=images)
    score(lb, image=images, source="image:0")
    assert lb.model not in prefix_cache._SOUND


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "gemma3", "idefics3"])
def test_several_images_and_a_marked_source(name):
    lb = engine(name)
    images = [noise(1), noise(2)]
    sources = [None, "image:0", "image:1"]
    plain = {(q, s): score(lb, q, images, source=s) for q in QUESTIONS[:3] for s in sources}
    kept = lb.keep_prefixes(4)
    for (question, source), expected in plain.items():
        same(score(lb, question, images, source=source), expected)
    assert kept.continued >= 4
    assert len(kept) == 4


def test_a_source_in_the_question_goes_the_plain_way():
    lb = engine("llava")

    def ask(question):
        messages = chat(noise(1), question=question)
        messages[-1]["content"][-1]["source"] = True
        given = {"messages": messages, "source": ["image:0", "marked"]}
        return lb.score(**given, responses=RESPONSES, by_layer=True)

    plain = [ask(question) for question in QUESTIONS]
    kept = lb.keep_prefixes(8)
    for question, expected in zip(QUESTIONS, plain, strict=True):
        same(ask(question), expected, 0)
    assert (kept.new, kept.continued) == (4, 0)


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl"])
def test_other_images_are_other_prompts(name):
    lb = engine(name)
    plain = {(q, i): score(lb, q, noise(i)) for q in QUESTIONS[:3] for i in (1, 2)}
    kept = lb.keep_prefixes(8)
    for (question, i), expected in plain.items():
        same(score(lb, question, noise(i)), expected)
    assert (kept.new, kept.continued) == (3, 3)  # one of each image, and the trial
    assert not np.allclose(plain[QUESTION, 1][0].log_prob, plain[QUESTION, 2][0].log_prob)


@pytest.mark.parametrize("name", ["llava", "qwen2_vl"])
def test_an_image_behind_the_common_part_goes_the_plain_way(name):
    lb = engine(name)
    asked = [chat(noise(1), question="who?"), chat(noise(1), noise(2), question="who?")]
    later = [*asked[0], {"role": "assistant", "content": "a dog"}, *asked[0]]
    every = [asked[0], asked[1], later]
    plain = [lb.score(messages=one, responses=RESPONSES, by_layer=True) for one in every]
    kept = lb.keep_prefixes(8)
    for one, expected in zip(every, plain, strict=True):
        same(lb.score(messages=one, responses=RESPONSES, by_layer=True), expected, 0)
    assert (kept.new, kept.continued) == (3, 0)


def test_a_conversation_goes_on_from_its_last_turn():
    lb = engine("qwen2_vl")
    first = chat(noise(1), question="who?")
    more = [*first, {"role": "assistant", "content": "a dog"}, {"role": "user", "content": "no?"}]
    last = [*more, {"role": "assistant", "content": "two"}, {"role": "user", "content": "yes?"}]
    plain = [lb.score(messages=m, responses=["red"], by_layer=True) for m in (first, more, last)]
    kept = lb.keep_prefixes(8)
    for one, expected in zip((first, more, last), plain, strict=True):
        same(lb.score(messages=one, responses=["red"], by_layer=True), expected)
    assert (kept.new, kept.continued) == (2, 1)


def test_the_same_prompt_is_the_same_to_the_last_bit():
    lb = engine("qwen2_vl")
    plain = lb.sample(noise(1), QUESTION, 3, max_new_tokens=6, seed=1, by_layer=True)
    kept = lb.keep_prefixes(1)
    for _ in range(3):
        found = lb.sample(noise(1), QUESTION, 3, max_new_tokens=6, seed=1, by_layer=True)
        for a, b in zip(plain, found, strict=True):
            assert a.token_ids.tolist() == b.token_ids.tolist()
            assert all((getattr(a, s) == getattr(b, s)).all() for s in SIGNALS)
    chosen = {"layers": (0, 1), "share": 0.5}
    hidden = lb.knockout(noise(1), QUESTION, ["red"], **chosen)
    assert (kept.new, kept.same) == (1, 3)
    assert kept.saved == 3 * len(found.prompt_ids)
    lb.keep_prefixes(0)
    again = lb.knockout(noise(1), QUESTION, ["red"], **chosen)
    assert hidden[0].log_prob.tolist() == again[0].log_prob.tolist()


def test_no_more_is_kept_than_is_allowed():
    lb = engine("llava")
    kept = lb.keep_prefixes(3)
    for i in range(6):
        score(lb, image=noise(i))
        assert len(kept) == min(3, i + 1)
    one = kept.bytes // 3
    assert one == size_of(lb.decoder.prefill(*lb.inputs(conversation())))
    score(lb, image=noise(3))  # the oldest of those that are there is used again
    score(lb, image=noise(9))
    score(lb, image=noise(3))
    assert kept.same == 2
    kept = lb.keep_prefixes(9, limit=2 * one)
    for i in range(4):
        score(lb, image=noise(i))
        assert kept.bytes <= 2 * one
    assert len(kept) == 2
    kept = lb.keep_prefixes(9, limit=one - 1)
    score(lb)
    assert len(kept) == 0
    for bad in ({"most": -1}, {"most": 1.5}, {"most": 2, "limit": -1}):
        with pytest.raises(ValueError, match="must be"):
            lb.keep_prefixes(**bad)


def test_who_was_gone_on_from_is_kept_longer():
    lb = engine("llava")
    prefix_cache._SOUND[lb.model] = True
    kept = lb.keep_prefixes(2)
    score(lb, QUESTIONS[0], noise(1))
    score(lb, QUESTIONS[0], noise(2))
    score(lb, QUESTIONS[1], noise(1))
    assert (kept.new, kept.continued) == (2, 1)
    score(lb, QUESTIONS[0], noise(1))
    assert kept.same == 1


def test_a_prompt_is_not_gone_on_from_to_one_that_is_too_long(monkeypatch):
    lb = engine("llava")
    prefix_cache._SOUND[lb.model] = True
    kept = PrefixCache(lb.decoder, [lb.decoder.image_token], 8)
    kept.prefill(*lb.inputs(conversation()))
    inputs, mask = lb.inputs(conversation(QUESTIONS[1]))
    monkeypatch.setattr(lb.decoder, "max_length", len(mask))
    with pytest.raises(ValueError, match=f"{len(mask)} tokens"):
        kept.prefill(inputs, mask)


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "default"])
@pytest.mark.parametrize("nested", [True, False])
def test_rotations_by_length_are_known_of_all_layers_and_of_some(kind, nested, monkeypatch):
    """One kind for all layers, or one for each type of them."""
    lb = engine("gemma3")
    own = {"rope_type": kind}
    kinds = {"sliding_attention": {"rope_type": "default"}, "full_attention": own}
    config = lb.model.config.get_text_config()
    monkeypatch.setattr(config, "rope_parameters", kinds if nested else own)
    assert prefix_cache.can_reuse_prefix(lb.decoder, SimpleNamespace(layers=[])) == (
        kind == "default"
    )


@pytest.mark.parametrize(
    "part", ["keys", "values", "logits", "lookback", "order", "state", "number", "nan"]
)
def test_a_trial_that_differs_anywhere_is_lost(part, monkeypatch):
    lb = engine("qwen2_vl")
    real = prefix_cache.extend_prefix

    def wrong(*args):
        found = real(*args)
        if part in ("keys", "values"):
            layer = found.layers[-1]
            setattr(layer, part, getattr(layer, part) * 1.001)
        elif part == "order":
            found = dataclasses.replace(found, order=found.order.flip(0))
        elif part == "state":
            module = next(m for m, held in found.state.items() if "rope_deltas" in held)
            deltas = found.state[module]["rope_deltas"] + 1
            found.state[module] = found.state[module] | {"rope_deltas": deltas}
        elif part == "number":
            module, name = next(
                (m, k) for m, held in found.state.items() for k, v in held.items() if type(v) is int
            )
            number = found.state[module][name] + 1
            found.state[module] = found.state[module] | {name: number}
        elif part == "nan":
            found = dataclasses.replace(found, logits=found.logits * torch.nan)
        else:
            found = dataclasses.replace(found, **{part: getattr(found, part) * 1.001})
        return found

    monkeypatch.setattr(prefix_cache, "extend_prefix", wrong)
    plain = [score(lb, question) for question in QUESTIONS]
    kept = lb.keep_prefixes(8)
    for question, expected in zip(QUESTIONS, plain, strict=True):
        same(score(lb, question), expected, 0)
    assert prefix_cache._SOUND[lb.model] is False
    assert (kept.new, kept.continued) == (4, 0)


def test_a_trial_that_fails_is_lost(monkeypatch):
    lb = engine("llava")

    def fail(*args):
        raise RuntimeError("this model cannot")

    monkeypatch.setattr(prefix_cache, "extend_prefix", fail)
    kept = lb.keep_prefixes(8)
    for question in QUESTIONS:
        score(lb, question)
    assert (kept.new, kept.continued) == (4, 0)


def prompt(ids, source=(), **more):
    tokens = torch.tensor([ids])
    marks = torch.tensor([i in source for i in range(len(ids))])
    return Prompt.of({"input_ids": tokens, **more}, marks)


IMAGE = 9


class TestPrompt:
    def test_what_is_common(self):
        kept = prompt([1, IMAGE, IMAGE, 2, 3, 4], [1, 2])
        assert prompt([1, IMAGE, IMAGE, 2, 5, 6, 7], [1]).shared_with(kept, [IMAGE]) == 4
        assert prompt([1, IMAGE, IMAGE, 2, 3, 4], [1]).shared_with(kept, [IMAGE]) == 5
        assert prompt([1, IMAGE, IMAGE, 2], [1]).shared_with(kept, [IMAGE]) == 3
        # Not all vision tokens are in it, of this one or of that.
        assert prompt([1, IMAGE, 2, 3], [1]).shared_with(kept, [IMAGE]) == 0
        assert prompt([1, IMAGE, IMAGE, 2, IMAGE, 3]).shared_with(kept, [IMAGE]) == 0
        assert prompt([1, IMAGE, IMAGE]).shared_with(kept, [IMAGE]) == 0
        assert prompt([1, 2, 3]).shared_with(prompt([1, 2, 4]), [IMAGE]) == 0
        # Part of the source is behind it.
        assert prompt([1, IMAGE, IMAGE, 2, 5, 6], [1, 5]).shared_with(kept, [IMAGE]) == 0

    def test_every_input_counts(self):
        pixels, other = torch.zeros(2, 3), torch.zeros(2, 3)
        other[1, 2] = 1e-30
        ids = [1, IMAGE, 2, 3]

        def shared(one, two):
            kept = prompt(ids, **one)
            asked = prompt([*ids[:-1], 7, 8], **two)
            assert not asked.equals(kept)
            return asked.shared_with(kept, [IMAGE])

        assert shared({"pixel_values": pixels}, {"pixel_values": pixels.clone()}) == 3
        for value in (other, pixels.double(), pixels.T, [pixels], None):
            assert shared({"pixel_values": pixels}, {"pixel_values": value}) == 0
        assert shared({"pixel_values": [pixels]}, {"pixel_values": [other]}) == 0
        assert shared({"sizes": [[2, 3]]}, {"sizes": [[2, 3]]}) == 3
        assert shared({"sizes": object}, {"sizes": object}) == 0  # not understood
        assert shared({}, {"more": torch.zeros(1)}) == 0

    def test_what_is_said_of_each_token_counts(self):
        ids = [1, IMAGE, 2, 3]
        kept = prompt(ids, kinds=torch.tensor([[0, 1, 0, 0]]))
        for kinds, shared in (
            ([0, 1, 0, 0, 0], 3),
            ([0, 1, 1, 1, 1], 2),  # they differ from the third on
            ([0, 1, 1, 0, 0], 0),
            ([0, 2, 0, 0, 0], 0),
            ([0, 1, 0, 1, 0], 0),  # what follows is not all of one kind
        ):
            asked = prompt([*ids[:-1], 7, 8], kinds=torch.tensor([kinds]))
            assert asked.shared_with(kept, [IMAGE]) == shared
        same = prompt(ids, kinds=torch.tensor([[0, 1, 0, 1]]))
        assert not same.equals(kept)
        assert prompt(ids, kinds=torch.tensor([[0, 1, 0, 0]])).equals(kept)
        assert not prompt(ids, [1], kinds=torch.tensor([[0, 1, 0, 0]])).equals(kept)

    def test_positions_must_go_on_one_by_one(self):
        ids = [1, IMAGE, 2, 3]

        def places(*rows):
            return {"position_ids": torch.tensor(rows)[:, None]}

        kept = prompt(ids, **places([0, 1, 2, 3], [0, 1, 5, 6]))
        asked = [*ids[:-1], 7, 8]
        good = prompt(asked, **places([0, 1, 2, 3, 4], [0, 1, 5, 6, 7]))
        assert good.shared_with(kept, [IMAGE]) == 3
        for second in ([0, 1, 5, 6, 8], [0, 2, 5, 6, 7]):
            bad = prompt(asked, **places([0, 1, 2, 3, 4], second))
            assert bad.shared_with(kept, [IMAGE]) == 0


def test_nothing_is_kept_unless_asked():
    lb = engine("llava")
    assert lb.prefixes is None
    assert isinstance(lb.keep_prefixes(2), PrefixCache)
    lb.keep_prefixes(0)
    assert lb.prefixes is None


def test_positions_that_a_processor_gives_go_on():
    """They jump behind the image: who counts from elsewhere is found out."""
    lb = engine("llava")
    plain, kept = lb.decoder, PrefixCache(lb.decoder, [lb.decoder.image_token], 8)

    def ask(prefill, question):
        inputs, mask = lb.inputs(conversation(question))
        places = torch.arange(len(mask)) + 7 * (mask.int().cumsum(0) == mask.sum())
        prefix = prefill(inputs | {"position_ids": places[None]}, mask)
        return prefix, plain.score(prefix, [[30, 31, 32, 33], [40, 41]], by_layer=True)

    for question in QUESTIONS:
        (_, expected), (prefix, found) = ask(plain.prefill, question), ask(kept.prefill, question)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.signals, b.signals, atol=1e-5, rtol=1e-4)
        assert prefix.positions.tolist() == [[prefix.length + 7]]
    assert (kept.new, kept.continued) == (2, 2)


@pytest.mark.parametrize("known", [True, False])
def test_a_rotation_by_length_goes_the_plain_way(known, monkeypatch):
    """Known by its name, or found by what it does: questions end on both sides of the switch."""
    if not known:
        monkeypatch.setattr(prefix_cache, "BY_LENGTH", ())
    zoo = build("qwen2_vl")
    config = copy.deepcopy(zoo.model.config)
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    config.text_config.rope_parameters |= rope | {"original_max_position_embeddings": 32}
    model = type(zoo.model)(config).eval().requires_grad_(False)
    model.load_state_dict(zoo.model.state_dict())
    lb = lookback.load(model, zoo.processor)
    questions = ["who?", "what?", "how many dogs are there in it, and what are they doing?", "yes?"]
    plain = [score(lb, question, responses=["a"]) for question in questions]
    kept = lb.keep_prefixes(8)
    for question, expected in zip(questions, plain, strict=True):
        same(score(lb, question, responses=["a"]), expected)
    if not OLDEST:  # transformers 5.16 does not switch here
        assert (kept.new, kept.continued) == ((4, 0) if known else (3, 1))


class Adapter(torch.nn.Module):
    """A low-rank addition to a layer that can be switched off and merged, as PEFT's is."""

    def __init__(self, base):
        super().__init__()
        torch.manual_seed(0)
        self.base_layer = base
        self.lora = torch.nn.ParameterDict(
            {name: 0.1 * torch.randn_like(base.weight) for name in ("one", "two")}
        )
        self._active_adapter = ["one"]
        self._disable_adapters = False
        self.scaling = {"one": 1.0, "two": 1.0}

    def forward(self, x):
        out = self.base_layer(x)
        for name in [] if self._disable_adapters else self._active_adapter:
            out = out + self.scaling[name] * (x @ self.lora[name].T)
        return out


def projection(model):
    return model.get_decoder().layers[0].self_attn.k_proj


def adapted(model):
    model.get_decoder().layers[0].self_attn.k_proj = Adapter(projection(model))


def doubled(model):
    return {name: 2 * value for name, value in model.state_dict().items() if "k_proj" in name}


def numbered(tensor):
    """The same numbers, to be written without a word to torch."""
    return tensor.detach().numpy()


CHANGES = {
    "load_state_dict": lambda m: m.load_state_dict(doubled(m), strict=False),
    "load_state_dict, assign": lambda m: m.load_state_dict(doubled(m), strict=False, assign=True),
    "in place": lambda m: projection(m).weight.mul_(2),
    ".data": lambda m: projection(m).weight.data.mul_(2),
    ".data =": lambda m: setattr(projection(m).weight, "data", 2 * projection(m).weight.data),
    "numpy": lambda m: np.multiply(
        numbered(projection(m).weight), 2, out=numbered(projection(m).weight)
    ),
    "double": lambda m: m.double(),
    "another layer": lambda m: setattr(
        m.get_decoder().layers[0].self_attn, "k_proj", torch.nn.Linear(64, 64, bias=False)
    ),
    "attention": lambda m: m.set_attn_implementation("eager"),
    "a setting": lambda m: setattr(m.get_decoder().layers[0].self_attn, "scaling", 0.5),
    "a config": lambda m: setattr(m.config, "vision_feature_layer", -1),
    "a hook": lambda m: projection(m).register_forward_hook(lambda *args: 2 * args[-1]),
    "a function": lambda m: setattr(projection(m), "forward", lambda x: x + 1),
    "an adapter": adapted,
    "an adapter off": lambda m: setattr(projection(m), "_disable_adapters", True),
    "another adapter": lambda m: projection(m)._active_adapter.__setitem__(0, "two"),
    "an adapter's share": lambda m: projection(m).scaling.__setitem__("one", 2.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_model_is_noticed(change):
    zoo = build("llava")
    model = copy.deepcopy(zoo.model)
    if "adapter" in change and change != "an adapter":
        adapted(model)
    lb = lookback.load(model, zoo.processor)
    kept = lb.keep_prefixes(8)
    before = [score(lb, question) for question in QUESTIONS[:3]]
    assert (kept.new, kept.continued) == (2, 1)
    CHANGES[change](model)
    model.eval()
    found = [score(lb, question) for question in QUESTIONS[:3]]
    assert (kept.new, kept.continued) == (4, 2)  # as the first time, the trial too
    score(lb, QUESTIONS[0])
    assert kept.same == 1
    lb.keep_prefixes(0)
    for one, question, old in zip(found, QUESTIONS, before, strict=False):
        same(one, score(lb, question))
        # Bits for the attention, which computes the same.
        assert change == "attention" or (one[0].log_prob != old[0].log_prob).any()


@pytest.mark.parametrize("name", ["embedded", "qwen2_vl", "gemma3"])
def test_what_is_no_change_of_the_model_drops_nothing(name):
    """Other calls, one's own passes, and numbers written that are the same."""
    lb = engine(name)
    kept = lb.keep_prefixes(8)
    score(lb)
    inputs, _ = lb.inputs(conversation())
    with torch.no_grad():
        lb.model(**inputs)
    lb.model.generate(**inputs, max_new_tokens=3, do_sample=False)
    lb.generate(noise(2), QUESTION, max_new_tokens=2)
    lb.look(noise(1), QUESTION, RESPONSES[0])
    with lookback.record(lb):
        lb.model.generate(**inputs, max_new_tokens=2, do_sample=False)
    score(lb)
    assert (kept.new, kept.same) == (1, 1)

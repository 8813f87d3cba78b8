"""What a prompt leaves on the model belongs to the prompt, and the user's belongs to the user."""

import copy
import threading
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_signals, inputs_of, noise, prefill
from timeouts import HANG_SECONDS, wait_until
from transformers import DynamicCache
from zoo import build
from zoo.configs_odd import build_odd

import lookback
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.decoding.source_attention import knockout

RESPONSES = [[30, 31, 32, 33, 34, 35, 36], [40], [50, 51, 52]]
KEEPING = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"]  # they write on themselves
NAMES = [*KEEPING, "llava", "gemma3", "lfm2_vl"]
SAMPLING = {
    "temperature": 1.2,
    "top_p": 0.9,
    "top_k": None,
    "max_new_tokens": 6,
    "seed": 1,
    "end_tokens": [],
}


def setup(name):
    """A decoder, and three prompts whose positions go on differently: many images, one, none."""
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    prompts = [inputs_of(lb, [noise(i) for i in range(k)] or None, QUESTION) for k in (2, 1, 0)]
    return zoo.model, Decoder(zoo.model), prompts


def assert_exact(model, inputs, found):
    for one, response in zip(found, RESPONSES, strict=True):
        expected = eager_signals(model, inputs, response)
        np.testing.assert_allclose(one.signals, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_prompts_interleaved_equal_each_alone(name):
    model, decoder, prompts = setup(name)
    prefixes = [prefill(decoder, inputs) for inputs in prompts]
    for _ in range(2):
        for inputs, prefix in zip(prompts, prefixes, strict=True):
            assert_exact(model, inputs, decoder.score(prefix, RESPONSES))


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "llava"])
def test_interleaved_draws_and_knockouts_equal_each_alone(name):
    _, decoder, prompts = setup(name)

    def both(prefix):
        drawn = decoder.sample(prefix, 3, **SAMPLING)
        return drawn + knockout(decoder, prefix, RESPONSES, (0, 2), 0.5)

    alone = [both(prefill(decoder, inputs)) for inputs in prompts[:2]]
    prefixes = [prefill(decoder, inputs) for inputs in prompts]
    for expected, prefix in zip(alone, prefixes[:2], strict=True):
        for a, b in zip(expected, both(prefix), strict=True):
            assert a.token_ids == b.token_ids
            np.testing.assert_allclose(a.signals, b.signals, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_without_images_does_not_inherit_positions(name):
    """The user's own pass over images is the last thing that the model saw."""
    model, decoder, (images, _, text) = setup(name)
    with torch.no_grad():
        model(**images)
    assert_exact(model, text, decoder.score(prefill(decoder, text), RESPONSES))


def step(model, cache, token):
    with torch.no_grad():
        ids = torch.tensor([[token]])
        return model(input_ids=ids, past_key_values=cache, use_cache=True).logits


def begin(model, inputs):
    """Somebody's own loop after its first pass."""
    cache = DynamicCache(config=model.config.get_text_config())
    with torch.no_grad():
        model(**inputs, past_key_values=cache, use_cache=True)
    return cache


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fails", [False, True])
def test_somebodys_own_loop_goes_on_as_if_nothing_had_been(name, fails):
    model, decoder, (images, one, text) = setup(name)
    cache = begin(model, images)
    expected = [step(model, cache, token) for token in (30, 31, 32)]
    cache = begin(model, images)
    for token, logits in zip((30, 31, 32), expected, strict=True):
        if fails:  # after the pass that writes on the model
            hook = model.register_forward_hook(lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                prefill(decoder, one)
            hook.remove()
        else:
            decoder.score(prefill(decoder, one), RESPONSES)
            prefill(decoder, text)
        assert torch.equal(step(model, cache, token), logits)


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_plain_answers_leave_somebodys_own_loop_alone(name):
    model, _, (images, *_) = setup(name)
    cache = begin(model, images)
    expected = step(model, cache, 30)
    lb = lookback.load(model, build(name).processor)
    cache = begin(model, images)
    lb.generate(noise(), QUESTION, max_new_tokens=2)
    assert torch.equal(step(model, cache, 30), expected)


def test_threads_with_engines_of_their_own_on_one_model():
    """The model is one: whoever comes second waits, whichever engine he came through."""
    model, _, prompts = setup("qwen2_5_vl")
    expected = [[eager_signals(model, inputs, r) for r in RESPONSES] for inputs in prompts[:2]]
    found, errors = [[], []], []

    def work(i):
        try:
            decoder = Decoder(model)
            for _ in range(5):
                found[i].append(decoder.score(prefill(decoder, prompts[i]), RESPONSES))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for rounds, right in zip(found, expected, strict=True):
        for one in rounds:
            for got, want in zip(one, right, strict=True):
                np.testing.assert_allclose(got.signals, want, atol=2e-5, rtol=2e-5)


class Keeps(torch.nn.Module):
    """Keeps whatever a model may keep on itself."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.register_buffer("frequencies", torch.ones(2), persistent=False)
        self.longest, self.deltas, self.history, self.by_name = 4, None, [], {}
        self.ready = False

    def forward(self, x):
        self.register_buffer("frequencies", x.clone(), persistent=False)
        self.longest += 1
        self.deltas = x
        self.history.append(x)
        self.by_name["x"] = x
        self.late = x
        self.ready = True


def test_whatever_is_kept_is_put_back():
    from lookback.engines.transformers.decoding.session import exclusive, snapshot

    model = torch.nn.Sequential(Keeps())
    keeps, history, frequencies = model[0], model[0].history, model[0].frequencies
    with exclusive(model):
        keeps(torch.zeros(2))
        state = snapshot(model)
    assert keeps.frequencies is frequencies
    assert (keeps.longest, keeps.deltas, keeps.history, keeps.by_name) == (4, None, [], {})
    assert keeps.history is history
    assert not hasattr(keeps, "late")
    assert keeps.ready  # what has been set up stays set up
    with exclusive(model, state):
        assert keeps.longest == 5
        assert keeps.late is keeps.deltas is keeps.history[0] is keeps.by_name["x"]
        assert torch.equal(keeps.frequencies, torch.zeros(2))
        keeps(torch.ones(2))
    with exclusive(model, state):  # the prompt's own has not moved on
        assert keeps.longest == 5
        assert len(keeps.history) == 1
    assert keeps.longest == 4


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([1, 2], [1, 2, 3]),
        ([1, 2, 3], [1, 2]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": 1}, {"a": 2}),
        ((1, 2), (1, 3)),
        (3, 4),
        (None, 4),
        (4, None),
        ([1], None),
    ],
)
def test_data_is_put_back_whatever_became_of_it(before, after):
    from lookback.engines.transformers.decoding.session import exclusive

    module = torch.nn.Module()
    module.kept = before
    copy = before.copy() if isinstance(before, (list, dict)) else before
    with exclusive(module):
        if isinstance(before, list) and isinstance(after, list):
            before[:] = after  # in place, as somebody else may hold it
        elif isinstance(before, dict):
            before.clear()
            before.update(after)
        else:
            module.kept = after
    assert module.kept == copy


@pytest.mark.parametrize(
    ("before", "after"),
    [(False, True), (print, len), ("a", "b"), ({"f": print}, {"f": len}), ([False], [True])],
)
def test_what_has_been_set_up_stays(before, after):
    from lookback.engines.transformers.decoding.session import exclusive

    module = torch.nn.Module()
    module.kept = before
    with exclusive(module):
        module.kept = copy.copy(after)
        module.hook = print
    assert (module.kept, module.hook) == (after, print)


def test_a_prompts_own_list_does_not_move_on_with_the_model():
    """Also where the model had none before: what is put on it is a copy."""
    from lookback.engines.transformers.decoding.session import exclusive, snapshot

    module = torch.nn.Module()
    module.kept = None
    with exclusive(module):
        module.kept, module.late = [1], None
        state = snapshot(module)
    assert module.kept is None
    assert module.late is None  # an attribute without a value is no data
    for _ in range(2):
        with exclusive(module, state):
            assert module.kept == [1]
            module.kept.append(2)


class TestShared:
    """Steps over a model while blocks that share it come and go."""

    def test_a_step_that_outlasts_its_block_keeps_its_turn_and_the_hooks(self):
        from lookback.engines.common.fair_lock import lock_for
        from lookback.engines.transformers.decoding.session import shared, step

        model = torch.nn.Linear(2, 2)
        with ExitStack() as open_step:
            with shared(model):
                open_step.enter_context(step(model))
            hooks = dict(model._forward_hooks)
            assert hooks
            with step(model):
                pass
            assert lock_for(model).mine
            with shared(model):
                assert model._forward_hooks == hooks  # they are on already
            assert model._forward_hooks == hooks
        assert not lock_for(model).mine
        assert not model._forward_hooks
        assert not model._forward_pre_hooks

    def test_what_somebody_put_in_the_place_of_a_step_stays(self):
        from lookback.engines.common.compat import generation_steps
        from lookback.engines.transformers.decoding.session import shared

        used = build("qwen2_vl").model
        model = type(used)(copy.deepcopy(used.config))
        (name, *_) = generation_steps(model)
        with shared(model):
            assert name in vars(model)
        assert name not in vars(model)
        with shared(model):
            setattr(model, name, print)
        assert vars(model)[name] is print


def test_what_another_prompt_left_is_not_seen_by_a_new_one():
    from lookback.engines.transformers.decoding.session import exclusive

    module = torch.nn.Module()
    module.rope_deltas = left = torch.ones(1)
    with exclusive(module):
        assert module.rope_deltas is None
    assert module.rope_deltas is left


@pytest.mark.parametrize("kind", ["", "sliding_attention_"])
def test_frequencies_that_another_prompt_left_are_not_seen_by_a_new_one(kind):
    from lookback.engines.transformers.decoding.session import exclusive

    module = torch.nn.Module()
    short, grown = torch.ones(2), torch.zeros(2)
    module.original_max_seq_len = 8
    setattr(module, f"{kind}original_inv_freq", short)
    setattr(module, f"{kind}max_seq_len_cached", torch.tensor(20))
    module.register_buffer(f"{kind}inv_freq", grown, persistent=False)
    with exclusive(module):
        assert getattr(module, f"{kind}inv_freq") is short
        assert getattr(module, f"{kind}max_seq_len_cached") == 8
    assert getattr(module, f"{kind}inv_freq") is grown
    assert getattr(module, f"{kind}max_seq_len_cached") == 20


def test_a_model_is_borrowed_by_one_thread_at_a_time():
    """Of several models each has its own lock; one thread may borrow again."""
    from lookback.engines.common.fair_lock import lock_for
    from lookback.engines.transformers.decoding.session import exclusive

    one, other = torch.nn.Module(), torch.nn.Module()
    entered = {"same": threading.Event(), "other": threading.Event()}

    def use(model, name):
        with exclusive(model):
            entered[name].set()

    with exclusive(one), exclusive(one):
        threads = [threading.Thread(target=use, args=args) for args in
                   ((one, "same"), (other, "other"))]  # fmt: skip
        for thread in threads:
            thread.start()
        threads[1].join(HANG_SECONDS)
        wait_until(lambda: lock_for(one)._waiting)
        assert entered["other"].is_set()
        assert not entered["same"].is_set()
    threads[0].join(HANG_SECONDS)
    assert entered["same"].is_set()


def test_hooks_that_the_first_pass_sets_up_are_set_up_once():
    """A fresh model: its first pass ever is the engine's."""
    zoo = build_odd("falcon_h1")
    lb = lookback.load(zoo.model, zoo.processor)
    inputs = inputs_of(lb, noise(), QUESTION)
    first, second = (prefill(lb.decoder, inputs).logits for _ in range(2))
    assert torch.equal(first, second)

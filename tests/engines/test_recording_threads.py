"""`lookback.record` and threads: calls do not meet, and the model is left as it was found."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_signals, inputs_of, noise
from timeouts import HANG_SECONDS, wait_until
from transformers import DynamicCache, TextIteratorStreamer
from zoo import OLDEST, build

import lookback
from lookback.engines.common.fair_lock import lock_for
from lookback.signals import SIGNALS

GREEDY = {"do_sample": False, "max_new_tokens": 6, "eos_token_id": None}


def engine(name):
    zoo = build(name)
    return lookback.load(zoo.model, zoo.processor)


@pytest.fixture
def lb():
    return engine("llava")


def check(lb, cands, image):
    for one in cands:
        expected = eager_signals(lb.model, inputs_of(lb, image), one.token_ids.tolist())
        ours = np.stack([getattr(one, name) for name in SIGNALS])
        np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=1e-4)


def state(model):
    return (
        [type(c._attn_implementation) for c in (model.config, model.config.get_text_config())],
        dict(model._forward_hooks),
        dict(model._forward_pre_hooks),
        "generate" in vars(model),
    )


def in_thread(function, *args, **kwargs):
    """What a function returns, or raises, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args, **kwargs).result(timeout=HANG_SECONDS)


class Gate:
    """A streamer that stops its generate after so many tokens, until it is let on."""

    def __init__(self, after=3):
        self.left, self.reached, self.open = after, threading.Event(), threading.Event()

    def put(self, value):
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            assert self.open.wait(HANG_SECONDS)

    def end(self):
        pass


def test_a_streamer_in_a_thread(lb):
    """The usual way to stream: the return value of generate is lost with its thread."""
    before = state(lb.model)
    streamer = TextIteratorStreamer(lb.processor.tokenizer, skip_prompt=True, timeout=HANG_SECONDS)
    with lookback.record(lb) as rec:
        given = inputs_of(lb, noise()) | GREEDY | {"streamer": streamer}
        thread = threading.Thread(target=lb.model.generate, kwargs=given)
        thread.start()
        text = "".join(streamer)
        thread.join()
    assert state(lb.model) == before
    cands = rec.candidates()
    assert len(cands[0].signals) == 6
    assert cands[0].text.strip() == text.strip()
    check(lb, cands, noise())


def test_nothing_recorded_says_so(lb):
    with lookback.record(lb) as rec:
        pass
    with pytest.raises(ValueError, match="call it inside the"):
        rec.candidates()


def test_the_value_of_a_call_in_a_thread(lb):
    with lookback.record(lb) as rec:
        out = in_thread(lb.model.generate, **inputs_of(lb, noise()), **GREEDY)
    check(lb, rec.candidates(out), noise())


def test_two_calls_at_once_in_one_block(lb):
    """One stops in the middle, the other runs from beginning to end meanwhile."""
    gate = Gate()
    with lookback.record(lb) as rec, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(lb.model.generate, **inputs_of(lb, noise(1)), **GREEDY, streamer=gate)
        assert gate.reached.wait(HANG_SECONDS)
        quick = lb.model.generate(**inputs_of(lb, noise(2)), **GREEDY)
        gate.open.set()
        slow = slow.result(HANG_SECONDS)
    check(lb, rec.candidates(slow), noise(1))
    check(lb, rec.candidates(quick), noise(2))


def test_a_block_left_while_a_call_is_at_work(lb):
    """The call goes on, recorded to its end; then the model is as it was."""
    before, gate = state(lb.model), Gate()
    with ThreadPoolExecutor(1) as pool:
        with lookback.record(lb) as rec:
            slow = pool.submit(lb.model.generate, **inputs_of(lb, noise()), **GREEDY, streamer=gate)
            assert gate.reached.wait(HANG_SECONDS)
        assert "generate" not in vars(lb.model)
        with lookback.record(lb) as other:
            quick = lb.model.generate(**inputs_of(lb, noise(2)), **GREEDY)
        gate.open.set()
        slow = slow.result(HANG_SECONDS)
    assert state(lb.model) == before
    check(lb, rec.candidates(slow), noise())
    check(lb, other.candidates(quick), noise(2))
    with pytest.raises(ValueError, match="not what a recorded"):
        rec.candidates(quick)


@pytest.mark.parametrize("names", [("llava", "internvl"), ("internvl", "llava")])
def test_two_threads_with_blocks_on_two_models(names):
    both = [engine(name) for name in names]
    before = [state(one.model) for one in both]
    ready = threading.Barrier(2)

    def work(one, image):
        ready.wait(HANG_SECONDS)
        found = []
        for _ in range(4):
            with lookback.record(one) as rec:
                out = one.model.generate(**inputs_of(one, image), **GREEDY)
            found.append(rec.candidates(out))
        return found

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(work, one, noise(i)) for i, one in enumerate(both)]
        found = [job.result(120) for job in jobs]
    assert [state(one.model) for one in both] == before
    for i, one in enumerate(both):
        for cands in found[i]:
            check(one, cands, noise(i))


def test_blocks_on_two_models_in_one_thread():
    one, other = engine("llava"), engine("internvl")
    before = state(one.model), state(other.model)
    first, second = ExitStack(), ExitStack()
    rec = first.enter_context(lookback.record(one))
    rec2 = second.enter_context(lookback.record(other))
    out = one.model.generate(**inputs_of(one, noise()), **GREEDY)
    first.close()  # in the order of entering
    out2 = other.model.generate(**inputs_of(other, noise()), **GREEDY)
    second.close()
    assert (state(one.model), state(other.model)) == before
    check(one, rec.candidates(out), noise())
    check(other, rec2.candidates(out2), noise())


def test_a_second_block_on_one_model_is_refused_in_any_thread(lb):
    before = state(lb.model)

    def enter():
        with lookback.record(lb.model):
            pass

    with lookback.record(lb) as rec:
        with pytest.raises(RuntimeError, match="on already for this model"):
            in_thread(enter)
        out = lb.model.generate(**inputs_of(lb, noise()), **GREEDY)
    assert state(lb.model) == before
    check(lb, rec.candidates(out), noise())
    in_thread(enter)  # and is free again


def test_what_somebody_put_around_generate_stays(lb, monkeypatch):
    """A generate of the model's own object is called, and one put on inside is not taken off."""
    calls = []

    def before(*args, **kwargs):
        calls.append("before")
        return type(lb.model).generate(lb.model, *args, **kwargs)

    monkeypatch.setattr(lb.model, "generate", before, raising=False)
    inputs = inputs_of(lb, noise())
    with lookback.record(lb) as rec:
        out = lb.model.generate(**inputs, **GREEDY)
        check(lb, rec.candidates(out), noise())
        ours = lb.model.generate
        lb.model.generate = lambda *args, **kwargs: ours(*args, **kwargs)
        around = lb.model.generate
    assert calls == ["before"]
    assert lb.model.generate is around
    late = lb.model.generate(**inputs, **GREEDY)
    assert torch.equal(late, out)
    assert len(rec._generations) == 1


@pytest.mark.parametrize("run", [in_thread, lambda function, *args: function(*args)])
def test_an_engine_is_not_recorded_and_not_disturbed(lb, run):
    """Not even its own generate, nor in the middle of somebody's call."""
    plain = lb.generate(noise(3), QUESTION, max_new_tokens=5)
    alone = lb.score(noise(3), QUESTION, ["a red circle"])[0]
    found = []

    class Asks(Gate):
        def put(self, value):
            self.left -= 1
            if self.left == 0:
                found.append(run(lb.generate, noise(3), [QUESTION]))
                found.append(run(lb.score, noise(3), QUESTION, ["a red circle"])[0])

    with lookback.record(lb) as rec:
        assert run(lambda: lb.generate(noise(3), QUESTION, max_new_tokens=5)) == plain
        out = lb.model.generate(**inputs_of(lb, noise()), **GREEDY, streamer=Asks())
    assert len(rec._generations) == 1
    check(lb, rec.candidates(out), noise())
    np.testing.assert_array_equal(found[1].visual_lookback, alone.visual_lookback)
    assert found[0] == lb.generate(noise(3), [QUESTION])


@pytest.mark.parametrize("entering", [True, False])
def test_hooks_that_come_or_go_during_a_pass(lb, entering):
    """As when another thread opens or leaves a block just then."""
    alone = lb.score(noise(), QUESTION, ["a red circle"])[0]
    block = ExitStack()
    change = block.close if not entering else lambda: block.enter_context(lookback.record(lb))

    def once(*args):
        hook.remove()
        change()

    hook = lb.model.register_forward_pre_hook(once)
    if not entering:
        block.enter_context(lookback.record(lb))
    with block:
        found = lb.score(noise(), QUESTION, ["a red circle"])[0]
    np.testing.assert_array_equal(found.visual_lookback, alone.visual_lookback)


KEEPING = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v", "ernie4_5_vl_moe"]


@pytest.fixture(params=KEEPING)
def keeping(request, monkeypatch):
    """A model that keeps part of a prompt on itself, and reads it in every step of generate."""
    if OLDEST:
        pytest.skip("transformers 5.16 cannot generate without the positions that this leaves out")
    lb = engine(request.param)
    plain = type(lb.model)._update_model_kwargs_for_generation

    def update(self, *args, **kwargs):  # positions are then for the model to find, by itself
        found = plain(self, *args, **kwargs)
        found.pop("position_ids", None)
        return found

    monkeypatch.setattr(type(lb.model), "_update_model_kwargs_for_generation", update)
    return lb


class Relay:
    """Two threads that take steps strictly in turns, until one of them is done."""

    def __init__(self):
        self.turn = [threading.Event(), threading.Event()]
        self.done = False
        self.turn[0].set()

    def hand_on(self, me):
        self.turn[me].clear()
        self.turn[1 - me].set()
        if not self.done:
            assert self.turn[me].wait(HANG_SECONDS)

    def run(self, works):
        """What two functions return that are given a function to call after each step."""

        def work(me):
            assert self.turn[me].wait(HANG_SECONDS)
            try:
                return works[me](lambda *_, **__: self.hand_on(me) or False)
            finally:
                self.done = True
                self.turn[1 - me].set()

        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(work, me) for me in (0, 1)]
            return [job.result(HANG_SECONDS) for job in jobs]


def own_loop(lb, image):
    """Somebody's own decoding, which nobody records: the logits of its steps."""
    inputs = inputs_of(lb, image)

    @torch.no_grad()
    def work(after_step):
        cache, given, found = DynamicCache(config=lb.model.config.get_text_config()), inputs, []
        for token in (30, 31, 32, 33, 34):
            out = lb.model(**given, past_key_values=cache, use_cache=True)
            found.append(out.logits[0, -1].tolist())
            given = {"input_ids": torch.tensor([[token]])}
            after_step()
        return found

    return work


def own_call(lb, image, generate):
    def work(after_step):
        return generate(**inputs_of(lb, image), **GREEDY, stopping_criteria=[after_step])

    return work


def not_at_all(*_, **__):
    return False


@pytest.mark.parametrize("first", [0, 1])
def test_a_recorded_call_and_somebodys_own_loop_step_by_step(keeping, first):
    images = [noise(1, (120, 40)), noise(2)]
    loop = own_loop(keeping, images[1])
    expected = loop(not_at_all)
    with lookback.record(keeping) as rec:
        call = own_call(keeping, images[0], keeping.model.generate)
        works = [call, loop] if first == 0 else [loop, call]
        found = Relay().run(works)
    assert found[1 - first] == expected
    check(keeping, rec.candidates(found[first]), images[0])


def test_two_recorded_calls_step_by_step(keeping):
    images = [noise(1, (120, 40)), noise(2)]
    with lookback.record(keeping) as rec:
        outs = Relay().run([own_call(keeping, one, keeping.model.generate) for one in images])
    for image, out in zip(images, outs, strict=True):
        check(keeping, rec.candidates(out), image)


def test_a_recorded_call_and_one_that_is_not_step_by_step(keeping):
    images = [noise(1, (120, 40)), noise(2)]
    plain = type(keeping.model).generate.__get__(keeping.model)
    expected = own_call(keeping, images[1], plain)(not_at_all)
    with lookback.record(keeping) as rec:
        calls = [
            own_call(keeping, one, generate)
            for one, generate in zip(images, (keeping.model.generate, plain), strict=True)
        ]
        outs = Relay().run(calls)
    assert torch.equal(outs[1], expected)
    check(keeping, rec.candidates(outs[0]), images[0])


@torch.no_grad()
def go_on(lb, cache, tokens=(30, 31)):
    given = (torch.tensor([[token]]) for token in tokens)
    return [lb.model(input_ids=ids, past_key_values=cache).logits.tolist() for ids in given]


def test_somebody_goes_on_after_a_recorded_call(keeping):
    """What a call leaves on the model is there after it, in its own thread."""
    given = inputs_of(keeping, noise(1, (120, 40))) | GREEDY | {"return_dict_in_generate": True}
    other = inputs_of(keeping, noise(2)) | GREEDY
    expected = go_on(keeping, keeping.model.generate(**given).past_key_values)
    keeping.model.generate(**other)
    with lookback.record(keeping):
        out = keeping.model.generate(**given)
        in_thread(keeping.model.generate, **other)
    assert go_on(keeping, out.past_key_values) == expected


def test_somebody_goes_on_while_others_record(keeping):
    """A call that is recorded in another thread leaves his own loop alone."""
    model, cache = keeping.model, DynamicCache(config=keeping.model.config.get_text_config())

    def begin():
        cache = DynamicCache(config=model.config.get_text_config())
        with torch.no_grad():
            model(**inputs_of(keeping, noise(1, (120, 40))), past_key_values=cache)
        return cache

    expected, cache = go_on(keeping, begin()), begin()
    with lookback.record(keeping):
        in_thread(model.generate, **inputs_of(keeping, noise(2)), **GREEDY)
        assert go_on(keeping, cache) == expected


def is_free(model):
    """Whether nobody has the model's turn."""
    free = lock_for(model).acquire(blocking=False)
    if free:
        lock_for(model).release()
    return free


def everything_on(model):
    """All that could have been put on a model and its modules."""
    return [
        (vars(module).keys(), *map(dict, (module._forward_hooks, module._forward_pre_hooks)))
        for module in model.modules()
    ]


def test_nothing_stays_on_a_model_that_no_engine_uses(lb):
    model = copy.deepcopy(lb.model)
    before, inputs = everything_on(model), inputs_of(lb, noise())
    for _ in range(2):
        with lookback.record(model):
            model.generate(**inputs, **GREEDY)
            assert everything_on(model) != before
        assert everything_on(model) == before
    hook = model.register_forward_pre_hook(lambda *_: block.close())
    with ExitStack() as block:  # left in the middle of a pass
        block.enter_context(lookback.record(model))
        model(**inputs)
    hook.remove()
    assert everything_on(model) == before
    assert in_thread(is_free, model)


def test_a_pass_that_waits_while_the_block_ends_goes_on(lb):
    """Its hooks are gone when its turn comes: nobody would give the turn up after it."""
    model, inputs = copy.deepcopy(lb.model), inputs_of(lb, noise())
    turns, block = lock_for(model), ExitStack()
    block.enter_context(lookback.record(model))
    with ThreadPoolExecutor(1) as pool, turns:
        job = pool.submit(torch.no_grad()(model), **inputs)
        wait_until(lambda: turns._waiting)
        block.close()
    job.result(HANG_SECONDS)
    assert is_free(model)


def test_a_pass_that_fails_gives_up_its_turn(lb):
    for part in (lb.model, lb.model.get_decoder()):
        with pytest.raises(ValueError, match="input_ids"):
            part()
    assert in_thread(is_free, lb.model)


def test_inner_models_take_turns_too(lb):
    decoder, done = lb.model.get_decoder(), []
    with lock_for(lb.model):
        thread = threading.Thread(
            target=lambda: done.append(decoder(input_ids=torch.ones(1, 2).long()))
        )
        thread.start()
        wait_until(lambda: lock_for(lb.model)._waiting)
        assert not done
    thread.join(HANG_SECONDS)
    assert done


def test_a_copy_of_a_model_in_use_is_its_own():
    """Also the methods that were put on it."""
    lb = engine("qwen2_vl")
    inputs, other = inputs_of(lb, noise()), copy.deepcopy(lb.model)
    expected = lb.model.generate(**inputs, **GREEDY)
    with lock_for(lb.model):
        assert torch.equal(in_thread(other.generate, **inputs, **GREEDY), expected)
    methods = [value for value in vars(other).values() if hasattr(value, "__self__")]
    assert methods
    assert all(method.__self__ is other for method in methods)

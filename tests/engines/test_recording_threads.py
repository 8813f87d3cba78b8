"""`lookback.record` and threads: calls do not meet, and the model is left as it was found."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_signals, inputs_of, noise
from transformers import TextIteratorStreamer
from zoo import build

import lookback
from lookback.signals import SIGNALS

GREEDY = {"do_sample": False, "max_new_tokens": 6, "eos_token_id": -1}


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
        [c._attn_implementation for c in (model.config, model.config.get_text_config())],
        dict(model._forward_hooks),
        dict(model._forward_pre_hooks),
        "generate" in vars(model),
    )


def in_thread(function, *args, **kwargs):
    """What a function returns, or raises, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args, **kwargs).result(timeout=60)


class Gate:
    """A streamer that stops its generate after so many tokens, until it is let on."""

    def __init__(self, after=3):
        self.left, self.reached, self.open = after, threading.Event(), threading.Event()

    def put(self, value):
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            assert self.open.wait(60)

    def end(self):
        pass


def test_a_streamer_in_a_thread(lb):
    """The usual way to stream: the return value of generate is lost with its thread."""
    before = state(lb.model)
    streamer = TextIteratorStreamer(lb.processor.tokenizer, skip_prompt=True, timeout=60)
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
        assert gate.reached.wait(60)
        quick = lb.model.generate(**inputs_of(lb, noise(2)), **GREEDY)
        gate.open.set()
        slow = slow.result(60)
    check(lb, rec.candidates(slow), noise(1))
    check(lb, rec.candidates(quick), noise(2))


def test_a_block_left_while_a_call_is_at_work(lb):
    """The call goes on, recorded to its end; then the model is as it was."""
    before, gate = state(lb.model), Gate()
    with ThreadPoolExecutor(1) as pool:
        with lookback.record(lb) as rec:
            slow = pool.submit(lb.model.generate, **inputs_of(lb, noise()), **GREEDY, streamer=gate)
            assert gate.reached.wait(60)
        assert "generate" not in vars(lb.model)
        with lookback.record(lb) as other:
            quick = lb.model.generate(**inputs_of(lb, noise(2)), **GREEDY)
        gate.open.set()
        slow = slow.result(60)
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
        ready.wait(60)
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

"""Threads that share one model: each gets what it gets alone, and none waits for another's end."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakKeyDictionary

import pytest
import torch
from engines.reference import QUESTION, inputs_of, noise
from timeouts import HANG_SECONDS, wait_until
from transformers import DynamicCache
from zoo import build

import lookback
from lookback.engines.common import fair_lock as turns_file
from lookback.engines.common.fair_lock import FairLock, lock_for
from lookback.engines.transformers.decoding.session import ModelSession, snapshot
from lookback.signals import SIGNALS


def engine(name):
    if name == "embedded":
        return lookback.load()
    zoo = build(name)
    return lookback.load(zoo.model, zoo.processor)


@pytest.fixture(autouse=True)
def every_step(monkeypatch):
    """Turns of one step each."""
    monkeypatch.setattr(turns_file, "LEAST", 0.0)
    monkeypatch.setattr(turns_file, "_LOCKS", WeakKeyDictionary())


def take(turns, log):
    with turns:
        log.append(True)


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


class WatchedLock:
    """A lock that tells whether it is waited for: from then on Ctrl-C comes where it is heard."""

    def __init__(self):
        self.lock, self.awaited = turns_file._closed(), False

    def acquire(self):
        self.awaited = True
        return self.lock.acquire()

    def release(self):
        self.lock.release()


class Crowd:
    """Threads that begin in a known order, each when the one before it waits for its turn."""

    def __init__(self, turns):
        self.turns, self.log, self.threads = turns, [], []

    def add(self, work):
        before = len(self.turns._waiting)
        thread = threading.Thread(target=work, daemon=True)  # if its turn never comes, pytest ends
        thread.start()
        self.threads.append(thread)
        wait_until(lambda: len(self.turns._waiting) > before)

    def join(self):
        for thread in self.threads:
            thread.join(HANG_SECONDS)
            assert not thread.is_alive()


class InterruptedLock:
    """The lock of a ticket whose thread is interrupted at the moment the turn is granted."""

    def __init__(self):
        self.granted = threading.Event()

    def release(self):
        self.granted.set()

    def acquire(self):
        assert self.granted.wait(HANG_SECONDS)
        raise KeyboardInterrupt


def interrupted_ticket(interrupted):
    """Tickets as they are, but for one thread that is interrupted."""
    real = turns_file._Ticket

    def make(thread, depth):
        ticket = real(thread, depth)
        if thread == interrupted:
            ticket.granted = InterruptedLock()
        return ticket

    return make


class TestTurns:
    def test_first_come_first_served(self):
        turns = FairLock()
        crowd = Crowd(turns)

        def work(name):
            with turns:
                crowd.log.append(name)

        with turns:
            for name in "abcde":
                crowd.add(lambda name=name: work(name))
        crowd.join()
        assert crowd.log == list("abcde")
        assert not turns.wanted

    def test_who_offers_comes_after_those_that_wait(self):
        turns = FairLock()
        crowd = Crowd(turns)

        def work(name):
            with turns, turns:  # however often it is held
                for step in range(3):
                    crowd.log.append(f"{name}{step}")
                    turns.offer()

        with turns:
            for name in "abc":
                crowd.add(lambda name=name: work(name))
        crowd.join()
        assert crowd.log == [f"{name}{step}" for step in range(3) for name in "abc"]
        assert turns.acquire(blocking=False)
        turns.release()

    def test_nobody_else_can_take_or_give_up_what_is_held(self):
        turns = FairLock()
        with turns, ThreadPoolExecutor(1) as pool:
            assert turns.acquire()
            turns.release()
            turns.offer()  # to nobody
            assert not pool.submit(turns.acquire, blocking=False).result(HANG_SECONDS)
            with pytest.raises(RuntimeError, match="does not hold it"):
                pool.submit(turns.release).result(HANG_SECONDS)
            pool.submit(turns.offer).result(HANG_SECONDS)  # has nothing to offer
        with pytest.raises(RuntimeError, match="does not hold it"):
            turns.release()

    @pytest.mark.parametrize("how", ["acquire", "offer"])
    def test_ctrl_c_while_it_waits_leaves_the_others_right(self, how, monkeypatch):
        turns, ticket = FairLock(), turns_file._Ticket
        monkeypatch.setattr(turns_file, "_Ticket", lambda *who: ticket(*who, WatchedLock()))
        inside, leave, done = threading.Event(), threading.Event(), []

        def hold():
            with turns:
                inside.set()
                assert leave.wait(HANG_SECONDS)

        def awaited():
            return [one.thread for one in list(turns._waiting) if one.granted.awaited]

        def interrupt():
            wait_until(lambda: inside.is_set() and main in awaited())
            last = threading.Thread(target=take, args=(turns, done))
            last.start()
            wait_until(lambda: len(awaited()) == 2)
            os.kill(os.getpid(), signal.SIGINT)

        main = threading.get_ident()

        holder, killer = threading.Thread(target=hold), threading.Thread(target=interrupt)
        if how == "acquire":
            holder.start()
            assert inside.wait(HANG_SECONDS)
            killer.start()
            with pytest.raises(KeyboardInterrupt):
                turns.acquire()
        else:
            turns.acquire()
            with turns:
                holder.start()
                wait_until(lambda: turns._waiting)
                killer.start()
                with pytest.raises(KeyboardInterrupt):
                    turns.offer()
            turns.release()
        leave.set()
        for thread in (holder, killer):
            thread.join(HANG_SECONDS)
        wait_until(lambda: len(done) == 1)
        assert not turns._lost
        assert turns.acquire(blocking=False)  # nobody has it, nobody waits
        turns.release()

    @pytest.mark.parametrize("depth", [0, 2])
    def test_ctrl_c_as_the_turn_is_granted_hands_it_on(self, depth, monkeypatch):
        """It waits for its first turn, or to have it back (held twice) after it offered it."""
        turns, log = FairLock(), []
        crowd = Crowd(turns)
        monkeypatch.setattr(turns_file, "_Ticket", interrupted_ticket(threading.get_ident()))

        def hold():
            with turns:
                wait_until(lambda: turns._waiting)
                crowd.add(lambda: take(turns, log))  # behind the one that is interrupted

        holder = threading.Thread(target=hold)
        for _ in range(depth):
            turns.acquire()
        holder.start()
        wait_until(lambda: turns._waiting or turns._holder == holder.ident)
        with pytest.raises(KeyboardInterrupt):
            turns.offer() if depth else turns.acquire()
        holder.join(HANG_SECONDS)
        crowd.join()
        assert log == [True]
        for _ in range(depth):
            turns.release()
        with pytest.raises(RuntimeError, match="does not hold it"):
            turns.release()
        assert turns.acquire(blocking=False)
        turns.release()

    def test_a_turn_lasts_for_a_while(self, monkeypatch):
        clock = Clock()
        monkeypatch.setattr(turns_file, "time", clock)
        turns, log = FairLock(least=2.0), []
        with turns:
            thread = threading.Thread(target=take, args=(turns, log))
            thread.start()
            wait_until(lambda: turns._waiting)
            assert not turns.wanted
            clock.now += 1.75
            assert not turns.wanted
            clock.now += 0.25  # just long enough
            assert turns.wanted
            turns.offer()
            assert log
            assert turns._since == clock.now
        thread.join(HANG_SECONDS)
        assert turns_file.FairLock(0.5).least == 0.5

    def test_each_model_has_its_own(self):
        one, other = torch.nn.Module(), torch.nn.Module()
        assert lock_for(one) is lock_for(one)
        assert lock_for(one) is not lock_for(other)


class TestSession:
    def test_others_find_the_model_as_it_was_and_it_goes_on_as_it_had_become(self):
        model = torch.nn.Module()
        model.rope_deltas, model.length = torch.tensor(1), 5
        left, seen = snapshot(model), []
        turns = lock_for(model)
        entered = []

        def other():
            with turns:
                seen.append(snapshot(model))

        class Around:
            def __enter__(self):
                entered.append("in")

            def __exit__(self, *error):
                entered.append("out")

        with ModelSession(model, {model: {"rope_deltas": torch.tensor(2)}}, Around) as session:
            model.length = 9
            own = snapshot(model)
            session.yield_turn()  # to nobody
            assert entered == ["in"]
            thread = threading.Thread(target=other)
            thread.start()
            wait_until(lambda: turns._waiting)
            session.yield_turn()
            assert snapshot(model) == own
            assert entered == ["in", "out", "in"]
        assert seen == [left]
        assert snapshot(model) == left
        assert entered == ["in", "out", "in", "out"]

    def test_a_session_inside_another_is_not_interrupted(self):
        model = torch.nn.Module()
        turns, seen = lock_for(model), []
        with ModelSession(model), ModelSession(model) as inner:
            thread = threading.Thread(target=take, args=(turns, seen))
            thread.start()
            wait_until(lambda: turns._waiting)
            inner.yield_turn()
            assert not seen
        thread.join(HANG_SECONDS)
        assert seen == [True]


class TestForkedProcess:
    """What `after_fork` does in the child: of the parent's threads this one alone is there."""

    def test_a_turn_that_another_thread_had_is_free_and_the_model_as_it_was(self):
        model = torch.nn.Module()
        model.rope_deltas = left = torch.tensor(1)
        turns, leave = lock_for(model), threading.Event()

        def hold():
            with (
                ModelSession(model, {model: {"rope_deltas": torch.tensor(2)}}),
                ModelSession(model),
            ):
                assert leave.wait(HANG_SECONDS)

        holder = threading.Thread(target=hold)
        holder.start()
        wait_until(lambda: turns.lent == 2)
        crowd = Crowd(turns)
        crowd.add(turns.acquire)
        waiting, lock, held = list(turns._waiting), turns._mutex, dict(vars(turns))
        lock.acquire()  # a thread of the parent was at it
        try:
            turns._lost[threading.get_ident()] = 1  # of a thread that had the same number
            turns.after_fork()
            assert not turns._mutex.locked()
            assert model.rope_deltas is left
            assert (turns.lent, turns.mine, turns.wanted) == (0, False, False)
            with pytest.raises(RuntimeError, match="does not hold it"):
                turns.release()
            with ModelSession(model) as session:
                session.yield_turn()
                assert turns.lent == 1
            assert turns.acquire(blocking=False)
            turns.release()
        finally:
            lock.release()
            vars(turns).update(held)
            turns._waiting.extend(waiting)
            leave.set()
        holder.join(HANG_SECONDS)
        crowd.join()

    def test_a_turn_that_this_thread_has_goes_on(self):
        model = torch.nn.Module()
        turns = lock_for(model)
        with ModelSession(model):
            model.length = 5
            turns.after_fork()
            assert turns.mine
            assert turns.lent == 1
            assert model.length == 5
        assert not hasattr(model, "length")
        assert turns.acquire(blocking=False)
        turns.release()


def numbers(found):
    if isinstance(found, list):
        return found
    if hasattr(found, "weights"):
        return found.weights.tolist()
    return [(c.token_ids.tolist(), *(getattr(c, s).tolist() for s in SIGNALS)) for c in found]


def tasks(lb):
    """Work of every kind, on several prompts."""
    draw = {"max_new_tokens": 9, "temperature": 1.1}
    long = ["red dog two cats on a table", "blue", "two"]
    return {
        "sample": lambda: lb.sample(noise(1), QUESTION, 3, **draw, seed=1),
        "another": lambda: lb.sample(noise(2), "who?", 5, **draw, seed=2),
        "score": lambda: lb.score(noise(3), "what is it?", long),
        "look": lambda: lb.look(noise(4), QUESTION, long[0]),
        "generate": lambda: lb.generate(noise(5), QUESTION, max_new_tokens=9),
        "chance": lambda: lb.generate(noise(5), "?", max_new_tokens=9, temperature=1.3, seed=3),
    }


@pytest.fixture
def small_pieces(monkeypatch):
    """Responses that are scored token by token."""

    def make(lb):
        monkeypatch.setattr(lb.decoder, "batch_rows", 1)

    return make


MODELS = ["embedded", "qwen2_vl", "gemma3", "llava", "lfm2_vl", "qwen3_5", "llava+granitemoehybrid"]


@pytest.mark.parametrize("name", MODELS)
def test_each_gets_what_it_gets_alone(name, small_pieces):
    lb = engine(name)
    small_pieces(lb)
    work = tasks(lb)
    if name in ("embedded", "qwen2_vl", "gemma3", "llava"):  # others cannot go back by a token
        chosen = {"layers": (0, 1), "share": 0.5}
        work["knockout"] = lambda: lb.knockout(noise(6), QUESTION, ["red", "two"], **chosen)
    alone = {task: numbers(run()) for task, run in work.items()}
    rng, left = torch.random.get_rng_state(), snapshot(lb.model)
    switches = count_switches(lb)
    with ThreadPoolExecutor(len(work)) as pool, lb.lock:
        found = {task: pool.submit(run) for task, run in work.items()}
        wait_until(lambda: len(lb.lock._waiting) == len(work))
        lb.lock.offer()
        lb.lock.offer()
    found = {task: numbers(one.result(HANG_SECONDS)) for task, one in found.items()}
    assert found == alone  # to the last bit
    assert torch.equal(rng, torch.random.get_rng_state())
    assert_same_state(snapshot(lb.model), left)
    assert len(switches) > 3 * len(work)
    assert not lb.lock.wanted


def assert_same_state(found, left):
    for module, values in left.items():
        assert found[module].keys() == values.keys()
        tensors = {k: v for k, v in values.items() if isinstance(v, torch.Tensor)}
        assert all(torch.equal(found[module][k], v) for k, v in tensors.items())


def count_switches(lb):
    """A list that grows whenever the turn is handed on."""
    seen, real = [], lb.lock._hand_on

    def hand_on():
        seen.append(1)
        real()

    lb.lock._hand_on = hand_on
    return seen


def test_three_at_work_take_steps_in_turn():
    lb = engine("llava")
    log, lock = [], lb.lock

    def draw(i):
        return lb.sample(
            noise(i), QUESTION, 2, max_new_tokens=12, seed=i, stop=None,
            progress=lambda done, total: log.append((i, done)),
        )  # fmt: skip

    with ThreadPoolExecutor(3) as pool, lock:
        found = [pool.submit(draw, i) for i in range(3)]
        wait_until(lambda: len(lock._waiting) == 3)
    for one in found:
        one.result(HANG_SECONDS)
    at = {i: [k for k, (who, _) in enumerate(log) if who == i] for i in range(3)}
    steps = min(map(len, at.values()))
    assert steps > 3
    for i in range(3):
        between = [b - a - 1 for a, b in zip(at[i][: steps - 1], at[i][1:steps], strict=True)]
        # The first step of each comes with its prompt's pass, when not all are at work yet.
        assert set(between[1:]) == {2}
        assert max(between) <= 3


def test_a_short_question_does_not_wait_for_a_long_one():
    lb = engine("llava")
    log, real = [], lb.lock._hand_on

    def tell(done, total):
        log.append(done)
        if done == 1:
            thread.start()
            wait_until(lambda: lb.lock._waiting)

    def hand_on():  # while it is held: what a thread does after its turn may come at any time
        if threading.get_ident() == thread.ident:
            log.append("short")
        real()

    thread = threading.Thread(target=lambda: lb.score(noise(), "?", ["red"]))
    lb.end_tokens, lb.lock._hand_on = [], hand_on
    lb.sample(noise(), QUESTION, 3, max_new_tokens=20, seed=1, progress=tell)
    thread.join(HANG_SECONDS)
    last = max(k for k, entry in enumerate(log) if entry == "short")
    assert len([entry for entry in log[:last] if entry != "short"]) <= 3
    assert log[-1] == 20


def test_what_goes_wrong_in_one_leaves_the_others_right():
    lb = engine("qwen2_vl")
    work = tasks(lb)
    alone = {task: numbers(run()) for task, run in work.items()}

    def fail(done, total):
        if done == 3:
            raise OSError("gone")

    bad = [
        lambda: lb.sample(noise(), "?", 3, max_new_tokens=9, seed=4, progress=fail),
        lambda: lb.score(b"no image", "?", ["red"]),
    ]
    with ThreadPoolExecutor(len(work) + 2) as pool, lb.lock:
        failed = [pool.submit(one) for one in bad]
        found = {task: pool.submit(run) for task, run in work.items()}
        wait_until(lambda: len(lb.lock._waiting) > len(work))
    assert {task: numbers(one.result(HANG_SECONDS)) for task, one in found.items()} == alone
    assert isinstance(failed[0].exception(HANG_SECONDS), OSError)
    assert isinstance(failed[1].exception(HANG_SECONDS), ValueError)
    assert lb.lock.acquire(blocking=False)
    lb.lock.release()


def test_who_has_the_turn_may_ask_again_while_others_wait():
    lb = engine("qwen2_vl")

    def ask():
        return lb.sample(noise(1), QUESTION, 2, max_new_tokens=6, seed=1, progress=tell)

    def tell(done, total):
        if again:
            inner.append(numbers(lb.score(noise(2), "who?", ["a red dog", "two"])))
            inner.append(numbers(lb.sample(noise(2), "who?", 2, max_new_tokens=3, seed=5)))

    again, inner = [], []
    alone = numbers(ask())
    expected = [
        numbers(lb.score(noise(2), "who?", ["a red dog", "two"])),
        numbers(lb.sample(noise(2), "who?", 2, max_new_tokens=3, seed=5)),
    ]
    again.append(1)
    with ThreadPoolExecutor(3) as pool, lb.lock:
        found = [pool.submit(ask) for _ in range(3)]
        wait_until(lambda: len(lb.lock._waiting) == 3)
    assert [numbers(one.result(HANG_SECONDS)) for one in found] == [alone] * 3
    assert len(inner) >= 6
    assert inner == expected * (len(inner) // 2)


def test_ctrl_c_in_a_draw_leaves_the_others_right():
    lb = engine("llava")
    alone = numbers(lb.sample(noise(2), QUESTION, 3, max_new_tokens=8, seed=2))
    found = []

    def other():
        found.append(numbers(lb.sample(noise(2), QUESTION, 3, max_new_tokens=8, seed=2)))

    def interrupt(done, total):
        if done == 1:
            thread.start()
            wait_until(lambda: lb.lock._waiting)
            signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=other)
    with pytest.raises(KeyboardInterrupt):
        lb.sample(noise(1), QUESTION, 3, max_new_tokens=8, seed=1, progress=interrupt)
    thread.join(HANG_SECONDS)
    assert found == [alone]
    assert numbers(lb.sample(noise(2), QUESTION, 3, max_new_tokens=8, seed=2)) == alone


class Beside:
    """Lets another thread work while a pass of this one is at work, until it ends or has to wait.

    So whatever the other one writes on the model is there when this pass reads it.
    """

    def __init__(self, lb, work):
        self.lb, self.work, self.mine = lb, work, threading.get_ident()
        self.pool, self.job, self.results = ThreadPoolExecutor(1), None, []

    def __enter__(self):
        self.hook = self.lb.model.register_forward_pre_hook(self)
        return self

    def __exit__(self, *error):
        self.hook.remove()
        self.take()
        self.pool.shutdown()

    def take(self):
        if self.job is not None:
            self.results.append(self.job.result(HANG_SECONDS))
            self.job = None

    def __call__(self, module, args):
        if threading.get_ident() != self.mine:
            return
        if self.job is not None and self.job.done():
            self.take()
        if self.job is None:
            self.job = self.pool.submit(self.work)
        wait_until(lambda: self.job.done() or self.lb.lock._waiting)


GREEDY = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None}
KEEPING = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v", "ernie4_5_vl_moe"]


def plain_call(lb, image):
    """Somebody's own generate, which is not recorded."""
    inputs = inputs_of(lb, image, "who?")
    return lambda: type(lb.model).generate(lb.model, **inputs, **GREEDY).tolist()


def recorded_call(lb, image, recorder):
    inputs = inputs_of(lb, image, "who?")

    def work():
        out = lb.model.generate(**inputs, **GREEDY)
        return numbers(recorder.candidates(out, source=None if image else "none"))

    return work


def plain_loop(lb, image):
    """Somebody's own loop, a token at each call, beginning anew after four."""
    inputs, state = inputs_of(lb, image, "who?"), {}

    @torch.no_grad()
    def work():
        if not state.get("left"):
            state["cache"] = DynamicCache(config=lb.model.config.get_text_config())
            state["left"], given = 4, inputs
        else:
            given = {"input_ids": torch.tensor([[30 + state["left"]]])}
        state["left"] -= 1
        out = lb.model(**given, past_key_values=state["cache"], use_cache=True)
        return out.logits[:, -1].tolist()

    return work


def engine_tasks(lb):
    images, draw = [noise(1), noise(2)], {"max_new_tokens": 4, "seed": 1, "temperature": 1.1}
    return {
        "sample": lambda: lb.sample(images, QUESTION, 2, **draw),
        "score": lambda: lb.score(images, QUESTION, ["red dog"]),
        "look": lambda: lb.look(images, QUESTION, "red dog"),
        "generate": lambda: lb.generate(images, QUESTION, max_new_tokens=3),
    }


@pytest.mark.parametrize(
    ("name", "image"), [*((name, noise(5, (80, 120))) for name in KEEPING), ("qwen2_5_vl", None)]
)
def test_an_engine_and_somebodys_own_calls_do_not_disturb_each_other(name, image, small_pieces):
    """Whoever keeps something on the model finds it, whatever others do in between."""
    lb = engine(name)
    small_pieces(lb)
    with lookback.record(lb) as recorder:
        makers = {
            "plain call": lambda: plain_call(lb, image),
            "recorded call": lambda: recorded_call(lb, image, recorder),
            "loop": lambda: plain_loop(lb, image),
        }
        for task, run in engine_tasks(lb).items():
            alone = numbers(run())
            for other, make in makers.items():
                work = make()
                expected = [work() for _ in range(4)]
                with Beside(lb, make()) as beside:
                    assert numbers(run()) == alone, (task, other)
                assert beside.results, (task, other)
                for i, found in enumerate(beside.results):
                    assert found == expected[i % 4], (task, other, i)
    assert not lb.lock.wanted

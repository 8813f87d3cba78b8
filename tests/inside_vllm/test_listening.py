"""Candidates inside vLLM that are heard while they are written, and their likeliest tokens."""

import asyncio
import threading
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from engines.reference import noise
from inside_vllm.test_equality import CLOSE, DRAW, equal, held
from server.clock import pass_time, run, turns
from server.held_engine import happens, until
from timeouts import HANG_SECONDS

from lookback.engines.common.stream import Listener
from lookback.engines.vllm.client.stream import PartialCandidates, notify_while
from lookback.signals import SIGNALS, WRITING

QUESTION = "Describe the picture."
LONG = {"max_new_tokens": 200, "temperature": 3.0, "top_p": 1.0}  # so hot that few end early


class GivenUp(BaseException):
    """Not an Exception: as Ctrl-C is none."""


class Ear:
    """Hears, and keeps what it heard; gives up at a call, if it is to."""

    def __init__(self, every=0.0, give_up_at=None):
        self.calls, self.threads, self.give_up_at = [], set(), give_up_at
        self.listener = Listener(self.hear, every)

    def hear(self, some):
        self.calls.append(list(some))
        self.threads.add(threading.get_ident())
        if len(self.calls) == self.give_up_at:
            raise GivenUp

    @property
    def last(self):
        return {c.index: c for call in self.calls for c in call}


def begins(part, whole):
    """A candidate is the beginning of another, and so are its numbers."""
    length = len(part.tokens)
    assert part.token_ids.tolist() == whole.token_ids[:length].tolist()
    for name in SIGNALS:
        expected = getattr(whole, name)[:length]
        np.testing.assert_allclose(getattr(part, name), expected, atol=CLOSE, rtol=CLOSE)
    if whole.by_layer is not None:
        np.testing.assert_allclose(part.by_layer, whole.by_layer[:length], atol=CLOSE)
    if whole.top is not None:
        np.testing.assert_allclose(part.top.log_prob, whole.top.log_prob[:length], atol=CLOSE)


def same_top(ours, embedded, asked):
    """The likeliest tokens are the other engine's; those as likely may stand in any order.

    It is asked for one more, so that the last is known to be likelier than the next.
    """
    k = asked["top_log_probs"]
    theirs = embedded.sample(**(asked | {"top_log_probs": k + 1}))
    for a, b in zip((c.top for c in ours), (c.top for c in theirs), strict=True):
        np.testing.assert_allclose(a.log_prob, b.log_prob[:, :k], atol=CLOSE)
        apart = np.diff(b.log_prob, axis=1, prepend=np.inf) < -2 * CLOSE
        sure = apart[:, :-1] & apart[:, 1:]
        assert sure.mean() > 0.8
        assert (a.token_ids == b.token_ids[:, :k])[sure].all()
        for t, i in np.argwhere(sure):
            assert a.tokens[t][i] == b.tokens[t][i]


def nothing_is_left(engine):
    """No numbers in the tap, no request in vLLM's front, no block of its cache in use."""
    assert {one["responses"] for one in held(engine)} == {0}
    assert not engine.client.llm.output_processor.has_unfinished_requests()
    assert engine.client.run(engine.client.llm.reset_prefix_cache())


@contextmanager
def counted(engine):
    """How often each thing is asked of the workers."""
    llm, found = engine.client.llm, Counter()
    plain = llm.collective_rpc

    def count(method, *args, **kwargs):
        found[method] += 1
        return plain(method, *args, **kwargs)

    llm.collective_rpc = count
    try:
        yield found
    finally:
        del llm.collective_rpc


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"temperature": 0.0},
        {"stop": ["."], "by_layer": True},
        {"keep_end": True, "source": "none"},
        {"prune": [(3, 6), (12, 3)]},
        {"prune": [(3, 6), (12, 3)], "stop": "a", "by_layer": True},
    ],
    ids=str,
)
def test_heard_and_likeliest_are_the_transformers_engines(inside, embedded, more):
    asked = {"image": noise(3), "question": QUESTION, "n": 12, "seed": 7}
    asked |= DRAW | more | {"top_log_probs": 5}
    ear = Ear()
    ours, plain = inside.sample(**asked, listen=ear.listener), embedded.sample(**asked)
    equal(ours, plain)
    same_top(ours, embedded, asked)
    assert all(ear.last[c.index] is c for c in ear.calls[-1])
    assert [ear.last[c.index].finish for c in ours] == [c.finish for c in plain]
    assert [len(ear.last[c.index].tokens) for c in ours] == [len(c.tokens) for c in plain]
    for call in ear.calls:
        for c in call:
            begins(c, plain[c.index])
    assert sum(c.finish == WRITING for call in ear.calls for c in call) >= 1
    assert ear.threads == {threading.get_ident()}
    nothing_is_left(inside)


def test_each_asks_for_as_many_likeliest_tokens_as_it_wants(inside, embedded):
    """In one batch, with some that want none."""
    wants = [0, 1, 7, 20, 64]
    asked = [
        {"image": noise(i), "question": QUESTION, "n": 2, "seed": i, "top_log_probs": k} | DRAW
        for i, k in enumerate(wants)
    ]
    found = inside.sample_many(asked)
    for one, ours, k in zip(asked, found, wants, strict=True):
        equal(ours, embedded.sample(**one))
        if k == 0:
            assert {c.top for c in ours} == {None}
        else:
            assert {c.top.log_prob.shape[1] for c in ours} == {k}
            same_top(ours, embedded, one)


def test_a_checkpoint_is_not_the_only_time_to_hear_of_pruned_ones(inside):
    ear = Ear()
    inside.sample(noise(3), QUESTION, 8, seed=7, **LONG, prune=[(60, 2)], listen=ear.listener)
    lengths = {len(c.tokens) for call in ear.calls for c in call if c.finish == WRITING}
    assert len([length for length in lengths if 0 < length < 60]) >= 1
    pruned = [c for call in ear.calls[:-1] for c in call if c.finish == "pruned"]
    assert len(pruned) >= 4
    assert {len(c.tokens) for c in pruned} == {60}


def test_one_question_to_the_workers_for_each_telling(inside):
    asked = (noise(3), QUESTION, 8)
    with counted(inside) as plain:
        inside.sample(*asked, seed=7, **DRAW)
    assert plain == {"lookback_take": 1}
    for every in (0.0, 3600):
        ear = Ear(every)
        with counted(inside) as found:
            inside.sample(*asked, seed=7, **DRAW, listen=ear.listener)
        assert found["lookback_take"] == 1
        assert found["lookback_peek"] <= len(ear.calls) - 1
        assert (len(ear.calls) == 1) == (every > 0)
        assert found.keys() <= {"lookback_take", "lookback_peek"}


def test_a_listener_is_not_called_more_often_than_it_wants():
    async def listen():
        writing, over, times = PartialCandidates(1, 8, 0, 0, True), asyncio.Event(), []
        now = asyncio.get_running_loop().time

        async def tell():
            times.append(now())

        telling = asyncio.ensure_future(notify_while(over.wait(), writing, tell, every=3.0))
        await turns()
        for _ in range(10):
            writing.changes.set()
            await pass_time(1)
        over.set()
        assert await telling
        return times

    assert run(listen()) == [3, 6, 9]


def test_progress_rises(inside):
    seen = []
    inside.sample(noise(3), QUESTION, 4, seed=7, **LONG, progress=lambda *x: seen.append(x))
    assert len(seen) > 1
    assert seen[-1] == (200, 200)
    assert sorted(seen) == seen
    assert {total for _, total in seen} == {200}


@pytest.mark.parametrize("more", [{}, {"prune": [(40, 6), (100, 3)]}], ids=str)
@pytest.mark.parametrize("which", ["listen", "progress"])
def test_who_gives_up_leaves_nothing(inside, embedded, which, more):
    ear = Ear(give_up_at=2)
    given = {"listen": ear.listener} if which == "listen" else {"progress": lambda *x: ear.hear(x)}
    with pytest.raises(GivenUp):
        inside.sample(noise(1), QUESTION, 12, seed=1, **LONG, **more, **given)
    assert len(ear.calls) == 2
    nothing_is_left(inside)
    asked = (noise(2), QUESTION, 4)
    equal(inside.sample(*asked, seed=3, **DRAW), embedded.sample(*asked, seed=3, **DRAW))


def test_who_gives_up_at_the_very_end_leaves_nothing(inside):
    listen = Ear(3600, give_up_at=1).listener
    with pytest.raises(GivenUp):
        inside.sample(noise(1), QUESTION, 3, seed=1, **DRAW, listen=listen)
    nothing_is_left(inside)


def test_a_coroutine_hears_on_its_own_loop(inside, embedded):
    asked = {"image": noise(3), "question": QUESTION, "n": 4, "seed": 7} | DRAW

    async def ask():
        ear, other, progress = Ear(), Ear(give_up_at=2), []
        found, gone = await asyncio.gather(
            inside.asample(**asked, listen=ear.listener, progress=lambda *x: progress.append(x)),
            _outcome(inside.asample(**asked, listen=other.listener)),
        )
        assert ear.threads == other.threads == {threading.get_ident()}
        assert len(ear.calls) == len(progress) > 1
        assert gone is GivenUp
        return found, ear

    found, ear = asyncio.run(ask())
    equal(found, embedded.sample(**asked))
    assert len(ear.last) == 4
    nothing_is_left(inside)


async def _outcome(work):
    try:
        return await work
    except GivenUp:
        return GivenUp


def test_a_cancelled_listener_leaves_nothing(inside):
    ear = Ear()

    async def ask():
        work = inside.asample(noise(1), QUESTION, 8, seed=1, **LONG, listen=ear.listener)
        task = asyncio.create_task(work)
        await happens(lambda: len(ear.calls) >= 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    count = len(ear.calls)
    until(lambda: held(inside)[0]["responses"] == 0)
    nothing_is_left(inside)
    assert len(ear.calls) == count


def _threads(work):
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()


def test_eight_threads_listen_and_one_gives_up(inside, embedded):
    settings = DRAW | {"max_new_tokens": 60, "top_log_probs": 2}
    asked = [
        {"image": noise(i % 3), "question": QUESTION, "n": 1 + i % 4, "seed": i} | settings
        for i in range(8)
    ]
    asked[5]["prune"] = [(8, 1)]
    ears = [Ear([0.0, 0.02, 0.1][i % 3], give_up_at=2 if i == 3 else None) for i in range(8)]
    found = {}

    def ask(i):
        try:
            found[i] = inside.sample(**asked[i], listen=ears[i].listener)
        except GivenUp as error:
            found[i] = error

    _threads([lambda i=i: ask(i) for i in range(8)])
    assert isinstance(found.pop(3), GivenUp)
    assert len(found) == 7
    for i, ours in found.items():
        quiet = inside.sample(**asked[i])
        equal(ours, quiet)
        same_top(ours, embedded, asked[i])
        equal(ours, embedded.sample(**asked[i]))
        assert {len(ears[i].last[c.index].tokens) - len(c.tokens) for c in ours} == {0}
        for call in ears[i].calls:
            for c in call:
                begins(c, ours[c.index])
    assert len(set.union(*(ear.threads for ear in ears))) == 8
    nothing_is_left(inside)


def test_who_is_slow_to_hear_holds_up_nobody_else(inside):
    done = threading.Event()
    waited = []

    def hear(some):
        waited.append(done.wait(HANG_SECONDS))

    def slow():
        inside.sample(noise(1), QUESTION, 2, seed=1, **LONG, listen=Listener(hear, every=0))

    def quick():
        until(lambda: inside.client.llm.output_processor.request_states)
        ear = Ear()
        inside.sample(noise(2), QUESTION, 2, seed=1, **DRAW, listen=ear.listener)
        assert len(ear.calls) > 1
        done.set()

    _threads([slow, quick])
    assert done.is_set()
    assert all(waited)


def test_who_waits_in_the_queue_hears_so_and_can_give_up(inside):
    """All 64 seats are taken, and hundreds were before it."""
    busy, seated = Ear(), threading.Event()
    waiting = Ear(give_up_at=1)

    def fill():
        def hear(some):
            seated.set()
            busy.hear(some)
            if waiting.calls:
                raise GivenUp

        listen = Listener(hear, every=0)
        with pytest.raises(GivenUp):
            inside.sample(noise(1), QUESTION, 512, seed=1, **LONG, listen=listen)

    def wait():
        assert seated.wait(HANG_SECONDS)
        with pytest.raises(GivenUp):
            inside.sample(noise(2), QUESTION, 2, seed=1, **DRAW, listen=waiting.listener)

    _threads([fill, wait])
    assert waiting.calls == [[]]
    assert busy.calls[1:]
    nothing_is_left(inside)


def test_blocks_that_are_taken_away_while_somebody_listens(inside, embedded):
    asked = {"image": noise(8), "question": QUESTION, "n": 8, "seed": 5, "max_new_tokens": 80}
    ear, taken = Ear(), []

    def hear(some):
        ear.hear(some)
        if len(ear.calls) <= 3:
            llm = inside.client.llm
            taken.append(inside.client.run(llm.reset_prefix_cache(reset_running_requests=True)))

    ours = inside.sample(**asked, listen=Listener(hear, every=0))
    plain = embedded.sample(**asked)
    equal(ours, plain)
    assert taken
    for call in ear.calls:
        for c in call:
            begins(c, plain[c.index])

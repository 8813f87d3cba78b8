"""Candidates that are heard while they are drawn, and the likeliest tokens, of the own engine."""

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_maps, inputs_of, noise, whole
from engines.test_stops import Spelling
from timeouts import HANG_SECONDS
from zoo import build

import lookback
from lookback.engines.common import stream as telling_file
from lookback.engines.common.continuations import Continuation, Likeliest, StopTexts
from lookback.engines.common.logits import likeliest, token_stats
from lookback.engines.common.prompts import MOST_SPELLED, IdText
from lookback.engines.common.stream import Listener, StreamNotifier
from lookback.signals import WRITING, Candidate, Signals, Top

DRAW = {"max_new_tokens": 8, "seed": 42}


@pytest.fixture(scope="module")
def engine():
    zoo = build("qwen2_5_vl")
    return lookback.load(zoo.model, zoo.processor)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_likeliest_tokens_are_those_of_a_plain_pass(engine, temperature):
    found = engine.sample(noise(), QUESTION, 3, **DRAW, temperature=temperature, top_log_probs=5)
    inputs = inputs_of(engine, noise())
    start = inputs["input_ids"].shape[1]
    for c in found.scorable():
        logits, _ = eager_maps(engine.model, whole(engine.model, inputs, c.token_ids))
        rows = logits[start - 1 : start - 1 + len(c.tokens)].double().log_softmax(-1)
        expected = rows.topk(5)
        np.testing.assert_allclose(c.top.log_prob, expected.values, atol=1e-4)
        own = rows.gather(-1, torch.from_numpy(c.top.token_ids.copy()))
        np.testing.assert_allclose(c.top.log_prob, own, atol=1e-4)
        tokenizer = engine.processor.tokenizer
        for ids, texts in zip(c.top.token_ids.tolist(), c.top.tokens, strict=True):
            assert [t.strip() for t in texts] == [tokenizer.decode([i]).strip() for i in ids]
        if temperature == 0:
            assert c.top.token_ids[:, 0].tolist() == c.token_ids.tolist()


def test_tokens_that_are_ruled_out_are_never_likely():
    logits = torch.tensor([[0.0, torch.finfo(torch.float32).min, 1.0, -torch.inf]])
    ids, log_p = likeliest(logits, 3)
    assert ids[0, :2].tolist() == [2, 0]
    assert log_p[0, 2] == -torch.inf
    assert log_p[0, 0] == token_stats(logits, torch.tensor([2])).log_prob[0]


def test_a_table_of_likeliest_tokens_has_one_shape():
    with pytest.raises(ValueError, match=r"shape \(2, 3\), their log p \(2, 2\)"):
        Top(np.zeros((2, 3)), (), np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"shape \(4,\)"):
        Top(np.zeros(4), (), np.zeros(4))


def test_ids_stand_for_words_that_nobody_knows():
    assert IdText().alternatives([1], [2, 3], [[4, 5], [6]]) == [["<4>", "<5>"], ["<6>"]]


def test_texts_of_tokens_are_forgotten_before_they_are_too_many(engine):
    prompter = engine.prompter
    before = prompter.pieces([1, 2], [70, 71, 72])
    prompter._spelled |= {(-i, -i): "x" for i in range(MOST_SPELLED)}
    assert prompter.pieces([1, 2], [70, 71, 72]) == before
    prompter._spelled |= {(-i, -i): "x" for i in range(MOST_SPELLED + 1)}
    assert prompter.pieces([1, 2], [70, 71, 72]) == before
    assert len(prompter._spelled) < 10


def test_nothing_is_made_while_it_is_not_time(engine, monkeypatch):
    made = []
    real = engine.prompter.pieces
    monkeypatch.setattr(engine.prompter, "pieces", lambda *x: made.append(1) or real(*x))
    engine.sample(noise(), QUESTION, 4, **DRAW)
    plain = len(made)
    made.clear()
    engine.sample(noise(), QUESTION, 4, **DRAW, listen=Listener(lambda some: None, every=3600))
    assert len(made) == plain == 4


def hold(ids, *texts):
    one = Continuation(ids, np.zeros((4, len(ids)), np.float32), WRITING)
    one.top = Likeliest(np.zeros((len(ids), 2), np.int64), np.zeros((len(ids), 2), np.float32))
    found = StopTexts(Spelling(), [], texts).hold(one)
    assert len(found.top.token_ids) == len(found.top.log_prob) == len(found.token_ids)
    assert found.finish == WRITING
    return found.token_ids


@pytest.mark.parametrize(
    ("texts", "left"),
    [
        ((), [0, 1, 2]),
        (("zebra",), [0, 1, 2]),
        (("sat.",), [0, 1]),  # " sat" may become it
        (("t!", "at on"), [0, 1]),  # the longest that may
        (("A cat sat on",), []),
        (("t",), [0, 1, 2]),  # a whole one is for `cut`
    ],
)
def test_what_may_become_a_stop_text_is_held_back(texts, left):
    assert hold([0, 1, 2], *texts) == left


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


def test_a_listener_hears_of_changes_when_it_is_time(monkeypatch):
    clock, calls = Clock(), []
    monkeypatch.setattr(telling_file, "time", clock)

    def candidate(i, one):
        empty = np.zeros(len(one.token_ids))
        signals = Signals(one.token_ids, ["x"] * len(one.token_ids), empty, empty, empty, empty)
        return Candidate(i, "", signals, one.finish)

    def one(length, finish=WRITING):
        return Continuation([1] * length, np.zeros((4, length), np.float32), finish)

    def hear(some):
        clock.now += 5.0  # it takes its time
        calls.append([(c.index, len(c.tokens), c.finish) for c in some])

    notifier = StreamNotifier(Listener(hear, every=2.0), candidate)
    assert not notifier.is_due()
    clock.now += 2.0
    assert notifier.is_due()
    notifier.update([one(1), one(1), one(0, "end")])
    assert not notifier.is_due()  # from the end of the last call on
    clock.now += 2.0
    assert notifier.is_due()
    notifier.update([one(1), one(2), one(0, "end")])
    notifier.update([one(1), one(2), one(0, "end")])
    notifier.finish([candidate(0, one(1, "length")), candidate(1, one(2, "stop"))])
    assert calls == [
        [(0, 1, WRITING), (1, 1, WRITING), (2, 0, "end")],
        [(1, 2, WRITING)],
        [],  # a sign of life
        [(0, 1, "length"), (1, 2, "stop")],
    ]


def test_the_last_is_heard_when_the_engine_is_free_again(engine):
    import threading

    free = []

    def hear(some):
        if all(c.finish != WRITING for c in some):
            other = threading.Thread(target=lambda: free.append(engine.score(noise(), "?", ["a"])))
            other.start()
            other.join(HANG_SECONDS)

    engine.sample(noise(), QUESTION, 2, **DRAW, listen=Listener(hear, every=3600))
    assert len(free) == 1

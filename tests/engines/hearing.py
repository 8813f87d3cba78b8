"""What every engine promises of `top_log_probs` and `listen`; part of tests/engines/contract.py."""

import numpy as np
import pytest
from engines.reference import noise

from lookback.engines import AbilityError
from lookback.engines.common.stream import Listener
from lookback.signals import SIGNALS, WRITING

ASKED = {"image": noise(), "question": "what is in the picture?"}
DRAW = {"temperature": 1.2, "top_p": 0.9, "max_new_tokens": 8, "seed": 42}
SETTINGS = [
    {"n": 1},
    {"n": 25},
    {"n": 3, "temperature": 0.0},
    {"n": 6, "stop": ["e", " a", "o"]},
    {"n": 6, "keep_end": True},
    {"n": 6, "prune": [(2, 3), (3, 1)]},
    {"n": 6, "prune": [(2, 3), (3, 1)], "stop": "e", "top_log_probs": 2},
]


class Stop(Exception):
    pass


def lacks(engine, setting):
    return ("prune" in setting and "prune" not in engine.abilities) or (
        "top_log_probs" in setting and "top_log_probs" not in engine.abilities
    )


def begins(part, whole, close=0.0):
    """Whether a candidate is the beginning of another one, its numbers so close."""
    length = len(part.token_ids)
    assert part.token_ids.tolist() == whole.token_ids[:length].tolist()
    for name in SIGNALS:
        np.testing.assert_allclose(
            getattr(part, name), getattr(whole, name)[:length], atol=close, rtol=close
        )
    said = part.text.rstrip("\ufffd")
    assert whole.text.startswith(said)
    if part.top is not None and whole.top is not None:
        expected = whole.top.log_prob[:length]
        np.testing.assert_allclose(part.top.log_prob, expected, atol=close, rtol=close)


def equal(first, second, close=0.0):
    assert (first.text, first.tokens, first.finish) == (second.text, second.tokens, second.finish)
    assert len(first.tokens) == len(second.tokens)
    begins(first, second, close)


class Hearing:
    close = 0.0
    """How far the numbers of two draws of one question may lie apart."""

    def test_the_likeliest_tokens_are_told_or_refused(self, engine):
        plain = engine.sample(**ASKED, n=4, **DRAW)
        assert {c.top for c in plain} == {None}
        if "top_log_probs" not in engine.abilities:
            with pytest.raises(AbilityError, match=rf"top_log_probs\S* needs .* {engine.name!r}"):
                engine.sample(**ASKED, n=4, **DRAW, top_log_probs=3)
            return
        for setting in SETTINGS:
            if lacks(engine, setting):
                continue
            settings = DRAW | setting | {"top_log_probs": 3}
            plain = engine.sample(**ASKED, **(settings | {"top_log_probs": 0}))
            found = engine.sample(**ASKED, **settings)
            assert found.sampling == plain.sampling
            for c, other in zip(found, plain, strict=True):
                equal(other, c, self.close)  # nothing else is changed by it
                self._check_top(c)
        json_and_arrow = found.to_arrow(), found.to_dict()
        assert "top" not in str(json_and_arrow[0].schema.names)

    def _check_top(self, c):
        assert c.top.token_ids.shape == c.top.log_prob.shape == (len(c.tokens), 3)
        assert [len(row) for row in c.top.tokens] == [3] * len(c.tokens)
        assert (np.diff(c.top.log_prob, axis=1) <= 0).all()
        assert (np.exp(c.top.log_prob).sum(1) <= 1 + 1e-5).all()
        assert all(len(set(row)) == 3 for row in c.top.token_ids.tolist())
        for t, token in enumerate(c.token_ids.tolist()):
            assert c.top.log_prob[t, 0] >= c.log_prob[t] - 1e-6
            place = np.flatnonzero(c.top.token_ids[t] == token)
            if len(place):
                assert c.top.log_prob[t, place[0]] == pytest.approx(c.log_prob[t], abs=1e-6)
            else:
                assert c.log_prob[t] <= c.top.log_prob[t, -1] + 1e-6

    @pytest.mark.parametrize("count", [-1, 2**40, 1.5, True])
    def test_a_bad_number_of_likeliest_tokens_is_named(self, engine, count):
        if "top_log_probs" in engine.abilities:
            with pytest.raises(ValueError, match="top_log_probs = "):
                engine.sample(**ASKED, n=2, **DRAW, top_log_probs=count)

    @pytest.mark.parametrize("setting", SETTINGS, ids=str)
    def test_candidates_are_heard_or_it_is_refused(self, engine, setting):
        calls = []
        listen = Listener(lambda some: calls.append(list(some)), every=0)
        if "listen" not in engine.abilities:
            with pytest.raises(AbilityError, match=rf"listen\S* needs .* {engine.name!r}"):
                engine.sample(**ASKED, n=2, **DRAW, listen=listen)
            return
        if lacks(engine, setting):
            return
        plain = engine.sample(**ASKED, **(DRAW | setting))
        found = engine.sample(**ASKED, **(DRAW | setting), listen=listen)
        assert found.sampling == plain.sampling
        for a, b in zip(plain, found, strict=True):
            equal(a, b, self.close)  # nothing else is changed by listening
        last = {}
        for call in calls:
            assert len({c.index for c in call}) == len(call)
            for c in call:
                before = last.get(c.index)
                assert before is None or before.finish == WRITING
                assert before is None or len(before.tokens) <= len(c.tokens)
                assert c.finish == WRITING or c.finish == found[c.index].finish
                begins(c, found[c.index])
                last[c.index] = c
        assert calls[-1]
        assert sorted(last) == [c.index for c in found]
        for c in found:
            equal(last[c.index], c)
        if "prune" in setting and "stop" not in setting:
            assert "pruned" in {c.finish for call in calls for c in call}

    def test_it_is_heard_before_the_end(self, engine):
        if "listen" not in engine.abilities:
            return
        calls = []
        engine.sample(**ASKED, n=6, **DRAW, listen=Listener(calls.append, every=0))
        assert len(calls) > 2
        assert any(c.finish == WRITING and len(c.tokens) for call in calls[:-1] for c in call)
        calls.clear()
        found = engine.sample(**ASKED, n=6, **DRAW, listen=Listener(calls.append, every=3600))
        assert [[c.index for c in call] for call in calls] == [[c.index for c in found]]

    @pytest.mark.parametrize("which", ["listen", "progress"])
    def test_what_a_callback_raises_ends_the_draw(self, engine, which):
        if "listen" not in engine.abilities:
            return
        calls = []

        def stop(*args):
            calls.append(args)
            if len(calls) == 2:
                raise Stop("enough")

        given = {"listen": Listener(stop, every=0)} if which == "listen" else {"progress": stop}
        before = engine.sample(**ASKED, n=6, **DRAW)
        with pytest.raises(Stop, match="enough"):
            engine.sample(**ASKED, n=6, **DRAW, **given)
        assert len(calls) == 2
        for a, b in zip(before, engine.sample(**ASKED, n=6, **DRAW), strict=True):
            equal(a, b, self.close)

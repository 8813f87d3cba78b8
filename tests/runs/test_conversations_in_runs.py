"""Items that are conversations: asked, stored, controlled, and read again."""

import json

import numpy as np
import pytest
from engines.reference import noise
from toy_engine import ToyEngine

from lookback.benchmarks.base import BENCHMARKS, Item, MeanOfScores, benchmark
from lookback.runs.plan import Plan
from lookback.runs.start import start


def messages(number, marked=False):
    images = [{"type": "image", "image": noise(10 * number + k)} for k in range(2)]
    story = {"type": "text", "text": f"story {number}"} | ({"source": True} if marked else {})
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [images[0], {"type": "text", "text": "who?"}]},
        {"role": "assistant", "content": "red"},
        {"role": "user", "content": [images[1], story, {"type": "text", "text": "why?"}]},
    ]


@pytest.fixture(autouse=True)
def chats(monkeypatch):
    """A benchmark of four conversations, and a toy engine to ask."""
    monkeypatch.setattr(BENCHMARKS, "entries", dict(BENCHMARKS.entries))

    @benchmark("chats", title="Chats")
    class Chats(MeanOfScores):
        primary, source, default_split = "length", "made up", "all"

        def __init__(self, marked=False):
            self.notes = []

        def items(self, split="all", limit=None):
            made = [
                Item(f"chat-{i}", "why?", {"n": i}, None, messages=messages(i, marked=i == 3))
                for i in range(4)
            ]
            return made[:limit]

        def score(self, item, response):
            return min(len(response) / 20, 1.0)

    engine = ToyEngine()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: engine)
    return engine


def stored_parts(run, kind):
    """Of each item the texts, or the images, of its stored messages."""
    return [
        [part[kind] for turn in json.loads(m) for part in turn["content"] if part["type"] == kind]
        for m in run.items["messages"].to_pylist()
    ]


def plan(**settings):
    return Plan(**({"benchmark": "chats", "n": 3} | settings))


def test_every_setting_reaches_the_engine(tmp_path, chats):
    settings = {"temperature": 0.7, "top_p": 0.8, "max_new_tokens": 5, "seed": 9}
    start(plan(**settings), tmp_path / "run")
    for question, got in chats.sampled:
        assert question == "story 0\nwhy?".replace("0", question[6])
        assert {key: got[key] for key in ("temperature", "top_p", "max_new_tokens", "n")} == {
            "temperature": 0.7,
            "top_p": 0.8,
            "max_new_tokens": 5,
            "n": 3,
        }
    assert len({got["seed"] for _, got in chats.sampled}) == 4


def test_conversations_are_stored_and_read_again(tmp_path):
    run = start(plan(), tmp_path / "run").run
    assert run.manifest.title == "Chats"
    stored = [json.loads(text) for text in run.items["messages"].to_pylist()]
    assert [[turn["role"] for turn in one] for one in stored] == [
        ["system", "user", "assistant", "user"]
    ] * 4
    assert stored[2][3]["content"][1] == {"type": "text", "text": "story 2"}
    assert stored[3][3]["content"][1]["source"] is True
    assert stored[0][1]["content"][0]["image"].startswith("sha256:")
    assert run.candidates(2).messages == stored[2]
    assert run.items["source"].to_pylist() == [None] * 4


def test_a_source_is_part_of_what_a_run_is(tmp_path):
    whole = start(plan(limit=3), tmp_path / "whole").run
    second = start(plan(limit=3, source="image:1"), tmp_path / "second").run
    assert second.settings["source"] == "image:1"
    assert second.items["source"].to_pylist() == ['"image:1"'] * 3
    assert second.candidates(0).source == "image:1"
    assert second.id != whole.id
    np.testing.assert_array_equal(second.signal("log_prob"), whole.signal("log_prob"))
    assert not np.allclose(second.signal("visual_lookback"), whole.signal("visual_lookback"))


def test_an_item_without_that_source_fails_by_name(tmp_path):
    summary = start(plan(limit=1, source="image:7"), tmp_path / "run")
    assert summary.failed[0][0] == "chat-0"
    assert "of images the prompt has image:0, image:1" in summary.failed[0][1]


def test_controls_swap_every_image_and_no_word(tmp_path):
    own = start(plan(), tmp_path / "own").run
    settings = {"candidates": str(tmp_path / "own")}
    random = start(plan(image="random", **settings), tmp_path / "random").run
    none = start(plan(image="none", **settings), tmp_path / "none").run
    for control in (random, none):
        assert control.texts == own.texts
        assert stored_parts(control, "text") == stored_parts(own, "text")
    shown = stored_parts(random, "image")
    for mine, theirs in zip(stored_parts(own, "image"), shown, strict=True):
        assert len(theirs) == 2
        assert not set(mine) & set(theirs)
    assert all(name.startswith("chat-") for name in random.items["image"].to_pylist())
    assert stored_parts(none, "image") == [[]] * 4
    # Without images the marked text is still there to look back at; elsewhere nothing is.
    a = none.signal("visual_lookback")
    last = np.repeat(np.repeat(np.arange(4), none.sizes), none.lengths) == 3
    assert (a[~last] == 0).all()
    assert (a[last] > 0).all()


def test_an_engine_that_cannot_is_refused_before_any_work(tmp_path, monkeypatch):
    limited = ToyEngine(frozenset({"sample", "score"}))
    monkeypatch.setattr(Plan, "load_engine", lambda plan: limited)
    with pytest.raises(ValueError, match=r"scorer 'vauq' needs an engine .* \(ToyEngine\) cannot"):
        start(plan(scorers=("vauq",)), tmp_path / "run")
    assert limited.sampled == []
    blind = ToyEngine(frozenset({"score"}))
    monkeypatch.setattr(Plan, "load_engine", lambda plan: blind)
    with pytest.raises(ValueError, match="this run needs an engine that can draw candidates"):
        start(plan(), tmp_path / "run")

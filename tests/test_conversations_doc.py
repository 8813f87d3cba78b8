"""The Python of docs/conversations.md, run as it stands on a tiny model."""

import re
from pathlib import Path

import pytest
from engines.reference import noise
from zoo import build

import lookback
from lookback.conversations import Source

PAGE = (Path(__file__).parents[1] / "docs" / "conversations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_snippets_run_one_after_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noise(1).save("before.jpg")
    noise(2).save("after.jpg")
    zoo = build("qwen2_5_vl")
    names = {"lb": lookback.load(zoo.model, zoo.processor)}
    assert len(BLOCKS) == 2
    for block in BLOCKS:
        exec(block, names)
    assert [len(turn["content"]) for turn in names["cands"].messages] == [1, 3]
    (whole,) = names["lb"].score(messages=names["messages"], responses=["A tree."])
    (part,) = names["lb"].score(messages=names["messages"], responses=["A tree."], source="image:1")
    assert (part.visual_lookback < whole.visual_lookback).all()


WAYS = {
    "image:0": Source(images=frozenset({0})),
    "last-turn": Source(images=frozenset({0}), videos=frozenset({0})),
    "marked": Source(texts=frozenset({0})),
    "none": Source(),
}


def test_the_table_names_ways_that_exist():
    assert re.findall(r'^\| `"?([a-z:0-9-]+)"?`', PAGE, re.MULTILINE) == list(WAYS)


@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_what_the_table_says(way):
    parts = [
        {"type": "image", "image": noise()},
        {"type": "video", "video": [noise()]},
        {"type": "text", "text": "why?", "source": True},
    ]
    conversation = lookback.Conversation.from_messages([{"role": "user", "content": parts}])
    assert conversation.source(way) == WAYS[way]

"""The Python of docs/conversations.md, run as it stands on a tiny model."""

import re
from pathlib import Path

import pytest
from engines.reference import noise
from zoo import build

import lookback

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


@pytest.mark.parametrize("way", re.findall(r'^\| `"?([a-z:0-9-]+)"?`', PAGE, re.MULTILINE))
def test_the_table_names_ways_that_exist(way):
    messages = [
        {
            "role": "user",
            "content": [
                {"type": "image", "image": noise()},
                {"type": "video", "video": [noise()]},
                {"type": "text", "text": "why?", "source": True},
            ],
        }
    ]
    lookback.Conversation.from_messages(messages).source(way)

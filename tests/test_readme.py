"""The README's Python, run as it stands, on a tiny model in place of the named one."""

import math
import re
from pathlib import Path

import pytest
from engines.reference import inputs_of, noise
from made_runs import make_run
from zoo import build
from zoo.table import replaced

import lookback
from lookback.registry import load_plugin
from lookback.scores.base import SCORERS

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
MADE = [
    {"cands", "best"},
    {"rec", "out", "best"},
    {"messages", "best"},
    {"cautious"},
    {"run"},
]
"""What is there after each block."""


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the snippets take for granted."""
    zoo = build("llava")
    noise().save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zoo.model.generation_config, "max_new_tokens", 5)
    engine = lookback.load(zoo.model, zoo.processor)
    monkeypatch.setattr(lookback, "load", lambda name: engine, raising=False)
    make_run(tmp_path / "runs" / "caption", items=3, n=6)
    return {
        "lookback": lookback,
        "model": zoo.model,
        "processor": zoo.processor,
        "inputs": inputs_of(engine, noise()),
        "lb": engine,
        "cands": engine.score(noise(), "what?", ["a red circle", "a dog"]),
    }


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.strip().split("\n")[0][:40])
def test_the_snippet_runs(block, names, monkeypatch):
    monkeypatch.setattr(SCORERS, "_entries", dict(SCORERS.all()))
    before = dict(names)
    exec(block, names)
    made = {name for name in names if name not in before or names[name] is not before[name]}
    assert MADE[BLOCKS.index(block)] <= made
    if "best" in made:  # the highest score that there is
        assert math.isfinite(names["best"].score)
    if "cautious" in made:
        assert SCORERS.get("cautious").function is names["cautious"]


def test_the_scorer_is_a_plugin_as_it_stands(names, tmp_path, monkeypatch):
    monkeypatch.setattr(SCORERS, "_entries", dict(SCORERS.all()))
    (block,) = [block for block in BLOCKS if "@lookback.scorer" in block]
    plugin = tmp_path / "my_scorer.py"
    plugin.write_text(block, encoding="utf-8")
    load_plugin(str(plugin))
    best = names["cands"].best("cautious")
    assert best.score == pytest.approx((best.log_prob - best.entropy).mean())


def test_there_are_snippets():
    assert len(BLOCKS) == 5


def test_the_table_of_models_is_the_zoo():
    assert replaced(README) == README, "write it again: make models-table"

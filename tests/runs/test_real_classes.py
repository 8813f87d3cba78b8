"""Runs of the paper's three model classes (tiny, random weights) on CHAIR's files, end to end."""

import json

import numpy as np
import pytest
from engines.reference import noise
from zoo import build

import lookback
from lookback.benchmarks.base import get_benchmark
from lookback.runs import Run
from lookback.runs.plan import Plan
from lookback.runs.start import start
from lookback.studies import get_study

OBJECTS = {"7": ["dog"], "11": ["cat", "person"], "25": ["bus"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """CHAIR's files as a user has them; the picture of 25 is missing."""
    folder = tmp_path_factory.mktemp("data") / "chair"
    (folder / "val2014").mkdir(parents=True)
    (folder / "ground_truth_objects.json").write_text(json.dumps(OBJECTS))
    for number in (7, 11):
        noise(seed=number).save(folder / "val2014" / f"COCO_val2014_{number:012d}.jpg")
    return folder.parent


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl", "internvl"])
def test_a_run_with_controls_and_every_kind_of_scorer(family, data, tmp_path, monkeypatch):
    zoo = build(family)
    engine = lookback.load(zoo.model, zoo.processor)
    monkeypatch.setattr(Plan, "load_engine", lambda plan: engine)
    plan = Plan(benchmark="chair", data=str(data), n=3, max_new_tokens=5, scorers=("usc@2",))
    summary = start(plan, tmp_path / "own")
    assert [name for name, _ in summary.failed] == ["25"]
    assert "no image file" in summary.failed[0][1]
    run = summary.run
    assert run.ids == ["7", "11"]
    items = {item.id: item for item in get_benchmark("chair", data).items("test")}
    for row, name in enumerate(run.ids):
        # What is kept is what the engine says of the same tokens, scored by itself.
        cands = run.candidates(row).scorable()
        again = engine.score(items[name].image, items[name].question, list(cands))
        for kept, found in zip(cands, again, strict=True):
            np.testing.assert_allclose(kept.visual_lookback, found.visual_lookback, atol=2e-6)
            np.testing.assert_allclose(kept.log_prob, found.log_prob, atol=1e-4)
    settings = {"benchmark": "chair", "data": str(data), "candidates": str(run.path)}
    control = start(Plan(**settings, image="random"), tmp_path / "random").run
    assert control.items["image"].to_pylist() == ["11", "7"]
    assert control.texts == run.texts
    result = get_study("random-image")([Run(tmp_path / "own"), control])
    assert {row["items"] for row in result.rows} == {2}

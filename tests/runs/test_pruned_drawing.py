"""`lookback run --prune`: another run, whose pruned candidates have neither score nor quality."""

import json
from dataclasses import replace

import numpy as np
import pytest
from toy_engine import ToyEngine

from lookback.benchmarks.scenes import ScenesCaption
from lookback.runs import Run
from lookback.runs.executors import EngineInfo
from lookback.runs.layout import RunError
from lookback.runs.plan import Plan
from lookback.steering.pruning import Pruning

SMALL = ("run", "--benchmark", "scenes-caption", "--limit", 12, "-n", 6)
PRUNED = (*SMALL, "--prune", "2:3,4:2")


@pytest.fixture(autouse=True)
def engine(monkeypatch, tmp_path):
    made = ToyEngine()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Plan, "load_engine", lambda plan: made)
    return made


def test_survivors_are_those_of_the_whole_run(command):
    assert command(*SMALL, "--out", "whole")[0] == 0
    assert command(*PRUNED, "--out", "pruned")[0] == 0
    whole, run = Run("whole"), Run("pruned")
    assert run.pruned.any()
    assert not run.pruned.all()
    assert run.id != whole.id
    sampling = run.settings["sampling"]
    assert sampling.pop("prune") == {
        "scorer": "lookback",
        "settings": {"alpha": 0.5, "lam": 1.25},
        "schedule": [[2, 3], [4, 2]],
    }
    assert run.settings | {"sampling": sampling} == whole.settings
    for row in range(len(run.ids)):
        for one, other in zip(run.candidates(row), whole.candidates(row), strict=True):
            if one.finish == "pruned":
                assert one.tokens == other.tokens[: len(one.tokens)]
                assert len(one.tokens) in (2, 4)
            else:
                assert one.text == other.text
    kept = ~run.grid(run.pruned.astype(float)).astype(bool)
    np.testing.assert_array_equal(run.quality()[kept], whole.quality()[kept])
    assert np.isnan(run.quality()[~kept]).all()
    scores = run.scores("lookback")
    filled = run.grid(run.lengths.astype(float)) > 0
    assert (np.isfinite(scores) == (kept & filled)).all()
    np.testing.assert_array_equal(scores[kept], whole.scores("lookback")[kept])


def test_nobody_judges_how_good_a_part_is(command, monkeypatch):
    asked = []

    def scores(self, item, responses):
        asked.extend(responses)
        return [0.5] * len(responses)

    monkeypatch.setattr(ScenesCaption, "scores", scores)
    assert command(*PRUNED, "--out", "pruned")[0] == 0
    run = Run("pruned")
    whole = {text for text, ended in zip(run.texts, run.pruned, strict=True) if not ended}
    assert set(asked) == whole


def test_it_goes_on_with_the_same_settings_alone(command):
    assert command(*PRUNED, "--out", "r")[0] == 0
    code, _, err = command(*SMALL, "--prune", "2:3, 4:2", "--out", "r")
    assert (code, err) == (0, "")
    for other in ((), ("--prune", "2:3"), ("--prune", "2:3,4:2", "--prune-by", "entropy")):
        code, _, err = command(*SMALL, *other, "--out", "r")
        assert (code, err.count("\n")) == (1, 1)
        assert "holds another run: its sampling is" in err
    before = Run("r").table("candidates").to_pylist()
    for file in (Run("r").path / "shards").iterdir():
        file.unlink()
    assert command(*PRUNED, "--out", "r")[0] == 0
    assert json.dumps(Run("r").table("candidates").to_pylist()) == json.dumps(before)


def test_controls_and_scorers_of_it(command):
    assert command(*PRUNED, "--out", "own", "--scorers", "usc,vauq")[0] == 0
    run = Run("own")
    assert run.recorded == ["usc@6", "vauq"]
    kept = run.grid((~run.pruned & (run.lengths > 0)).astype(float)) == 1
    assert (np.isfinite(run.scores("vauq")) == kept).all()
    assert command("run", "--candidates", "own", "--image", "random", "--out", "random")[0] == 0
    control = Run("random")
    np.testing.assert_array_equal(control.pruned, run.pruned)
    assert np.isnan(control.quality()[~kept & (run.grid(run.pruned.astype(float)) == 1)]).all()
    code, _, err = command("study", "all", "own", "random", "--out", "studies")
    assert code == 0, err
    assert (
        "in own were pruned and count nowhere"
        in (Run("own").path / "../studies/main.md").read_text()
    )
    code, _, err = command("study", "main", "own", "--n", "3", "--out", "studies")
    assert (code, err.count("\n")) == (1, 1)
    assert "no draw of 3: ask for N = 6" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prune", "many"), "--prune many: write half, or"),
        (("--prune", "8:2,4:1"), "tokens must rise"),
        (("--prune", "half", "--prune-by", "usc"), "cannot judge what is still being written"),
        (("--prune", "half", "--scorers", "usc@3"), "write usc@6"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(command, tmp_path, arguments, said):
    code, _, err = command(*SMALL, *arguments, "--out", "r")
    assert (code, err.count("\n")) == (1, 1)
    assert said in err
    assert not (tmp_path / "r").exists()


def test_given_candidates_cannot_be_pruned():
    with pytest.raises(RunError, match="while they are drawn"):
        Plan("scenes-caption", candidates="x.jsonl", prune=Pruning())


def test_an_engine_that_cannot_is_refused_by_the_options_name(command, engine, tmp_path):
    engine.abilities = engine.abilities - {"prune"}
    code, _, err = command(*PRUNED, "--out", "r")
    assert (code, err.count("\n")) == (1, 1)
    assert "--prune" in err
    assert not (tmp_path / "r").exists()


def test_a_pruned_run_has_a_folder_of_its_own(command):
    assert command(*PRUNED)[0] == 0
    assert Run("runs/embedded_scenes-caption_42_pruned").pruned.any()


def test_half_means_the_same_as_its_pairs():
    engine = EngineInfo.of(ToyEngine())
    plan = Plan("scenes-caption", n=12, prune=Pruning("half"))
    benchmark = plan.load_benchmark()
    spelled = replace(plan, prune=Pruning([(16, 6), (32, 3)]))
    assert plan.settings(engine, benchmark, None) == spelled.settings(engine, benchmark, None)
    assert "prune" not in replace(plan, prune=None).settings(engine, benchmark, None)["sampling"]

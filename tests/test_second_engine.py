"""A second engine, registered by a plugin file, through the whole command: run, study, report."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from lookback.engines import ENGINES
from lookback.runs import Run

PLUGIN = str(Path(__file__).parent / "toy_engine.py")


@pytest.fixture
def toy(monkeypatch, command, tmp_path):
    """A command with the plugin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOKBACK_PLUGINS", "")
    monkeypatch.setattr(ENGINES, "entries", {"transformers": ENGINES.get("transformers")})
    for name in [name for name in sys.modules if name.startswith("lookback_plugin_toy_engine")]:
        monkeypatch.delitem(sys.modules, name)  # each test loads it anew

    return lambda *arguments: command("--plugin", PLUGIN, *arguments)


def test_run_study_and_report(toy, tmp_path):
    draw = ("run", "--engine", "toy", "--benchmark", "scenes-caption", "--limit", 12, "-n", 6)
    code, _, err = toy(*draw, "--scorers", "usc@6,vauq", "--out", "runs/own")
    assert code == 0, err
    run = Run(tmp_path / "runs" / "own")
    assert run.settings["engine"] == "toy"
    assert run.settings["model_class"] == "ToyEngine"
    assert run.manifest.versions["toy"] == "1"
    assert "torch" not in run.manifest.versions
    for image in ("none", "random"):
        control = ("run", "--candidates", "runs/own", "--image", image)
        code, _, err = toy(*control, "--out", f"runs/{image}")
        assert code == 0, err
        assert Run(tmp_path / "runs" / image).settings["engine"] == "toy"  # as the run it controls
    code, out, err = toy("study", "main", "runs", "--out", "studies", "--json")
    assert code == 0, err
    rows = json.loads(out)["rows"]
    assert {row["model"] for row in rows} == {"toy"}
    ours = [row["value"] for row in rows if row["method"] in ("usc", "vauq", "lookback")]
    assert np.isfinite(ours).any()
    code, out, err = toy("study", "all", "runs", "--out", "studies")
    assert code == 0, err
    page = (tmp_path / "studies" / "report.html").read_text("utf-8")
    assert "ToyEngine" in page


def test_ask_and_score(toy, tmp_path):
    from engines.reference import noise

    noise().save(tmp_path / "a.png")
    code, out, err = toy("ask", "a.png", "what?", "-n", 4, "--engine", "toy", "--json")
    assert code == 0, err
    assert json.loads(out)["model"] == "toy"
    assert err == ""  # nothing about the embedded model, which was not asked
    score = ("score", "a.png", "what?", "red", "blue", "--image", "a.png", "--engine", "toy")
    code, out, err = toy(*score, "--source", "image:1", "--json")
    assert code == 0, err
    assert json.loads(out)["source"] == "image:1"
    code, _, err = toy(*score, "--source", "image:2")
    assert (code, err.count("\n")) == (1, 1)
    assert "of images the prompt has image:0, image:1" in err


def test_ask_and_score_by_layer(toy, tmp_path):
    from engines.reference import noise

    noise().save(tmp_path / "a.png")
    for asked in (("ask", "a.png", "what?", "-n", 4), ("score", "a.png", "what?", "red", "two")):
        code, out, err = toy(*asked, "--engine", "toy", "--by-layer", "--json")
        assert code == 0, err
        for one in json.loads(out)["candidates"]:
            assert {len(row) for row in one["by_layer"]} <= {3}
            assert len(one["by_layer"]) == len(one["tokens"])
        code, out, _ = toy(*asked, "--engine", "toy", "--json")
        assert all("by_layer" not in one for one in json.loads(out)["candidates"])
        code, _, err = toy(*asked, "--engine", "toy", "--by-layer")
        assert (code, err) == (1, "lookback: --by-layer is shown by --json alone: add --json\n")


def test_an_unknown_engine_is_one_line(toy):
    code, _, err = toy("run", "--engine", "nope", "--benchmark", "scenes-vqa")
    assert code == 1
    assert "no engine named 'nope'; there are: transformers, vllm, toy" in err

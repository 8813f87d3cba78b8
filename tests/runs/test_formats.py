"""The manifest validates itself; other formats are refused; recorded scores keep their settings."""

import json
from dataclasses import replace

import numpy as np
import pytest
from made_runs import make_run
from toy_engine import ToyEngine

from lookback.runs import Run
from lookback.runs.layout import RunError
from lookback.runs.manifest import Manifest
from lookback.runs.plan import Plan
from lookback.runs.start import start


@pytest.mark.parametrize("number", [1, 2, 4, "3", None])
def test_another_format_is_refused_and_nothing_in_it_is_touched(tmp_path, monkeypatch, number):
    monkeypatch.setattr(Plan, "load_engine", lambda plan: ToyEngine())
    plan = Plan("scenes-vqa", limit=3, n=2)
    start(plan, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": number, "what": {}}))
    (tmp_path / "run" / ".lookback-lock").unlink(missing_ok=True)
    before = sorted(tmp_path.rglob("*"))
    said = f"manifest.json' .*it has format {number!r}, this version reads 3 alone: make the run"
    for call in (Run, lambda folder: start(plan, folder)):
        with pytest.raises(RunError, match=said):
            call(tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ([], "it is []"),
        (None, "it is None"),
        ({"format": 99}, "it has format 99, this version reads"),
        ({"settings": []}, r"its 'settings' is \[\]"),
        ({"items": "12"}, "its 'items' is '12'"),
        ({"failed": True}, "its 'failed' is True"),
        ({"status": "done"}, "its 'status' is 'done'"),
        ({"defaults": {"alpha": 1}}, "its 'defaults' are"),
        ({"id": "0123"}, "its id '0123' is not that of its settings"),
        ({"more": 1}, "it has an unknown 'more'"),
        ({"shards": "012"}, "its 'shards' is '012'"),
        ({"shards": [-1]}, "its 'shards' are"),
        ({"shards": [0, 0]}, "its 'shards' are"),
        ({"shards": [0.5]}, "its 'shards.0' is 0.5"),
        ({"scorers": {"../../x": {}}}, "its scorers have '../../x'"),
        ({"scorers": {"..": {}}}, "its scorers have '..'"),
        ({"scorers": {"": {}}}, "its scorers have ''"),
        ({"scorers": {"vauq": None}}, "its 'scorers.vauq' is None"),
        ({"job": {"index": 3, "of": 2}}, "jobs are counted from 0"),
        ({"settings": {"model": "m"}}, "its settings have no 'benchmark'"),
    ],
)
def test_a_manifest_that_is_none_is_refused_in_one_line(tmp_path, change, said):
    make_run(tmp_path / "run", items=2, n=2)
    path = tmp_path / "run" / "manifest.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | change if isinstance(change, dict) else change))
    with pytest.raises(RunError, match=said.replace("[]", r"\[\]")) as caught:
        Run(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_manifest_that_lacks_a_key_is_refused(tmp_path):
    make_run(tmp_path / "run", items=2, n=2)
    path = tmp_path / "run" / "manifest.json"
    data = json.loads(path.read_text())
    del data["defaults"]
    path.write_text(json.dumps(data))
    with pytest.raises(RunError, match=r"no manifest of ours: .*defaults"):
        Run(tmp_path / "run")


class TestRecordedScores:
    @pytest.fixture
    def run(self, tmp_path):
        return make_run(tmp_path / "run", items=3, n=4, recorded=("vauq", "usc@4"))

    def test_settings_they_were_made_with_are_theirs(self, run):
        plain = run.scores("vauq")
        np.testing.assert_array_equal(run.scores("vauq", alpha=1.0, layers=None), plain)
        np.testing.assert_array_equal(run.scores("usc", 4, m=3, image=True), run.scores("usc", 4))

    @pytest.mark.parametrize(
        ("scorer", "settings", "made"),
        [
            ("vauq", {"alpha": 99}, r"vauq scores made with alpha = 1.0, not 99"),
            ("vauq", {"layers": (0, 2)}, r"layers = None, not \(0, 2\)"),
            ("usc", {"m": 5}, "usc@4 scores made with m = 3, not 5"),
        ],
    )
    def test_others_are_refused(self, run, scorer, settings, made):
        with pytest.raises(RunError, match=made):
            run.scores(scorer, 4, **settings)

    def test_a_run_goes_on_with_the_settings_that_it_began_with(self, tmp_path, monkeypatch):
        """Whatever the scorer's own are by now: else a run would be of two minds."""
        asked = []
        plain = ToyEngine.knockout

        def knockout(self, *given, **settings):
            asked.append(settings["rows"])
            return plain(self, *given, **settings)

        monkeypatch.setattr(ToyEngine, "knockout", knockout)
        monkeypatch.setattr(Plan, "load_engine", lambda plan: ToyEngine())
        folder = tmp_path / "run"
        start(Plan("scenes-vqa", limit=12, n=3, scorers=("vauq",)), folder)
        assert {*asked} == {"all"}
        manifest = Manifest.read(folder)
        made = {"vauq": dict(manifest.scorers["vauq"]) | {"rows": "response"}}
        replace(manifest, scorers=made, status="running").write(folder)
        (folder / "scores" / "vauq" / "00001.parquet").unlink()
        asked.clear()
        start(Plan("scenes-vqa", limit=12, n=3), folder)
        assert {*asked} == {"response"}
        with pytest.raises(RunError, match="its vauq scores were made with"):
            start(Plan("scenes-vqa", limit=12, n=3, scorers=("vauq",)), folder)

    def test_unknown_ones_are_named(self, run):
        with pytest.raises(TypeError, match="scorer 'vauq' has no setting 'beta'"):
            run.scores("vauq", beta=1)

    def test_the_run_writes_them_down(self, tmp_path, monkeypatch):
        monkeypatch.setattr(Plan, "load_engine", lambda plan: ToyEngine())
        start(Plan("scenes-vqa", limit=2, n=3, scorers=("usc",)), tmp_path / "real")
        start(Plan("scenes-vqa", limit=2, n=3, scorers=("vauq",)), tmp_path / "real")
        kept = Manifest.read(tmp_path / "real").scorers
        assert kept["vauq"] == {"alpha": 1.0, "layers": None, "k": None, "rows": "all"}
        assert kept["usc@3"] == {"m": 3, "image": True, "seed": 0, "max_new_tokens": 64}

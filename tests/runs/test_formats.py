"""The manifest validates itself; runs of format 1 are read; recorded scores keep their settings."""

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_runs import make_run
from toy_engine import ToyEngine

from lookback.runs import Run
from lookback.runs.layout import RunError
from lookback.runs.manifest import FORMAT, Manifest
from lookback.runs.plan import Plan
from lookback.runs.start import start


def downgrade(folder):
    """The same run as format 1 wrote it."""
    data = asdict(Manifest.read(folder))
    data |= {"format": 1, "what": data.pop("settings"), "scorers": list(data["scorers"])}
    data["source"] = data.pop("candidates")
    for name in ("left_out", "title", "shards"):
        del data[name]
    shutil.rmtree(folder / "shards")
    shutil.rmtree(folder / "timings" / "shards")
    (folder / "manifest.json").write_text(json.dumps(data))
    for file in folder.glob("candidates/*.parquet"):
        table = pq.read_table(file)
        old = ["lookback" if n == "visual_lookback" else n for n in table.column_names]
        pq.write_table(table.rename_columns(old), file)
    for file in folder.glob("items/*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["messages", "source"]), file)
    for file in folder.glob("timings/*.json"):
        rows = json.loads(file.read_text())
        file.write_text(json.dumps([{"what": row.pop("stage")} | row for row in rows]))


def test_a_run_of_format_1_is_read(tmp_path):
    new = make_run(tmp_path / "new", items=12, n=4, recorded=("vauq",))
    make_run(tmp_path / "old", items=12, n=4, recorded=("vauq",))
    downgrade(tmp_path / "old")
    assert "lookback" in pq.read_table(tmp_path / "old" / "candidates").column_names
    old = Run(tmp_path / "old")
    assert (old.manifest.format, new.manifest.format) == (1, FORMAT)
    assert (old.id, old.settings) == (new.id, new.settings)
    for scorer in ("lookback", "visual_lookback", "vauq"):
        np.testing.assert_array_equal(old.scores(scorer), new.scores(scorer))
    a, b = old.candidates(3), new.candidates(3)
    assert [c.text for c in a] == [c.text for c in b]
    np.testing.assert_array_equal(a[1].visual_lookback, b[1].visual_lookback)
    assert (list(a.messages), a.source) == ([], None)
    assert old.items["messages"].null_count == 12
    assert old.timings() == new.timings()


def test_a_run_of_format_1_is_not_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(Plan, "load_engine", lambda plan: ToyEngine())
    plan = Plan("scenes-vqa", limit=3, n=2)
    start(plan, tmp_path / "run")
    downgrade(tmp_path / "run")
    (tmp_path / "run" / ".lookback-lock").unlink()
    with pytest.raises(RunError, match="has format 1: it can be read, but not gone on with"):
        start(plan, tmp_path / "run")
    assert not (tmp_path / "run" / ".lookback-lock").exists()  # nothing in it is touched


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
        ({"shards": [0.5]}, "its 'shards' are"),
        ({"scorers": {"../../x": None}}, "its scorers have '../../x'"),
        ({"scorers": {"..": None}}, "its scorers have '..'"),
        ({"scorers": {"": None}}, "its scorers have ''"),
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

    def test_those_that_were_made_before_a_setting_was_there_say_what_it_was(self, run):
        """VAUQ hid from the response's rows alone before it could do anything else."""
        assert run.recorded_settings("vauq")["rows"] == "all"
        plain = run.scores("vauq", rows="all")
        made = {name: dict(settings) for name, settings in run.manifest.scorers.items()}
        del made["vauq"]["rows"]
        replace(run.manifest, scorers=made).write(run.path)
        old = Run(run.path)
        assert old.recorded_settings("vauq")["rows"] == "response"
        np.testing.assert_array_equal(old.scores("vauq", rows="response"), plain)
        with pytest.raises(RunError, match="vauq scores made with rows = 'response', not 'all'"):
            old.scores("vauq", rows="all")

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
        made = {"vauq": {k: v for k, v in manifest.scorers["vauq"].items() if k != "rows"}}
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

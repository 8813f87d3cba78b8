"""`lookback run` as a user types it: what it prints, where it writes, how it exits."""

import json

import pyarrow.parquet as pq
import pytest
from made_runs import change_manifest
from toy_engine import ToyEngine

from lookback.benchmarks.scenes import ScenesVQA
from lookback.runs import Run
from lookback.runs.plan import Plan
from lookback.studies import STUDIES


@pytest.fixture(autouse=True)
def engine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Plan, "load_engine", lambda plan: ToyEngine())


SMALL = ("run", "--benchmark", "scenes-vqa", "--limit", 3, "-n", 2)


def test_it_writes_where_it_says(command, tmp_path):
    code, out, _ = command(*SMALL)
    assert code == 0
    assert out == "runs/embedded_scenes-vqa_42: 3 items, 6 candidates, 0 failed\n"
    assert Run(tmp_path / "runs/embedded_scenes-vqa_42").finished


def test_json_has_the_manifest(command):
    code, out, _ = command(*SMALL, "--out", "here", "--json")
    found = json.loads(out)
    assert (code, found["items"], found["failed"], found["worked"]) == (0, 3, 0, 3)
    manifest = found["manifest"]
    assert manifest["settings"]["sampling"]["seed"] == 42
    assert {"python", "numpy", "toy"} <= set(manifest["versions"])
    assert {"commit", "created", "defaults", "status"} <= set(manifest)


def test_a_failed_item_shows_in_the_exit_status(command, monkeypatch):
    items = ScenesVQA().items("test", 3)

    def broken():
        raise OSError("broken \x1b[2J image")

    from dataclasses import replace

    changed = [items[0], replace(items[1], load=broken), items[2]]
    monkeypatch.setattr(Plan, "items", lambda plan, benchmark: changed)
    code, out, err = command(*SMALL, "--out", "here")
    assert code == 3
    assert "3 items, 4 candidates, 1 failed" in out
    assert "failed: scenes-vqa/test/1: OSError: broken" in err
    assert "\x1b" not in err


def test_a_control_takes_its_settings_from_the_run_it_controls(command, tmp_path):
    command(*SMALL, "--out", "own")
    code, out, _ = command("run", "--candidates", "own", "--image", "random")
    assert code == 0
    (control,) = [Run(p) for p in (tmp_path / "runs").iterdir()]
    assert control.controls == Run(tmp_path / "own").id
    assert (control.benchmark, control.image) == ("scenes-vqa", "random")
    assert control.settings["limit"] == 3
    assert "6 candidates" in out


def test_a_control_has_the_models_own_dtype_and_revision(command, monkeypatch, tmp_path):
    command(*SMALL, "--out", "own")
    own = Run(tmp_path / "own").settings
    other = {"model": "org/name", "dtype": "bfloat16", "revision": "abc", "engine": "transformers"}
    change_manifest(tmp_path / "own", settings=own | other)
    asked = []
    monkeypatch.setattr(Plan, "load_engine", lambda plan: asked.append(plan) or ToyEngine())
    control = ("run", "--candidates", "own", "--image", "none", "--out")
    command(*control, "first")
    command(*control, "second", "--model", "org/other")
    command(*control, "third", "--dtype", "float16")
    got = [(plan.model, plan.dtype, plan.revision) for plan in asked]
    expected = [("org/name", "bfloat16", "abc"), ("org/other", None, None)]
    assert got == [*expected, ("org/name", "float16", "abc")]


def test_a_dry_run_keeps_nothing(command, tmp_path):
    code, out, _ = command(*SMALL[:3], "--limit", 30, "--dry-run", "--workers", 2)
    assert code == 0
    assert out.startswith("30 items in about ")
    assert "2 worker(s)" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run",), "name a --benchmark"),
        (("run", "--benchmark", "coco"), "no benchmark named 'coco'"),
        ((*SMALL, "--image", "random"), "name it with --candidates"),
        ((*SMALL, "--scorers", "beauty"), "no scorer named 'beauty'"),
        ((*SMALL, "--workers", "0"), "workers = 0"),
        (("study", "main", "nowhere"), "no run in 'nowhere'"),
        (("study", "beauty", "own"), "no run in 'own'"),
    ],
)
def test_mistakes_are_one_line(command, arguments, said):
    code, out, err = command(*arguments)
    assert code == 1
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_study_prints_its_table_and_writes_its_files(command, tmp_path):
    command(*SMALL, "--out", "own")
    code, out, err = command("study", "main", "own", "--out", "tables")
    assert code == 0
    assert "Random" in out
    assert "LookBack" in out
    written = {path.name for path in (tmp_path / "tables").iterdir()}
    assert written == {f"main.{kind}" for kind in ("csv", "md", "tex", "pdf", "png", "svg")}
    assert "tables/main.csv" in err
    code, out, _ = command("study", "main", "own", "--json", "--out", "tables")
    assert json.loads(out)["rows"][0]["method"] == "random"


def test_studies_are_listed(command):
    code, out, _ = command("studies", "--json")
    assert code == 0
    assert len(json.loads(out)) == 18
    assert json.loads(out)[0]["paper"] == "tab:main_results"


def test_an_unknown_setting_of_a_study_is_named(command):
    command(*SMALL, "--out", "own")
    code, _, err = command("study", "ablation", "own", "--set", "beauty=1")
    assert code == 1
    assert "study 'ablation' has no setting 'beauty'; it has: " in err


def test_all_studies_make_one_page(command, tmp_path):
    command(*SMALL, "--out", "runs/own")
    command("run", "--candidates", "runs/own", "--image", "random", "--out", "runs/random")
    code, out, err = command("study", "all", "runs", "--out", "all", "--items", 2)
    assert code == 0
    assert out.splitlines()[0] == "all/report.html"
    assert "LookBack minus each other scorer" in out
    page = (tmp_path / "all" / "report.html").read_text("utf-8")
    assert "tab:main_results" in page
    assert "seeds: " in err  # what these runs cannot show is said
    assert (tmp_path / "all" / "random-image.csv").exists()
    assert pq.read_table(tmp_path / "runs" / "own" / "items").num_rows == 3


def test_the_report_is_one_page_and_nothing_else(command, tmp_path, monkeypatch):
    few = {name: STUDIES.get(name) for name in ("main", "seeds")}
    monkeypatch.setattr(STUDIES, "all", lambda: few)
    command(*SMALL, "--out", "runs/own")
    before = set(tmp_path.iterdir())
    code, out, err = command("report", "runs", "--out", "page.html", "--items", 1)
    assert (code, out.splitlines()[0]) == (0, "page.html")
    assert "seeds: " in err
    assert {path.name for path in set(tmp_path.iterdir()) - before} == {"page.html"}
    assert "tab:main_results" in (tmp_path / "page.html").read_text("utf-8")
    assert json.loads(command("report", "runs", "--json")[1])["report"] == "report.html"
    assert command("report", "runs", "--out", "page.txt")[0] == 2
    assert command("report", "nowhere")[0] == 1


@pytest.mark.parametrize("setting", [("--items", 1, "main"), ("--set", "n=1", "all")])
def test_settings_that_a_study_would_not_heed_are_refused(command, setting):
    option, value, study = setting
    command(*SMALL, "--out", "runs/own")
    code, out, err = command("study", study, "runs", option, value)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert option in err


def test_at_temperature_0_one_candidate_is_drawn(command):
    code, out, err = command(*SMALL, "--temperature", 0, "--out", "run")
    assert (code, out) == (0, "run: 3 items, 3 candidates, 0 failed\n")
    assert "--temperature 0" in err
    assert Run("run").settings["sampling"]["n"] == 1


class TestList:
    def test_every_run_below_a_folder_is_a_row(self, command, tmp_path, monkeypatch):
        command(*SMALL, "--out", "runs/some/where/own")
        command("run", "--candidates", "runs/some/where/own", "--image", "none", "--out", "runs/c")
        command(*SMALL, "--out", "runs/jobs", "--shard", "0/1")
        (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
        code, out, err = command("runs", "list", "--json")
        assert (code, err) == (0, "")
        runs = [Run(f"runs/{name}") for name in ("c", "jobs", "some/where/own")]
        found = json.loads(out)
        names = ("run", "id", "benchmark", "model", "image", "status", "items", "n", "seed")
        assert [tuple(one[name] for name in names) for one in found] == [
            (str(r.path), r.id, r.benchmark, r.model, r.image, "finished", 3, n, r.seed)
            for r, n in zip(runs, (None, 2, 2), strict=True)
        ]
        sizes = [sum(p.stat().st_size for p in r.path.rglob("*") if p.is_file()) for r in runs]
        assert [one["bytes"] for one in found] == sizes
        for width in ("60", "120"):
            monkeypatch.setenv("COLUMNS", width)
            code, out, err = command("runs", "list", "runs/some", "runs/c")
            assert (code, err) == (0, "")
            assert max(map(len, out.splitlines())) <= int(width)
            assert [f"runs/{name}" in out for name in ("some/where/own", "c")] == [True, True]

    def test_one_that_cannot_be_read_is_named_among_the_others(self, command, tmp_path):
        command(*SMALL, "--out", "runs/b")
        (tmp_path / "runs" / "a").mkdir()
        (tmp_path / "runs" / "a" / "manifest.json").write_text("{")
        code, out, err = command("runs", "list")
        assert (code, err.count("\n")) == (3, 1)
        assert "runs/a/manifest.json" in err
        assert "damaged" in out
        assert "finished" in out

    def test_no_folder_and_no_run_are_errors(self, command, tmp_path):
        (tmp_path / "empty").mkdir()
        for name in ("nowhere", "empty"):
            code, out, err = command("runs", "list", name)
            assert (code, out, err.count("\n")) == (1, "", 1)
            assert name in err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(("aks",), "ask"), (("runs", "verfy"), "verify"), (("reprot",), "report")],
)
def test_a_command_that_is_spelled_wrong_is_told_the_right_one(command, arguments, meant):
    code, _, err = command(*arguments)
    assert code == 2
    assert f"'{meant}'" in err

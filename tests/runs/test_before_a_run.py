"""Before a run begins: what is wrong is said while nothing was made, loaded or touched."""

import json
from pathlib import Path

import pytest
from toy_engine import ToyEngine

from lookback.benchmarks.base import BENCHMARKS, Item, MeanOfScores, benchmark
from lookback.runs import Run
from lookback.runs.estimate import estimate
from lookback.runs.layout import LOCK, TEMPORARY, RunError
from lookback.runs.manifest import Manifest
from lookback.runs.plan import Plan
from lookback.runs.start import start
from lookback.studies import get_study

RUN = ("run", "--benchmark", "scenes-vqa", "--limit", 3, "-n", 2, "--out", "run")


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    """The plans that a model was loaded for."""
    monkeypatch.chdir(tmp_path)
    plans = []
    monkeypatch.setattr(Plan, "load_engine", lambda plan: plans.append(plan) or ToyEngine())
    return plans


def listing(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-n", 0), "n = 0: must be at least 1"),
        (("-n", 10**9), "n = 1000000000: must be at most"),
        (("--top-p", 2), "top_p = 2.0: must be above 0"),
        (("--top-p", "nan"), "top_p = nan"),
        (("--temperature", -1), "temperature = -1.0: must be 0"),
        (("--temperature", "nan"), "temperature = nan"),
        (("--temperature", "inf"), "temperature = inf"),
        (("--temperature", "1e-320"), "temperature = 1e-320"),
        (("--max-new-tokens", 0), "max_new_tokens = 0"),
        (("--seed", -1), "seed = -1: must be at least 0"),
        (("--seed", 2**64), f"seed = {2**64}: must be at most"),
        (("--limit", 0), "limit = 0: must be at least 1"),
        (("--limit", -2), "limit = -2: must be at least 1"),
        (("--workers", 0), "workers = 0"),
        (("--split", "nowhere"), "nowhere"),
        (("--candidates", "nowhere"), "no candidates in 'nowhere'"),
        (("--scorers", "beauty"), "no scorer named 'beauty'"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_settings_are_checked_before_a_folder_is_made(command, loaded, arguments, said, more):
    status, out, err = command(*RUN, *arguments, *more)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err
    assert loaded == []
    assert not Path("run").exists()


def test_a_folder_that_no_table_could_be_in_is_said_first(command, loaded):
    status, out, err = command(*RUN, "--out", "run\udcff")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "'run\\udcff'" in err
    assert loaded == []
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-n", 0), "n = 0"),
        (("--temperature", "1e-320"), "temperature = 1e-320"),
        (("--top-p", "nan"), "top_p = nan"),
        (("--seed", 2**64), "seed = "),
        (("--max-new-tokens", -1), "max_new_tokens = -1"),
    ],
)
def test_ask_checks_the_same_before_it_loads_a_model(command, monkeypatch, arguments, said):
    monkeypatch.setattr("lookback.engines.load", lambda *given, **more: pytest.fail("loaded"))
    status, out, err = command("ask", "no.png", "what?", *arguments)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err


def test_a_model_that_cannot_be_loaded_leaves_no_folder(monkeypatch, tmp_path):
    def load(plan):
        raise OSError("no such model")

    monkeypatch.setattr(Plan, "load_engine", load)
    with pytest.raises(OSError, match="no such model"):
        start(Plan("scenes-vqa", limit=2), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_is_refused_before_it_loads_a_model(loaded, tmp_path):
    from lookback.runs.locks import lock

    start(Plan("scenes-vqa", limit=2, n=2), tmp_path / "run")
    loaded.clear()
    held = lock(tmp_path / "run")
    with pytest.raises(RunError, match="another process is writing to"):
        start(Plan("scenes-vqa", limit=2, n=2), tmp_path / "run")
    held.release()
    assert loaded == []


def test_no_items_are_an_error(loaded, tmp_path, monkeypatch):
    monkeypatch.setattr(Plan, "items", lambda plan, benchmark: [])
    with pytest.raises(RunError, match="there are no items to ask about in scenes-vqa"):
        start(Plan("scenes-vqa"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class TestFilesOfOthers:
    """Names that look like leftovers: none of them is ours to touch."""

    NAMES = (".backup.2024", "lock", "lockers.txt", ".manifest.json.12", "items/.a.parquet.7")

    @pytest.fixture
    def folder(self, loaded, tmp_path):
        folder = tmp_path / "run"
        (folder / "items").mkdir(parents=True)
        for name in self.NAMES:
            (folder / name).write_text(f"mine: {name}")
        return folder

    @pytest.mark.parametrize("name", NAMES)
    def test_a_folder_with_any_of_them_is_no_place_for_a_run(self, command, loaded, tmp_path, name):
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True)
        path.write_text("mine")
        before = listing(tmp_path)
        status, _, err = command(*RUN)
        assert status == 1
        assert "'run' holds other files: name a new folder with --out" in err
        assert listing(tmp_path) == before
        assert loaded == []

    @pytest.mark.parametrize(
        "manifest", ["{}", "[]", "null", '{"name": "My app", "version": 3}', "\x00"]
    )
    def test_a_manifest_of_something_else(self, command, folder, manifest):
        (folder / "manifest.json").write_text(manifest)
        (folder / f"{TEMPORARY}x").write_text("even this")
        before = listing(folder)
        status, _, err = command(*RUN)
        assert (status, err.count("\n")) == (1, 1)
        assert "manifest" in err
        assert listing(folder) == before

    def test_a_run_of_other_settings(self, command, loaded, tmp_path):
        command(*RUN)
        for name in self.NAMES:
            (tmp_path / "run" / name).write_text("mine")
        (tmp_path / "run" / "items" / f"{TEMPORARY}00000.parquet.1").write_text("half")
        before = listing(tmp_path / "run")
        status, _, err = command(*RUN, "--seed", 7)
        assert status == 1
        assert "holds another run: its sampling is" in err
        assert listing(tmp_path / "run") == before

    def test_the_same_run_removes_only_its_own_leftovers(self, command, loaded, tmp_path):
        command(*RUN)
        folder = tmp_path / "run"
        for name in self.NAMES:
            (folder / name).write_text("mine")
        halves = [folder / f"{TEMPORARY}manifest.json.1", folder / f"items/{TEMPORARY}0.parquet.1"]
        (folder / "scores" / "usc@2").mkdir(parents=True)
        halves.append(folder / "scores" / "usc@2" / f"{TEMPORARY}00000.parquet.1")
        for half in halves:
            half.write_text("half")
        assert command(*RUN)[0] == 0
        assert all((folder / name).read_text() == "mine" for name in self.NAMES)
        assert not any(half.exists() for half in halves)

    def test_a_run_killed_at_its_very_start_goes_on(self, command, loaded, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / LOCK).write_text("")
        (tmp_path / "run" / f"{TEMPORARY}manifest.json.99").write_text("{")
        assert command(*RUN)[0] == 0
        assert not list((tmp_path / "run").glob(f"{TEMPORARY}*"))

    def test_a_file_is_no_folder(self, command, loaded, tmp_path):
        (tmp_path / "run").write_text("mine")
        status, _, err = command(*RUN)
        assert (status, err.count("\n")) == (1, 1)
        assert "'run' is no folder: name another with --out" in err


class TestEveryItemFailed:
    @pytest.fixture
    def broken(self, loaded, monkeypatch):
        """A benchmark none of whose images can be read while "broken" is true."""
        monkeypatch.setattr(BENCHMARKS, "entries", dict(BENCHMARKS.entries))
        state = {"broken": True}

        def load():
            if state["broken"]:
                raise OSError("no image")
            from engines.reference import noise

            return noise(0)

        @benchmark("blind", title="Blind")
        class Blind(MeanOfScores):
            primary, source, default_split = "length", "made up", "all"

            def __init__(self):
                self.notes = []

            def items(self, split="all", limit=None):
                return [Item(f"item-{i}", "why?", {}, load) for i in range(12)][:limit]

            def score(self, item, response):
                return 0.5

        return state

    BLIND = ("run", "--benchmark", "blind", "-n", 2, "--out", "run", "--scorers", "vauq")

    def test_is_not_finished(self, broken, command):
        status, out, err = command(*self.BLIND)
        assert (status, out) == (3, "run: 12 items, 0 candidates, 12 failed\n")
        run = Run("run")
        assert (run.manifest.status, run.finished) == ("failed", False)
        assert (run.manifest.done, run.manifest.failed) == (12, 12)
        status, out, err = command("study", "oracle", "run")
        assert (status, out) == (1, "")
        assert "every item failed" in err
        control = ("run", "--candidates", "run", "--image", "none", "--out", "control")
        status, _, err = command(*control)
        assert status == 1
        assert "'run' is without answers: run its command again first" in err

    def test_one_that_went_well_is_enough_to_be_finished(self, broken, command, monkeypatch):
        sample = ToyEngine.sample
        broken["broken"] = False

        def failing(self, *given, messages, **settings):
            if self.sampled:
                raise RuntimeError("out of memory")
            return sample(self, *given, messages=messages, **settings)

        monkeypatch.setattr(ToyEngine, "sample", failing)
        assert command(*self.BLIND)[0] == 3
        assert Run("run").finished

    @pytest.mark.parametrize("more", [(), ("--seed", 7, "--temperature", 0.5), ("--limit", 3)])
    def test_the_folder_takes_the_same_or_the_right_settings(self, broken, command, more):
        command(*self.BLIND)
        broken["broken"] = False
        status, out, err = command(*self.BLIND, *more)
        assert (status, "0 failed" in out) == (0, True)
        assert "every item of this run failed before: it begins anew" in err
        run = Run("run")
        assert run.finished
        if "--seed" in more:
            assert run.settings["sampling"]["seed"] == 7
        assert command(*self.BLIND, *more)[0] == 0  # and is held to them from now on
        status, _, err = command(*self.BLIND, "--seed", 8)
        assert (status, "holds another run" in err) == (1, True)


def test_nan_never_reaches_a_manifest(loaded, tmp_path):
    run = start(Plan("scenes-vqa", limit=2, n=2), tmp_path / "run").run
    settings = dict(run.manifest.settings) | {"sampling": {"temperature": float("nan")}}
    with pytest.raises(ValueError, match="JSON"):
        Manifest(settings, run.defaults, 2).write(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "finished"
    assert not list((tmp_path / "run").glob(f"{TEMPORARY}*"))


def test_a_study_of_nothing_is_refused_by_itself(loaded, tmp_path, monkeypatch):
    def sample(self, *given, **settings):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(ToyEngine, "sample", sample)
    run = start(Plan("scenes-vqa", limit=2, n=2), tmp_path / "run").run
    with pytest.raises(ValueError, match="have no candidates"):
        get_study("main")([run])


def test_an_estimate_needs_a_worker(loaded):
    with pytest.raises(RunError, match="workers = 0: must be at least 1"):
        estimate(Plan("scenes-vqa", limit=3), workers=0)
    assert loaded == []

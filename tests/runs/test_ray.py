"""Runs on a Ray cluster of this machine: the same bytes, whoever dies."""

import io
import json
import logging
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from documents import blocks, read
from test_producing import results
from timeouts import HANG_SECONDS
from toy_engine import ToyEngine

import lookback
from lookback.benchmarks.base import get_benchmark
from lookback.ray import Scorer
from lookback.registry import PLUGINS_VARIABLE
from lookback.runs import Run, ray_executor
from lookback.runs.layout import RunError
from lookback.runs.plan import Plan
from lookback.runs.ray_executor import Cluster, import_ray
from lookback.runs.sources import item_seed
from lookback.runs.start import start
from lookback.runs.verify import verify

# All in one process of the tests, whose cluster has the machine's two cores.
pytestmark = pytest.mark.xdist_group("ray")
TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
TOY = {"benchmark": "scenes-vqa", "limit": 35, "n": 2, "engine": "toy"}


@pytest.fixture(scope="module", autouse=True)
def ray():
    library = import_ray()
    # Ray's own limits, of 60 and 10 seconds.
    patient = {
        "worker_register_timeout_seconds": HANG_SECONDS,
        "health_check_timeout_ms": 1000 * HANG_SECONDS,
    }
    library.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _system_config=patient,
    )
    yield library
    library.shutdown()


@pytest.fixture(autouse=True)
def silent(monkeypatch):
    """However slow the cluster, nobody is told that it is waited for."""
    monkeypatch.setattr(ray_executor, "SILENCE", None)


@pytest.fixture
def plugins(monkeypatch):
    """A function that names plugins to this process and to actors."""

    def name(*plugins):
        monkeypatch.setenv(PLUGINS_VARIABLE, os.pathsep.join(plugins))
        monkeypatch.setenv("PYTHONPATH", str(TESTS))  # there actors find modules of tests

    return name


@pytest.fixture
def mortal(monkeypatch, tmp_path, plugins):
    """A function that lets the first actors die at a write of theirs; the folder of their marks."""

    def name(number, lives, *others):
        folder = tmp_path / "dead"
        folder.mkdir()
        told = f"{os.getpid()} {folder} {number} {lives}"
        monkeypatch.setenv("LOOKBACK_TEST_MORTAL", told)
        plugins(str(TESTS / "runs" / "mortal.py"), *others)
        return folder

    return name


def test_a_killed_actor_loses_nothing(tmp_path, mortal):
    """The embedded model; an actor dies with half a shard written."""
    settings = {"n": 3, "max_new_tokens": 8, "limit": 15, "scorers": ("vauq",), "look": 12}
    plan = Plan("scenes-vqa", **settings)
    dead = mortal(4, 1)
    said, told = [], []
    summary = start(
        plan,
        tmp_path / "run",
        workers=2,
        cluster=Cluster(),
        say=said.append,
        progress=lambda *count: told.append(count),
    )
    assert len(list(dead.iterdir())) == 1
    (death,) = said
    assert "a worker on node " in death
    assert "shard " in death
    assert "is made again" in death
    # In the end all is counted once; what a dead worker told before may not even have come.
    assert told[-1] == (45, 45)
    assert (summary.worked, summary.failed) == (45, [])
    start(plan, tmp_path / "alone")
    assert len(results(tmp_path / "run")) == 4 * 2
    assert results(tmp_path / "run") == results(tmp_path / "alone")
    found = verify(tmp_path / "run")
    assert (found.problems, found.unrecorded_timings) == ([], 0)
    assert Run(tmp_path / "run").finished
    stages = [row["stage"] for row in Run(tmp_path / "run").timings()]
    assert (stages.count("sample"), stages.count("vauq"), stages.count("look")) == (15, 15, 12)


def test_a_shard_that_kills_every_worker_ends_the_run(tmp_path, mortal, plugins):
    mortal(2, 99, "toy_engine")
    with pytest.raises(RunError, match=r"a worker on node \S+ died at shard \d, 4 times in a row"):
        start(Plan(**TOY), tmp_path / "run", workers=1, cluster=Cluster())
    assert not Run(tmp_path / "run").finished
    plugins("toy_engine")
    start(Plan(**TOY), tmp_path / "run", workers=1, cluster=Cluster())
    start(Plan(**TOY), tmp_path / "whole")
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_the_command(tmp_path, command, plugins, monkeypatch):
    """Scorers are added by actors that share no disk with the run; stdout has the result alone."""
    plugins("toy_engine")
    monkeypatch.chdir(tmp_path)
    small = ("run", "--benchmark", "scenes-vqa", "--limit", 25, "-n", 2, "--engine", "toy")
    code, out, _ = command(*small, "--out", "run", "--ray", "--workers", 2, "--json")
    assert code == 0
    assert json.loads(out)["worked"] == 25
    more = (*small, "--scorers", "usc@2,vauq", "--look", 15)
    code, out, _ = command(*more, "--out", "run", "--workers", 2, "--json", "--ray")
    assert (code, json.loads(out)["worked"]) == (0, 75)
    assert command(*more, "--out", "alone")[0] == 0
    assert results(tmp_path / "run") == results(tmp_path / "alone")
    assert len(results(tmp_path / "run")) == 5 * 3


def test_what_goes_wrong_in_an_actor_is_a_line(tmp_path, command, plugins):
    plugins("toy_engine")
    small = ("run", "--benchmark", "scenes-vqa", "--limit", 2, "--engine", "toy")
    code, out, err = command(*small, "--out", tmp_path / "run", "--ray", "--dtype", "float16")
    assert (code, out) == (1, "")
    assert err.startswith("lookback: engine 'toy' has no setting 'dtype'")
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


class TestScorer:
    """`lookback.ray.Scorer` in Ray Data: the numbers of `sample` and `score`, row by row."""

    QUESTION = "What color is the circle?"

    @pytest.fixture(autouse=True)
    def quiet(self, ray):
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)

    @pytest.fixture
    def picture(self):
        stored = io.BytesIO()
        get_benchmark("scenes-vqa").items("test")[0].image.save(stored, "PNG")
        return stored.getvalue()

    def test_the_page(self, ray, picture, tmp_path):
        """The example of docs/scale.md, with the embedded model: the numbers of `lb.sample`."""
        (block,) = blocks(read(ROOT / "docs" / "scale.md"), "python")
        photo = tmp_path / "photo.jpg"
        photo.write_bytes(picture)
        exec(block.replace("/data", str(tmp_path)), {})
        (row,) = pq.read_table(tmp_path / "scored").to_pylist()
        assert row["error"] is None
        seed = item_seed(42, "table")
        lb = lookback.load()
        drawn = lb.sample(photo, "What is on the table?", 5, seed=seed, max_new_tokens=16)
        assert list(row["responses"]) == [one.text for one in drawn]
        np.testing.assert_allclose(list(row["scores"]), drawn.scores("lookback"), rtol=1e-5)
        for found, one in zip(row["visual_lookback"], drawn, strict=True):
            np.testing.assert_allclose(found, one.visual_lookback, rtol=1e-5)
        assert row["best"] == drawn.best("lookback").text

    def test_rows_are_scored_and_drawn(self, ray, picture, plugins, tmp_path):
        plugins("toy_engine")
        (tmp_path / "picture.png").write_bytes(picture)
        rows = [
            {"image": picture, "question": self.QUESTION, "responses": ["red", "blue dog", ""]},
            {"image": b"no picture", "question": self.QUESTION, "responses": ["red"]},
            {"image": picture, "question": "And now?", "responses": None},
            {"image": picture, "question": "Nothing?", "responses": [" "]},
        ]
        rows = [{"id": f"row-{i}", "kept": i} | row for i, row in enumerate(rows)]
        settings = {"engine": "toy", "n": 4, "signals": ["visual_lookback", "tokens"]}
        variables = {PLUGINS_VARIABLE: "toy_engine", "PYTHONPATH": f"{TESTS}{os.pathsep}{ROOT}"}
        found = (
            ray.data.from_arrow(pa.Table.from_pylist(rows))
            .map_batches(
                Scorer,
                fn_constructor_kwargs=settings,
                batch_size=2,
                concurrency=1,
                runtime_env={"env_vars": variables},
            )
            .take_all()
        )
        found.sort(key=lambda row: row["kept"])
        engine = ToyEngine()
        scored = engine.score(picture, self.QUESTION, ["red", "blue dog"])
        drawn = engine.sample(picture, "And now?", 4, seed=item_seed(42, "row-2"))
        first, broken, third, empty = found
        assert first["responses"] == ["red", "blue dog", ""]
        assert first["scores"] == [*scored.scores("lookback"), None]
        assert first["best"] == scored.best("lookback").text
        assert first["best_index"] == scored.best("lookback").index
        assert first["tokens"] == [list(one.tokens) for one in scored] + [[]]
        assert third["responses"] == [one.text for one in drawn]
        expected = [None if np.isnan(one) else one for one in drawn.scores("lookback")]
        assert third["scores"] == expected
        looked = [one.visual_lookback.tolist() for one in drawn]
        assert third["visual_lookback"] == looked
        assert broken["error"].startswith("ValueError: ")
        assert (broken["scores"], broken["best"], broken["best_index"]) == (None, None, None)
        assert "all 1 responses are empty" in empty["error"]
        assert (first["error"], third["error"]) == (None, None)
        assert [row["image"] for row in found] == [row["image"] for row in rows]

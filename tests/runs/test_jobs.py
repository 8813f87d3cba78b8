"""One run made by several jobs (`--shard 1/3`): read together it is the run of one process."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from test_producing import ITEMS, results
from toy_engine import ToyEngine

from lookback.benchmarks.base import Item, get_benchmark
from lookback.runs import Run, open_run, open_runs
from lookback.runs.estimate import estimate
from lookback.runs.layout import RunError, shard_path
from lookback.runs.locks import lock
from lookback.runs.manifest import Job, Manifest
from lookback.runs.plan import Plan
from lookback.runs.start import start
from lookback.runs.verify import verify

COUNT = 2
"""Jobs, for three shards: they do not have equally many."""


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    made = ToyEngine()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: made)
    return made


def plan(**settings):
    return Plan(**({"benchmark": "scenes-vqa", "limit": ITEMS, "n": 4} | settings))


def work(out, index, count=COUNT, given=None, **more):
    return start(given or plan(), out, job=Job(index, count), **more)


def together(folder):
    """The results of all jobs."""
    found = [results(part) for part in folder.iterdir()]
    assert sum(map(len, found)) == len(set().union(*found))  # no shard twice
    return {name: data for one in found for name, data in one.items()}


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_jobs_make_the_bytes_of_one_process(tmp_path, count):
    """With 5 jobs for 3 shards, two have nothing to do; they are done too."""
    given = plan(scorers=("usc@2",), look=12)
    whole = start(given, tmp_path / "whole").run
    for index in reversed(range(count)):
        assert not (tmp_path / "run").exists() or not Run(tmp_path / "run").finished
        work(tmp_path / "run", index, count, given)
    assert together(tmp_path / "run") == results(tmp_path / "whole")
    run = open_run(tmp_path / "run")
    assert run.finished
    assert replace(run.manifest, created="") == replace(whole.manifest, created="")
    assert run.items.equals(whole.items)
    assert run.head.equals(whole.head)
    assert (run.id, run.ids) == (whole.id, whole.ids)
    np.testing.assert_array_equal(run.scores("lookback"), whole.scores("lookback"))
    np.testing.assert_array_equal(run.scores("usc", 2), whole.scores("usc", 2))
    assert [c.text for c in run.candidates(21)] == [c.text for c in whole.candidates(21)]
    assert len(run.looks) == len(whole.looks) > 0
    assert [r["item"] for r in run.timings()] == [r["item"] for r in whole.timings()]
    assert [one.path for one in open_runs([tmp_path])] == [tmp_path / "run", tmp_path / "whole"]


def test_the_same_job_again_does_nothing(tmp_path, engine):
    assert work(tmp_path / "run", 0).worked == 13
    before = together(tmp_path / "run")
    engine.sampled.clear()
    assert work(tmp_path / "run", 0).worked == 0
    assert (engine.sampled, together(tmp_path / "run")) == ([], before)


def test_jobs_do_not_wait_for_each_other(tmp_path):
    """A job is locked out by itself alone."""
    work(tmp_path / "run", 0)
    held = lock(tmp_path / "run" / "job-0-of-2")
    with pytest.raises(RunError, match="another process is writing"):
        work(tmp_path / "run", 0)
    work(tmp_path / "run", 1)
    held.release()


def test_a_run_of_which_jobs_are_missing(tmp_path, command):
    work(tmp_path / "run", 1)
    run = Run(tmp_path / "run")
    assert not run.finished
    assert (run.manifest.items, run.places.tolist()) == (ITEMS, list(range(10, 20)))
    status, out, err = command("study", "oracle", tmp_path / "run", "--json")
    assert (status, err.count("is not finished: the numbers are of a part")) == (0, 1)
    assert max(row["items"] for row in json.loads(out)["rows"]) == 10
    status, out, _ = command("runs", "verify", tmp_path / "run")
    assert (status, out.endswith("running, 1 of 3 shards, 2 tables, all as written\n")) == (0, True)
    with pytest.raises(RunError, match="not finished: run its command again first"):
        start(plan(candidates=str(tmp_path / "run"), image="none"), tmp_path / "control")


def test_controls_and_scorers(tmp_path):
    """A control of a run of jobs, made by jobs: the same as of one process each."""
    start(plan(), tmp_path / "whole")
    for index in range(COUNT):
        work(tmp_path / "run", index)
    for image in ("random", "none"):
        control = {"image": image, "scorers": ("usc@2",)}
        start(plan(candidates=str(tmp_path / "whole"), **control), tmp_path / f"whole-{image}")
        for index in range(COUNT):
            given = plan(candidates=str(tmp_path / "run"), **control)
            work(tmp_path / f"jobs-{image}", index, given=given)
        assert together(tmp_path / f"jobs-{image}") == results(tmp_path / f"whole-{image}")
        assert Run(tmp_path / f"jobs-{image}").controls == Run(tmp_path / "run").id


def test_scorers_that_only_some_jobs_have(tmp_path):
    for index in range(COUNT):
        work(tmp_path / "run", index)
    work(tmp_path / "run", 1, given=plan(scorers=("usc@2",)))
    run = Run(tmp_path / "run")
    assert (run.finished, run.recorded) == (False, ["usc@2"])
    with pytest.raises(RunError, match=r"no usc@2 scores yet for 13 of its items"):
        run.scores("usc", 2)
    work(tmp_path / "run", 0, given=plan(scorers=("usc@2",)))
    assert Run(tmp_path / "run").finished
    start(plan(scorers=("usc@2",)), tmp_path / "whole")
    assert together(tmp_path / "run") == results(tmp_path / "whole")


@pytest.mark.parametrize("first", range(COUNT))
def test_looks_that_only_one_job_has(tmp_path, first):
    given = plan(look=12)
    for index in range(COUNT):
        work(tmp_path / "run", index, given=given if index == first else None)
    run = Run(tmp_path / "run")
    assert (run.finished, run.manifest.looks) == (False, 12)
    work(tmp_path / "run", 1 - first, given=given)
    assert Run(tmp_path / "run").finished
    start(given, tmp_path / "whole")
    assert together(tmp_path / "run") == results(tmp_path / "whole")


def test_items_that_failed_are_tried_again(tmp_path, monkeypatch):
    items = list(get_benchmark("scenes-vqa").items("test", ITEMS))

    def broken():
        raise ValueError("no image")

    bad = [Item(i.id, i.question, i.truth, broken) for i in items[10:20]]
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "items", lambda plan, benchmark: [*items[:10], *bad, *items[20:]])
        for index in range(COUNT):
            work(tmp_path / "run", index)
    run = Run(tmp_path / "run")
    assert (run.manifest.status, run.manifest.failed, len(run.places)) == ("finished", 10, 13)
    assert [m.status for _, m in run.folders.parts] == ["finished", "failed"]
    work(tmp_path / "run", 1, retry_failed=True)
    assert Run(tmp_path / "run").manifest.failed == 0
    start(plan(), tmp_path / "whole")
    assert together(tmp_path / "run") == results(tmp_path / "whole")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"seed": 43}, r"sampling of job 0/2 is .*\"seed\": 42.*, of job 1/2 .*\"seed\": 43"),
        ({"limit": 24}, "limit of job 0/2 is 23, of job 1/2 24"),
        ({"look": 3}, "job 0/2 has looks of the first 2 items, job 1/2 of 3"),
    ],
)
def test_jobs_of_other_settings_are_refused(tmp_path, other, said):
    work(tmp_path / "run", 0, given=plan(look=2))
    with pytest.raises(RunError, match=said):
        work(tmp_path / "run", 1, given=plan(**{"look": 2} | other))
    assert not (tmp_path / "run" / "job-1-of-2" / "manifest.json").exists()
    work(tmp_path / "other", 1, given=plan(**{"look": 2} | other))  # both began at once
    shutil.rmtree(tmp_path / "run" / "job-1-of-2")
    shutil.copytree(tmp_path / "other" / "job-1-of-2", tmp_path / "run" / "job-1-of-2")
    with pytest.raises(RunError, match=said):
        Run(tmp_path / "run")


def test_folders_that_are_no_jobs_of_this_run(tmp_path):
    work(tmp_path / "run", 0)
    with pytest.raises(RunError, match="holds jobs of 2 and of 3"):
        work(tmp_path / "run", 1, 3)
    with pytest.raises(RunError, match="that 2 jobs make: go on with --shard INDEX/2"):
        start(plan(), tmp_path / "run")
    start(plan(), tmp_path / "plain")
    with pytest.raises(RunError, match="begun without --shard"):
        work(tmp_path / "plain", 0)
    shutil.copytree(tmp_path / "run" / "job-0-of-2", tmp_path / "run" / "job-1-of-2")
    with pytest.raises(RunError, match="holds job 0/2, not job 1/2: was it renamed"):
        Run(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "job-1-of-2")
    shutil.copytree(tmp_path / "plain", tmp_path / "run" / "job-1-of-2")
    with pytest.raises(RunError, match="holds a run without jobs, not job 1/2"):
        Run(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shards": [0]}, "jobs 0/2 and 1/2 both have shard 0"),
        ({"job": Job(1, 2, items=24, shards=3)}, "number of items of job 0/2 is 23, of job 1/2 24"),
        ({"job": Job(1, 2, items=23, shards=4)}, "number of shards of job 0/2 is 3, of job 1/2 4"),
        ({"left_out": 1}, "left out of job 0/2 is 0, of job 1/2 1"),
        ({"scorers": {"usc@2": {"m": 5}}}, r"usc@2 scores of job 0/2 .*, of job 1/2 with .*5"),
        ({"done": 9}, "the jobs have 22 items in 3 shards, the run 23 in 3"),
        ({"shards": []}, "the jobs have 23 items in 2 shards, the run 23 in 3"),
    ],
)
def test_jobs_that_do_not_make_one_run(tmp_path, changes, said):
    for index in range(COUNT):
        work(tmp_path / "run", index, given=plan(scorers=("usc@2",)))
    folder = tmp_path / "run" / "job-1-of-2"
    replace(Manifest.read(folder), **changes).write(folder)
    with pytest.raises(RunError, match=said):
        Run(tmp_path / "run")


def test_a_run_began_when_its_first_job_did(tmp_path):
    for index, created in enumerate(("2026-01-02", "2026-01-01")):
        work(tmp_path / "run", index)
        folder = tmp_path / "run" / f"job-{index}-of-2"
        replace(Manifest.read(folder), created=created).write(folder)
    assert Run(tmp_path / "run").manifest.created == "2026-01-01"


def test_jobs_all_of_whose_items_failed(tmp_path, monkeypatch):
    """The run has failed; while there is no other job, one may begin anew with other settings."""
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "items", lambda plan, benchmark: [Item("a", "why?", {}, int)] * 11)
        for index in range(COUNT):
            work(tmp_path / "run", index)
    run = Run(tmp_path / "run")
    assert (run.manifest.status, run.manifest.failed, run.finished) == ("failed", 11, False)
    shutil.rmtree(tmp_path / "run" / "job-1-of-2")
    assert work(tmp_path / "run", 0, given=plan(seed=7)).failed == []


def test_timings_of_all_jobs_are_verified(tmp_path):
    for index in range(COUNT):
        work(tmp_path / "run", index, given=plan(scorers=("usc@2",)))
        shutil.rmtree(tmp_path / "run" / f"job-{index}-of-2" / "timings" / "shards")
    found = verify(tmp_path / "run")
    assert (found.ok, found.unrecorded_timings) == (True, 2 * 3)


def test_damage_in_a_job_is_named_and_mended(tmp_path, command):
    for index in range(COUNT):
        work(tmp_path / "run", index)
    before = together(tmp_path / "run")
    path = shard_path(tmp_path / "run" / "job-1-of-2", "candidates", 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    (problem,) = verify(tmp_path / "run").problems
    assert problem.file == "job-1-of-2/candidates/00001.parquet"
    with pytest.raises(RunError, match=r"job-1-of-2' is damaged: candidates/00001\.parquet"):
        Run(tmp_path / "run").quality()
    status, out, _ = command("runs", "verify", tmp_path / "run")
    assert (status, out.endswith("finished, 3 shards, 6 tables, 1 problems\n")) == (1, True)
    work(tmp_path / "run", 1)
    assert together(tmp_path / "run") == before
    assert verify(tmp_path / "run").ok


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("16/16", "jobs are counted from 0, so those of 16 are 0/16 to 15/16"),
        ("0/0", "there are 1 to 100000 jobs"),
        ("0/100001", "there are 1 to 100000 jobs"),
        *((text, "write INDEX/COUNT") for text in ("3", "3/", "-1/4", "a/b", "1.0/4", "٣/4", "")),
    ],
)
def test_shards_that_are_none(text, said, command):
    with pytest.raises(RunError, match=said):
        Job.parse(text)
    status, _, err = command("run", "--benchmark", "scenes-vqa", "--shard", text)
    assert (status, err.count("\n"), said in err) == (1, 1, True)


def test_every_shard_is_made_by_one_job():
    shards = [0, 2, 3, 5, 8, 13, 21]
    for count in range(1, 10):
        shares = [Job(index, count).share(shards) for index in range(count)]
        assert sorted(s for share in shares for s in share) == shards
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("name", ["job-1-of-16", "job-16-of-16", "job-01-of-2", "job-0-of-0", "x"])
def test_other_names_are_no_jobs(name):
    assert Job.of_folder(name) is None


def test_a_manifest_says_which_job_it_is(tmp_path):
    work(tmp_path / "run", 1)
    manifest = Manifest.read(tmp_path / "run" / "job-1-of-2")
    assert manifest.job == Job(1, 2, items=ITEMS, shards=3)
    assert "job" not in (start(plan(), tmp_path / "w").run.path / "manifest.json").read_text()


def test_an_estimate_is_of_the_job():
    assert estimate(plan(), job=Job(0, 2)).items == 13

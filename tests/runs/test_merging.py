"""`runs merge` and `runs status`: one plain run of what jobs made, and what is still to be made."""

import json
from dataclasses import replace

import pytest
from interrupting import interrupted
from made_runs import change_manifest, make_run
from test_formats import downgrade
from test_jobs import plan, work
from test_producing import results
from toy_engine import ToyEngine

from lookback.runs import Run
from lookback.runs.layout import RunError, shard_path
from lookback.runs.manifest import MANIFEST, Manifest
from lookback.runs.merge import merge
from lookback.runs.plan import Plan
from lookback.runs.records import record_path
from lookback.runs.start import start
from lookback.runs.status import ranges, read_status
from lookback.runs.verify import verify

GIVEN = plan(scorers=("usc@2",), look=12)


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    made = ToyEngine()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: made)
    return made


@pytest.fixture
def jobs(tmp_path):
    """A run of three shards by two jobs, and beside it the same by one process."""
    start(GIVEN, tmp_path / "whole")
    for index in range(2):
        work(tmp_path / "run", index, given=GIVEN)
    return tmp_path / "run"


def files(folder):
    """Every byte of a run, but for timings and the time in the manifest."""
    found = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and "timings" not in file.parts and not file.name.startswith(".")
    }
    manifest = json.loads(found.pop(MANIFEST))
    del manifest["created"], manifest["checksum"]
    return found | {MANIFEST: manifest}


def test_merged_it_is_the_run_of_one_process(jobs, tmp_path, command):
    before = results(jobs / "job-0-of-2")
    status, out, _ = command("runs", "merge", jobs)
    merged = tmp_path / "run-merged"
    assert (status, out) == (0, f"{merged}: 23 items, 3 shards, 0 failed\n")
    assert files(merged) == files(tmp_path / "whole")
    assert len(files(merged)) == 1 + 3 + 4 * 3
    stages = [(row["stage"], row["item"]) for row in Run(merged).timings()]
    assert stages == [(row["stage"], row["item"]) for row in Run(tmp_path / "whole").timings()]
    assert results(jobs / "job-0-of-2") == before
    assert start(GIVEN, merged).worked == 0  # the plain command goes on with it


def test_merging_again_does_nothing_and_mends_damage(jobs, tmp_path, command):
    out = tmp_path / "merged"
    merge(jobs, out)
    # A file that takes its place is another one on the disk, within one tick of the clock too.
    found = {path: path.stat().st_ino for path in out.glob("c*/*.parquet")}
    merge(jobs, out)
    assert {path: path.stat().st_ino for path in out.glob("c*/*.parquet")} == found
    shard_path(out, "candidates", 1).write_bytes(b"x")
    merge(jobs, out)
    assert files(out) == files(tmp_path / "whole")
    status, printed, _ = command("runs", "merge", jobs, "--out", out, "--json")
    told = json.loads(printed)
    assert (status, told["items"], told["status"], told["id"]) == (0, 23, "finished", Run(out).id)


def test_timings_come_with_their_records_and_damaged_ones_are_named(jobs, tmp_path):
    merge(jobs, tmp_path / "merged")
    assert verify(tmp_path / "merged").unrecorded_timings == 0
    path = jobs / "job-1-of-2" / "timings" / "sample-00001.json"
    path.write_text(path.read_text().replace("sample", "simple"))
    with pytest.raises(RunError, match=path.name):
        merge(jobs, tmp_path / "other")


def test_wherever_a_merge_is_interrupted_it_ends_with_the_same_bytes(jobs, tmp_path, monkeypatch):
    writes = 2 + 3 * (4 + 1) + 9 + 3  # the manifest twice, tables and records, timings and records
    for stop in range(writes):
        for after in (False, True):
            folder = tmp_path / f"{stop}-{after}"
            with interrupted(monkeypatch, stop, after):
                merge(jobs, folder)
            if (folder / MANIFEST).exists() and (stop, after) != (writes - 1, True):
                assert not Run(folder).finished
                assert verify(folder).problems == []
            merge(jobs, folder)
            assert files(folder) == files(tmp_path / "whole")


def test_what_cannot_be_merged(jobs, tmp_path):
    with pytest.raises(RunError, match="is one run already"):
        merge(tmp_path / "whole", tmp_path / "out")
    with pytest.raises(RunError, match="no run in"):
        merge(tmp_path / "nowhere", tmp_path / "out")
    work(tmp_path / "part", 1, 3)
    with pytest.raises(RunError, match=r"is not finished: run .*INDEX/3` for INDEX 0,2, then"):
        merge(tmp_path / "part", tmp_path / "out")
    start(plan(seed=7), tmp_path / "other")
    with pytest.raises(RunError, match="holds another run: its sampling is"):
        merge(jobs, tmp_path / "other")
    start(plan(scorers=("usc@2", "vauq"), look=12), tmp_path / "more")
    with pytest.raises(RunError, match="has vauq scores that the jobs have not"):
        merge(jobs, tmp_path / "more")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a.tex").write_text("x")
    with pytest.raises(RunError, match="holds other files"):
        merge(jobs, tmp_path / "thesis")
    path = shard_path(jobs / "job-1-of-2", "items", 1)
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(RunError, match=r"job-1-of-2.*is damaged.*run its job again, then merge"):
        merge(jobs, tmp_path / "out")
    assert not Run(tmp_path / "out").finished


class TestStatus:
    def test_of_a_finished_run(self, tmp_path, command):
        start(plan(), tmp_path / "run")
        status, out, err = command("runs", "status", tmp_path / "run")
        line = f"{tmp_path / 'run'}: finished, 23 of 23 items tried, 0 failed, 0 missing\n"
        assert (status, out, err) == (0, line, "")

    def test_of_a_run_that_was_stopped(self, tmp_path, command):
        start(plan(), tmp_path / "run")
        record_path(tmp_path / "run", 1).unlink()
        manifest = Manifest.read(tmp_path / "run")
        replace(manifest, status="running", done=0).write(tmp_path / "run")
        status, out, err = command("runs", "status", tmp_path / "run")
        assert status == 3
        assert "running, 13 of 23 items tried, 0 failed, 10 missing" in out
        assert "run the same `lookback run` again" in err

    def test_failures_are_counted(self, tmp_path):
        run = make_run(tmp_path / "run", items=12, n=2, failed=(3, 11))
        assert (read_status(run.path).whole.failed, read_status(run.path).complete) == (2, False)
        change_manifest(run.path, status="running", failed=0, done=0)
        found = read_status(run.path).whole
        assert (found.status, found.done, found.failed) == ("running", 12, 2)

    def test_of_jobs(self, jobs, tmp_path, command):
        work(tmp_path / "part", 1, 4, given=plan(look=12))
        work(tmp_path / "part", 2, 4)
        status, out, err = command("runs", "status", tmp_path / "part", "--json")
        (told,) = json.loads(out)
        assert (status, told["status"], told["items"], told["done"]) == (3, "running", 23, 13)
        assert (told["missing"], told["open_jobs"]) == (10, [0, 2, 3])  # 2 has no looks
        assert [job["status"] for job in told["jobs"]] == [
            *("missing", "finished", "finished", "missing"),
        ]
        assert told["unscored"] == {"looks": 3}
        assert told["jobs"][2]["shard"] == "2/4"
        status, out, err = command("runs", "status", tmp_path / "part")
        assert "1 of 4 jobs are done" in out
        assert "looks: missing for 3 of the items tried" in out
        assert "run `lookback run --shard INDEX/4` for INDEX 0,2-3 (no looks in some)" in err
        status, out, _ = command("runs", "status", jobs)
        assert (status, "2 of 2 jobs are done" in out) == (0, True)

    def test_of_an_older_format(self, tmp_path):
        run = make_run(tmp_path / "old", items=12, n=3, failed=(3,))
        downgrade(run.path)
        found = read_status(run.path)
        assert (found.whole.done, found.whole.failed, found.missing) == (12, 1, 0)

    def test_damage_is_said(self, jobs, command):
        shard_path(jobs / "job-0-of-2", "items", 0).unlink()
        status, out, err = command("runs", "status", jobs)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert "items/00000.parquet is missing" in err

    def test_many_jobs_fit_on_a_screen(self, tmp_path, command, monkeypatch):
        monkeypatch.setenv("COLUMNS", "60")
        monkeypatch.chdir(tmp_path)
        work(tmp_path / "run", 3, 1000)
        _, out, err = command("runs", "status", "run")
        assert max(map(len, out.splitlines())) <= 62
        assert "and 979 more: --json has all" in out
        assert "for INDEX 0-2,4-999" in err


def test_ranges():
    assert ranges([]) == ""
    assert ranges([0, 3, 4, 5, 9, 10]) == "0,3-5,9-10"

"""`runs merge` and `runs status`: one plain run of what jobs made, and what is still to be made."""

import json
import shutil
from dataclasses import replace

import pytest
from interrupting import interrupted
from made_runs import change_manifest, make_run
from test_jobs import plan, work
from test_producing import results
from toy_engine import ToyEngine

from lookback.runs import Run
from lookback.runs.layout import TEMPORARY, RunError, shard_path
from lookback.runs.locks import lock
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


def test_merging_again_takes_what_the_jobs_gained(tmp_path):
    out, whole = tmp_path / "merged", tmp_path / "whole"
    for given in (plan(), plan(scorers=("usc@2",)), GIVEN):
        for index in range(2):
            work(tmp_path / "run", index, given=given)
        merge(tmp_path / "run", out)
        start(given, whole)
        assert files(out) == files(whole)
        stages = {row["stage"] for row in Run(out).timings()}
        assert stages == {row["stage"] for row in Run(whole).timings()}
        assert verify(out).ok


def test_a_flipped_bit_in_the_target_is_mended(jobs, tmp_path):
    out = tmp_path / "merged"
    merge(jobs, out)
    path = shard_path(out, "items", 2)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    merge(jobs, out)
    assert files(out) == files(tmp_path / "whole")


def test_what_a_killed_merge_left_is_removed(jobs, tmp_path):
    out = tmp_path / "merged"
    merge(jobs, out)
    half = out / "items" / f"{TEMPORARY}00001.parquet.1"
    half.write_text("half")
    merge(jobs, out)
    assert not half.exists()


def test_a_file_too_many_in_the_target_is_named_and_all_is_left(jobs, tmp_path):
    out = tmp_path / "merged"
    merge(jobs, out)
    shard_path(out, "candidates", 0).write_bytes(b"x")  # would be mended
    shard_path(out, "candidates", 3).write_bytes(b"mine")
    before = files(out)
    with pytest.raises(RunError, match=r"candidates/00003\.parquet is no part of this run"):
        merge(jobs, out)
    assert files(out) == before


def test_two_merges_into_one_folder_are_refused(jobs, tmp_path):
    out = tmp_path / "merged"
    out.mkdir()
    held = lock(out)
    with pytest.raises(RunError, match="another process is writing to"):
        merge(jobs, out)
    held.release()
    assert merge(jobs, out).finished


def test_shards_that_were_made_again_replace_those_of_before(tmp_path, monkeypatch):
    """Wherever the second merge is interrupted, no record vouches for tables of both."""
    given = plan(limit=8)
    with monkeypatch.context() as patch:
        sample = ToyEngine.sample

        def failing(self, *asked, **settings):
            found = sample(self, *asked, **settings)
            if len(self.sampled) == 3:
                raise RuntimeError("out of memory")
            return found

        patch.setattr(ToyEngine, "sample", failing)
        work(tmp_path / "run", 0, 1, given=given)
    before = merge(tmp_path / "run", tmp_path / "before")
    assert before.manifest.failed == 1
    work(tmp_path / "run", 0, 1, given=given, retry_failed=True)
    start(given, tmp_path / "whole")
    for stop in range(1 + 2 + 1):  # the manifest, tables and their record
        out = shutil.copytree(before.path, tmp_path / str(stop))
        with interrupted(monkeypatch, stop, after=True):
            merge(tmp_path / "run", out)
        assert verify(out).problems == []
        manifest = Manifest.read(out)
        assert (manifest.status, manifest.done, manifest.failed) == ("running", 0, 0)
        merge(tmp_path / "run", out)
        assert files(out) == files(tmp_path / "whole")


def test_a_merge_tells_how_many_shards_are_done(jobs, tmp_path):
    told = []
    merge(jobs, tmp_path / "merged", progress=lambda *count: told.append(count))
    assert told == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize("job", range(2))
def test_jobs_with_different_versions_are_told_of(jobs, tmp_path, job):
    said = []
    merge(jobs, tmp_path / "same", say=said.append)
    assert said == []
    folder = jobs / f"job-{job}-of-2"
    manifest = Manifest.read(folder)
    replace(manifest, versions=dict(manifest.versions) | {"cuda": "13.5"}).write(folder)
    merge(jobs, tmp_path / "other", say=said.append)
    (line,) = said
    assert "cuda" in line
    assert f"job {job}/2" in line.split("13.5")[0].split(", ")[-1]


def test_a_table_that_a_job_lost_is_named_before_anything_is_copied(jobs, tmp_path):
    shard_path(jobs / "job-1-of-2", "looks", 1).unlink()
    with pytest.raises(RunError, match=r"job-1-of-2.*looks/00001\.parquet is missing"):
        merge(jobs, tmp_path / "out")
    assert list((tmp_path / "out").rglob("*.parquet")) == []


def test_a_target_with_looks_takes_no_jobs_without(tmp_path):
    for index in range(2):
        work(tmp_path / "run", index)
    start(plan(look=12), tmp_path / "out")
    before = files(tmp_path / "out")
    with pytest.raises(RunError, match="looks that the jobs have not"):
        merge(tmp_path / "run", tmp_path / "out")
    assert files(tmp_path / "out") == before


def test_jobs_of_which_one_has_no_looks_are_not_merged(tmp_path):
    for index, look in enumerate((12, 0)):
        work(tmp_path / "run", index, given=plan(look=look))
    with pytest.raises(RunError, match=r"is not finished: run .*INDEX/2` for INDEX 1 \(no looks"):
        merge(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


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

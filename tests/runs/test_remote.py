"""Runs in an object store: the same bytes as on disk, and the same promises.

What is quick is tried in `memory://`, and once against an S3 server of this machine.
"""

import json
import os
import platform
import signal
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from s3_server import make_bucket
from test_producing import ITEMS, plan, results
from toy_engine import ToyEngine

from lookback.io.storage import RemotePath, names_in, to_path
from lookback.report import report
from lookback.runs import Run, open_run, open_runs
from lookback.runs.layout import LOCK, TEMPORARY, RunError, shard_path
from lookback.runs.locks import lock
from lookback.runs.manifest import Job
from lookback.runs.merge import merge
from lookback.runs.plan import Plan
from lookback.runs.start import start
from lookback.runs.status import read_status
from lookback.runs.verify import verify
from lookback.studies import Runs

GIVEN = plan(scorers=("usc@2",), look=12)
TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    made = ToyEngine()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: made)
    return made


@pytest.fixture(params=["memory", "s3"])
def store(request):
    """The address of an empty folder."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}"
    request.getfixturevalue("s3_server")
    return make_bucket()


@pytest.fixture
def memory():
    return to_path(f"memory://{uuid.uuid4().hex}")


def files(folder):
    """Every byte below a folder, by the way to it."""
    if isinstance(folder, Path):
        found = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
    found = {}
    for path in folder.iterdir():
        inner = {path.name: path.read_bytes()} if path.is_file() else files(path)
        found |= inner if path.is_file() else {f"{path.name}/{n}": d for n, d in inner.items()}
    return found


def steady(found):
    """The same without what differs from making to making: timings, and when it began."""
    kept = {name: data for name, data in found.items() if "timings/" not in name}
    for name in [name for name in kept if name.endswith("manifest.json")]:
        manifest = json.loads(kept[name])
        del manifest["created"], manifest["checksum"]
        kept[name] = manifest
    return kept


def test_a_run_has_the_bytes_of_one_on_disk(store, tmp_path):
    whole = start(GIVEN, tmp_path / "run").run
    summary = start(GIVEN, f"{store}/run")
    assert (summary.worked, summary.failed) == (3 * ITEMS, [])
    there = to_path(f"{store}/run")
    assert steady(files(there)) == steady(files(tmp_path / "run"))
    assert files(there).keys() == files(tmp_path / "run").keys()  # no lock is left
    run = open_run(f"{store}/run")
    assert (run.finished, run.id, run.ids) == (True, whole.id, whole.ids)
    np.testing.assert_array_equal(run.scores("lookback"), whole.scores("lookback"))
    np.testing.assert_array_equal(run.scores("usc", 2), whole.scores("usc", 2))
    assert [c.text for c in run.candidates(21)] == [c.text for c in whole.candidates(21)]
    assert len(run.timings()) == len(whole.timings())
    assert len(run.looks) == len(whole.looks)
    assert start(GIVEN, f"{store}/run").worked == 0


def test_wherever_it_is_interrupted_it_ends_with_the_same_bytes(memory, tmp_path, monkeypatch):
    """Every write of the run fails once, before or after it took effect, as on disk."""
    settings = {"scorers": ("usc@2",), "limit": 11}
    start(plan(**settings), tmp_path / "whole")
    whole = results(tmp_path / "whole")
    real, written = RemotePath.write_bytes, []
    with monkeypatch.context() as patch:
        patch.setattr(RemotePath, "write_bytes", lambda *given: written.append(real(*given)))
        start(plan(**settings), memory / "counted")
    writes = 2 + len(whole) + 4 + 4 + 4  # manifest twice, results, timings, records of both
    assert len(written) == writes
    for stop in range(writes):
        for after in (False, True):
            folder = memory / f"{stop}-{after}"
            count = iter(range(10**6))

            def failing(path, data, count=count, stop=stop, after=after):
                now = next(count) == stop
                if now and not after:
                    raise KeyboardInterrupt
                real(path, data)
                if now:
                    raise KeyboardInterrupt

            monkeypatch.setattr(RemotePath, "write_bytes", failing)
            with pytest.raises(KeyboardInterrupt):
                start(plan(**settings), folder)
            monkeypatch.setattr(RemotePath, "write_bytes", real)
            if (folder / "manifest.json").exists() and stop < writes - 1:
                part = Run(folder)
                assert not part.finished
                assert len(part.ids) in (0, 10, 11)
                assert set(part.recorded) <= {"usc@2"}
            start(plan(**settings), folder)
            found = files(folder)
            assert {name: data for name, data in found.items() if name in whole} == whole
            assert not [name for name in found if ".lookback-" in name]
            assert Run(folder).finished
            assert verify(folder).problems == []


def test_a_flipped_byte_is_found_and_made_again(store, command):
    address = f"{store}/run"
    start(GIVEN, address)
    before = steady(files(to_path(address)))
    path = shard_path(to_path(address), "candidates", 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))
    status, out, err = command("runs", "verify", address)
    assert (status, "1 problems" in out) == (1, True)
    assert "candidates/00001.parquet is damaged (its sha256" in err
    with pytest.raises(RunError, match=r"candidates/00001\.parquet is damaged"):
        Run(address).quality()
    start(GIVEN, address)
    assert verify(to_path(address)).ok
    assert steady(files(to_path(address))) == before
    path.unlink()
    with pytest.raises(RunError, match=r"candidates/00001\.parquet is missing"):
        Run(address)
    start(GIVEN, address)
    assert steady(files(to_path(address))) == before


def test_jobs_status_and_merging(store, tmp_path, command):
    start(GIVEN, tmp_path / "whole")
    start(GIVEN, f"{store}/run", job=Job(1, 2))
    assert read_status(to_path(f"{store}/run")).open_jobs == [0]
    start(GIVEN, f"{store}/run", job=Job(0, 2))
    (run,) = open_runs([store])
    assert (run.finished, str(run.path)) == (True, f"{store}/run")
    status, out, _ = command("runs", "status", f"{store}/run")
    assert (status, "2 of 2 jobs are done" in out) == (0, True)
    status, out, _ = command("runs", "merge", f"{store}/run")
    assert (status, out) == (0, f"{store}/run-merged: 23 items, 3 shards, 0 failed\n")
    whole = steady(files(tmp_path / "whole"))
    assert steady(files(to_path(f"{store}/run-merged"))) == whole
    merge(to_path(f"{store}/run"), tmp_path / "here")  # from a store to this machine
    assert steady(files(tmp_path / "here")) == whole


def test_controls_retries_and_studies(memory, tmp_path, command):
    start(plan(), memory / "own")
    control = start(plan(candidates=str(memory / "own"), image="random"), memory / "random").run
    assert control.controls == Run(memory / "own").id
    assert start(plan(), memory / "own", retry_failed=True).worked == 0
    status, out, err = command("study", "main", memory, "--out", memory / "studies", "--json")
    assert status == 0, err
    assert json.loads(out)["rows"]
    assert b"lookback" in (memory / "studies" / "main.csv").read_bytes()
    page = report(Runs(open_runs([memory])), {}, 2)
    assert "</html>" in page


def test_a_store_that_fails_says_so_and_loses_nothing(memory, tmp_path, monkeypatch):
    start(plan(), tmp_path / "whole")
    real, count = RemotePath.write_bytes, iter(range(10**6))

    def failing(path, data):
        if next(count) == 4:
            raise OSError("cannot reach it: the quota is used up")
        real(path, data)

    monkeypatch.setattr(RemotePath, "write_bytes", failing)
    with pytest.raises(RunError, match="quota is used up; what was written before is kept"):
        start(plan(), memory / "run")
    start(plan(), memory / "run")
    assert steady(files(memory / "run")) == steady(files(tmp_path / "whole"))


def test_other_files_and_other_runs_are_left_alone(memory):
    folder = memory / "run"
    (folder / "thesis.tex").write_bytes(b"x")
    with pytest.raises(RunError, match="holds other files"):
        start(plan(), folder)
    assert names_in(folder) == ["thesis.tex"]
    start(plan(), memory / "other")
    with pytest.raises(RunError, match="holds another run: its sampling is"):
        start(plan(seed=7), memory / "other")


def test_processes_do_not_share_memory(memory):
    with pytest.raises(RunError, match="is in the memory of one process: use --workers 1"):
        start(plan(), memory / "run", workers=2)


def test_what_a_killed_process_had_not_sent_is_removed_after_a_day(memory, monkeypatch, tmp_path):
    """Files wait on this machine until they are sent; those of the last day may be in use."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, new = (tmp_path / f"{TEMPORARY}00000.parquet.{name}" for name in ("old", "new"))
    others = tmp_path / "mine.txt"
    for path in (old, new, others):
        path.write_text("half")
    for path in (old, others):
        os.utime(path, (1e9, 1e9))
    start(plan(), memory / "run")
    assert sorted(tmp_path.iterdir()) == sorted([new, others])


class TestLock:
    def test_a_second_writer_is_refused(self, store):
        start(plan(), f"{store}/run")
        folder = to_path(f"{store}/run")
        held = lock(folder)
        said = rf"process {os.getpid()} on {platform.node()} since 20.*--break-lock"
        with pytest.raises(RunError, match=said):
            start(plan(), folder)
        with pytest.raises(RunError, match="another process is writing to"):
            lock(folder)
        held.release()
        assert not (folder / LOCK).exists()
        assert start(plan(), folder).worked == 0

    def test_one_that_was_left_is_broken_on_request(self, memory, command):
        start(plan(), memory / "run", job=Job(0, 1))
        for folder in (memory / "run" / "job-0-of-1", memory / "run-merged"):
            lock(folder)
        run = ("run", "--benchmark", "scenes-vqa", "--limit", ITEMS, "-n", 4, "--shard", "0/1")
        for arguments in ((*run, "--out", memory / "run"), ("runs", "merge", memory / "run")):
            status, _, err = command(*arguments)
            assert (status, "if it was killed, with --break-lock" in err) == (1, True), err
            assert command(*arguments, "--break-lock")[0] == 0
        assert LOCK not in names_in(memory / "run-merged")

    def test_whoever_lost_it_does_not_remove_that_of_another(self, memory):
        first = lock(memory)
        second = lock(memory, break_lock=True)
        first.release()
        with pytest.raises(RunError, match="another process is writing"):
            lock(memory)
        second.release()
        second.release()  # nothing is there
        lock(memory).release()

    def test_a_store_without_conditional_writes(self, memory, monkeypatch):
        def create(path, data):
            raise OSError("cannot reach it: a header you provided is not implemented")

        monkeypatch.setattr(RemotePath, "create", create)
        held = lock(memory)
        with pytest.raises(RunError, match="another process is writing"):
            lock(memory)
        held.release()
        monkeypatch.setattr(RemotePath, "_do", lambda *given, **more: create(None, None))
        with pytest.raises(OSError, match="cannot reach it"):
            lock(memory)

    @pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"process": 1}', b"\xff"])
    def test_what_names_nobody_is_held_all_the_same(self, memory, text):
        (memory / LOCK).write_bytes(text)
        with pytest.raises(RunError, match=r"its .lookback-lock does not say which.*--break-lock"):
            lock(memory)
        lock(memory, break_lock=True).release()

    def test_on_a_disk_one_that_is_held_is_not_broken(self, tmp_path):
        held = lock(tmp_path)
        with pytest.raises(RunError, match="another process is writing"):
            lock(tmp_path, break_lock=True)
        held.release()


def test_a_killed_process_is_resumed_with_break_lock(s3_server, tmp_path):
    """A real process with two workers at s3://, killed; its lock stays until it is broken."""
    from test_killed import TOY, begin, end

    address = f"{make_bucket()}/run"
    status, said = end(begin(address, *TOY, "--workers", "2", kill="4 after parent"))
    assert status == -signal.SIGKILL, said
    assert not Run(address).finished
    assert (to_path(address) / LOCK).exists()
    status, said = end(begin(address, *TOY, "--workers", "2"))
    assert (status, "--break-lock" in said) == (1, True), said
    status, said = end(begin(address, *TOY, "--workers", "2", "--break-lock"))
    assert status == 0, said
    same = {"limit": 45, "n": 2, "scorers": ("usc@2",), "look": 30}  # as TOY
    start(Plan("scenes-vqa", engine="toy", **same), tmp_path / "whole")
    assert steady(files(to_path(address))) == steady(files(tmp_path / "whole"))


def test_data_and_candidates_from_a_store(store, tmp_path, command):
    """One's own data with images, and responses to them: the run is that of the same files here."""
    from PIL import Image

    names = ["a.png", "b.png", "c.png"]
    for folder in (tmp_path / "data", to_path(f"{store}/data")):
        folder.mkdir()
        (folder / "photos").mkdir()
        for number, name in enumerate(names):
            Image.new("RGB", (8, 8), (40 * number, 0, 0)).save(tmp_path / "x.png")
            (folder / "photos" / name).write_bytes((tmp_path / "x.png").read_bytes())
        lines = [
            {"id": n, "image": f"photos/{n}", "question": "?", "answers": "red"} for n in names
        ]
        lines.append({"id": "both", "image": ["photos/a.png", "photos/b.png"], "question": "?"})
        (folder / "mine.jsonl").write_bytes("\n".join(map(json.dumps, lines)).encode())
        given = [{"id": n, "responses": ["red", "blue dog"]} for n in names]
        (folder / "said.jsonl").write_bytes("\n".join(map(json.dumps, given)).encode())
    for more in ((), ("--candidates", "said.jsonl")):
        found = []
        for data in (tmp_path / "data", f"{store}/data"):
            out = f"{data}-run{len(more)}"
            extra = [more[0], f"{data}/{more[1]}"] if more else []
            status, _, err = command(
                "run", "--data", f"{data}/mine.jsonl", "-n", 2, *extra, "--out", out
            )
            assert status == 0, err
            run = Run(out)
            assert run.manifest.data == f"{data}/mine.jsonl"
            found.append((run.texts, run.signal("log_prob").tolist(), run.ids))
        assert found[0] == found[1]


def test_names_in_data_stay_in_their_folder(memory, command):
    for name in ("memory://elsewhere/x.png", "../x.png", "/x.png"):
        (memory / "mine.jsonl").write_bytes(json.dumps({"image": name, "question": "?"}).encode())
        status, _, err = command("run", "--data", memory / "mine.jsonl", "--out", memory / "run")
        assert (status, "stay in the folder of the data" in err) == (1, True)


def test_replacing_settings_in_a_store(memory):
    """A run in which every item failed takes other settings there, too."""
    start(plan(), memory / "run")
    manifest = replace(Run(memory / "run").manifest, status="failed")
    manifest.write(memory / "run")
    with pytest.raises(RunError, match="holds another run"):
        start(plan(seed=7), memory / "run")

"""Real processes, killed: what they leave goes on to the same bytes, and nothing stays behind.

Nothing here waits for a time: a process kills itself at a certain write (killing.py), and an end of
file tells that all that wrote to a pipe are gone.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_producing import results
from timeouts import HANG_SECONDS

from lookback.runs import Run
from lookback.runs.locks import lock
from lookback.runs.plan import Plan
from lookback.runs.start import start
from lookback.runs.verify import verify

TESTS = Path(__file__).parents[1]
SETTINGS = {"n": 3, "max_new_tokens": 8, "limit": 15, "scorers": ("vauq",), "look": 12}
EMBEDDED = ("--benchmark", "scenes-vqa", "--limit", "15", "-n", "3", "--max-new-tokens", "8",
            "--scorers", "vauq", "--look", "12")  # fmt: skip
TOY = ("--plugin", str(TESTS / "toy_engine.py"), "--engine", "toy", "--benchmark", "scenes-vqa",
       "--limit", "45", "-n", "2", "--scorers", "usc@2", "--look", "30")  # fmt: skip


def begin(folder, *arguments, kill=None):
    plugin = () if kill is None else ("--plugin", str(TESTS / "runs" / "killing.py"))
    paths = [str(TESTS.parent), str(TESTS)]
    return subprocess.Popen(
        [sys.executable, "-m", "lookback.cli", "run", *plugin, *arguments, "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
        | {"LOOKBACK_TEST_KILL": kill or ""},
    )


def end(process):
    """The status of a process, and what it and all that it started wrote to stderr."""
    _, said = process.communicate(timeout=HANG_SECONDS)
    return process.returncode, said.decode()


def test_killed_at_random_moments(tmp_path):
    """With the embedded model; each time the next process goes on from what the last one left."""
    rng = random.Random(0)
    folder = tmp_path / "killed"
    for number in (rng.randint(2, 5), rng.randint(6, 12)):
        moment = rng.choice(["before", "after"])
        status, said = end(begin(folder, *EMBEDDED, kill=f"{number} {moment} self"))
        assert status == -signal.SIGKILL, said
        assert not Run(folder).finished
        assert verify(folder).problems == []
    status, said = end(begin(folder, *EMBEDDED))
    assert status == 0, said
    assert Run(folder).finished
    start(Plan("scenes-vqa", **SETTINGS), tmp_path / "whole")
    assert len(results(folder)) == 4 * 2
    assert results(folder) == results(tmp_path / "whole")


@pytest.mark.parametrize("kill", ["3 before parent", "4 after parent"])
def test_orphaned_workers(tmp_path, kill):
    """One of two workers kills the process that started it: the next ends the work."""
    folder = tmp_path / "run"
    status, _ = end(begin(folder, *TOY, "--workers", "2", kill=kill))
    assert status == -signal.SIGKILL
    assert not Run(folder).finished
    assert_resumed(folder, tmp_path / "whole")


def assert_resumed(folder, whole):
    """The same command as before ends the work, with the bytes of one process."""
    status, said = end(begin(folder, *TOY, "--workers", "2"))
    assert status == 0, said
    assert_whole(folder, whole)


def assert_whole(folder, whole):
    assert end(begin(whole, *TOY))[0] == 0
    assert len(results(folder)) == 4 * 5
    assert results(folder) == results(whole)
    assert verify(folder).problems == []
    assert list(folder.rglob(".lookback-tmp-*")) == []


@pytest.mark.parametrize("write", [2, 5])
def test_a_killed_worker_loses_nothing(tmp_path, monkeypatch, write):
    """The first three workers of two die at a write of theirs, with half a shard written."""
    folder, dead = tmp_path / "run", tmp_path / "dead"
    dead.mkdir()
    monkeypatch.setenv("LOOKBACK_TEST_MORTAL", f"worker {dead} {write} 3")
    mortal = ("--plugin", str(TESTS / "runs" / "mortal.py"))
    status, said = end(begin(folder, *mortal, *TOY, "--workers", "2"))
    assert status == 0, said
    assert len(list(dead.iterdir())) == 3
    assert said.count("a worker died (exit status -9; is the memory full?): shard ") == 3
    assert said.count(" is made again") == 3
    assert_whole(folder, tmp_path / "whole")


def test_a_shard_that_kills_every_worker_ends_the_run(tmp_path):
    """Each worker dies at its second write; what was done by then is kept, and resumed."""
    folder = tmp_path / "run"
    status, said = end(begin(folder, *TOY, "--workers", "2", kill="2 after worker"))
    assert status == 1
    assert "a worker died at shard " in said
    assert ", 4 times in a row (exit status -9; is the memory full?)" in said
    assert not Run(folder).finished
    assert_resumed(folder, tmp_path / "whole")


def test_jobs_with_workers_killed(tmp_path):
    """Two jobs of two workers each; one is killed, and the same command goes on with its part."""
    out, jobs = tmp_path / "run", [("--shard", f"{index}/2", "--workers", "2") for index in (0, 1)]
    status, said = end(begin(out, *TOY, *jobs[0], kill="4 after parent"))
    assert status == -signal.SIGKILL, said
    assert end(begin(out, *TOY, *jobs[1]))[0] == 0
    assert not Run(out).finished
    assert end(begin(out, *TOY, *jobs[0]))[0] == 0
    assert Run(out).finished
    assert end(begin(tmp_path / "whole", *TOY))[0] == 0
    found = {**results(out / "job-0-of-2"), **results(out / "job-1-of-2")}
    assert len(found) == 4 * 5
    assert found == results(tmp_path / "whole")
    assert verify(out).problems == []


def begin_waiting(folder):
    """A process with two workers in the middle of their work, and the numbers of these."""
    plugin = ("--plugin", str(TESTS / "runs" / "waiting_engine.py"), "--engine", "waiting")
    process = begin(folder, *plugin, "--benchmark", "scenes-vqa", "--limit", "20", "--workers", "2")
    workers = []
    for line in process.stderr:
        workers += [int(line.split()[1])] if line.startswith(b"asked ") else []
        if len(workers) == 2:
            break
    assert len(set(workers)) == 2
    return process, workers


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)]
)
def test_workers_end_with_their_parent(tmp_path, sent, status):
    """Be it killed, when it cannot tell them, or stopped by Ctrl-C."""
    process, workers = begin_waiting(tmp_path / "run")
    process.send_signal(sent)
    try:
        found, said = end(process)  # comes to an end when both are gone
    except subprocess.TimeoutExpired:
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        pytest.fail("the workers go on without their parent")
    assert found == status
    assert "Traceback" not in said
    lock(tmp_path / "run").release()


def test_a_second_process_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    held = lock(tmp_path / "run")
    status, said = end(begin(tmp_path / "run", *TOY))
    held.release()
    assert status == 1
    assert "another process is writing to" in said
    assert end(begin(tmp_path / "run", *TOY))[0] == 0

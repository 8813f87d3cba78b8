"""A real process with the embedded model, killed at random moments, ends with the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time

from test_producing import results

from lookback.runs import Run

COMMAND = (
    sys.executable, "-m", "lookback.cli", "run", "--benchmark", "scenes-vqa", "--limit", "45",
    "-n", "3", "--max-new-tokens", "8", "--scorers", "clipscore,usc@2",
)  # fmt: skip


def run(folder, workers):
    return subprocess.Popen(
        [*COMMAND, "--workers", str(workers), "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def wait_for_files(folder, count, process):
    while process.poll() is None and len(results(folder)) < count:
        time.sleep(0.02)


def test_killed_at_random_moments(tmp_path):
    rng = random.Random(0)
    whole = run(tmp_path / "whole", 1)
    folder = tmp_path / "killed"
    kills = 0
    for after, workers in ((0, 1), (4, 2), (11, 1)):
        process = run(folder, workers)
        wait_for_files(folder, after, process)
        time.sleep(rng.uniform(0, 0.4) + 2 * (after == 0))
        if process.poll() is None:
            kills += 1
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    assert kills >= 2, "the machine was too fast: nothing was killed"
    assert not Run(folder).finished if (folder / "manifest.json").exists() else True
    last = run(folder, 1)
    assert last.wait() == 0, last.stderr.read().decode()
    assert whole.wait() == 0, whole.stderr.read().decode()
    assert Run(folder).finished
    expected = results(tmp_path / "whole")
    assert len(expected) == 4 * 5
    assert results(folder) == expected


def test_a_second_process_is_refused(tmp_path):
    first = run(tmp_path / "run", 1)
    while not (tmp_path / "run" / "manifest.json").exists() and first.poll() is None:
        time.sleep(0.05)
    second = run(tmp_path / "run", 1)
    assert second.wait() == 1
    assert b"another process is writing to" in second.stderr.read()
    first.kill()
    first.wait()
    first.stderr.close()
    second.stderr.close()

"""A run that goes on, in one process or several: what is told, kept and counted."""

import multiprocessing
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from made_runs import make_run
from toy_engine import ToyEngine

from lookback.benchmarks.base import BENCHMARKS, Item, Judged, MeanOfScores, benchmark
from lookback.runs import Run, executors, manifest, verify
from lookback.runs.executors import (
    EngineInfo,
    ProcessWorker,
    WorkerDiedError,
    WorkerPool,
    plan_batches,
)
from lookback.runs.layout import RunError, replacing
from lookback.runs.manifest import Manifest
from lookback.runs.plan import Plan
from lookback.runs.start import start


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    made = ToyEngine()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: made)
    return made


def plan(**settings):
    return Plan(**({"benchmark": "scenes-vqa", "limit": 23, "n": 3} | settings))


def test_progress_counts_every_piece_of_work(tmp_path):
    told = []
    start(plan(), tmp_path / "run", progress=lambda *count: told.append(count))
    assert told == [(done, 23) for done in range(24)]
    told.clear()
    # Another scorer: what is there counts as done.
    start(plan(scorers=("vauq",)), tmp_path / "run", progress=lambda *count: told.append(count))
    assert told == [(done, 46) for done in range(23, 47)]


def test_while_scorers_are_added_it_is_not_finished(tmp_path, monkeypatch):
    start(plan(), tmp_path / "run")

    def interrupted(self, *given, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(ToyEngine, "knockout", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(plan(scorers=("vauq",)), tmp_path / "run")
    run = Run(tmp_path / "run")
    assert (run.finished, run.recorded, len(run.ids)) == (False, [], 23)
    assert list(run.manifest.scorers) == ["vauq"]


def test_other_versions_are_told(tmp_path):
    said = []
    start(plan(), tmp_path / "run", say=said.append)
    start(plan(), tmp_path / "run", say=said.append)
    assert said == []
    before = Manifest.read(tmp_path / "run")
    replace(before, versions=dict(before.versions) | {"numpy": "0.1"}).write(tmp_path / "run")
    start(plan(), tmp_path / "run", say=said.append)
    assert said == ["other versions than when this run began: see its manifest"]


@pytest.mark.parametrize(("lines", "told"), [(5, 5), (6, 6), (8, 6)])
def test_the_first_lines_left_out_are_told_and_the_others_counted(tmp_path, lines, told):
    good = '{"id": "a", "question": "what?"}\n'
    (tmp_path / "mine.jsonl").write_text(good + "{\n" * lines)
    said = []
    settings = {"data": str(tmp_path / "mine.jsonl"), "n": 2}
    summary = start(Plan("own", **settings), tmp_path / "run", say=said.append)
    left_out = [line for line in said if "left out" in line]
    assert (len(left_out), summary.left_out) == (told, lines)
    if lines > 5:
        assert left_out[-1] == f"and {lines - 5} more lines left out"


def test_the_split_is_the_one_that_is_named(tmp_path):
    run = start(plan(split="tune", limit=2), tmp_path / "run").run
    assert run.ids == ["scenes-vqa/tune/0", "scenes-vqa/tune/1"]
    assert run.settings["split"] == "tune"
    assert start(plan(limit=2), tmp_path / "other").run.settings["split"] == "test"


def test_who_judges_is_part_of_what_a_run_is(tmp_path, monkeypatch):
    monkeypatch.setattr(BENCHMARKS, "entries", dict(BENCHMARKS.entries))
    judge = ["rules"]

    @benchmark("judged", title="Judged")
    class OfTaste(MeanOfScores, Judged):
        primary, source, default_split, notes = "taste", "made up", "all", ()

        def items(self, split="all", limit=None):
            return [Item("a", "why?", {}, None)]

        def score(self, item, response):
            return 0.5

        def judge_name(self):
            return judge[0]

    assert start(Plan("judged"), tmp_path / "run").run.settings["judge"] == "rules"
    judge[0] = "a model"
    with pytest.raises(RunError, match='its judge is "rules", not "a model"'):
        start(Plan("judged"), tmp_path / "run")


class TestCandidatesOfARun:
    def test_the_same_model_scores_tokens_and_another_texts(self, tmp_path, engine, monkeypatch):
        start(plan(limit=2), tmp_path / "own")
        asked = []
        score = ToyEngine.score

        def listening(self, *given, responses, **settings):
            asked.append(responses)
            return score(self, *given, responses=responses, **settings)

        monkeypatch.setattr(ToyEngine, "score", listening)
        settings = {"limit": 2, "candidates": str(tmp_path / "own"), "image": "none"}
        same = start(plan(**settings), tmp_path / "same").run
        assert all(isinstance(one, list) for responses in asked for one in responses)
        asked.clear()
        engine.name = "another"
        other = start(plan(**settings), tmp_path / "other").run
        assert all(isinstance(one, str) for responses in asked for one in responses)
        assert same.texts == other.texts

    def test_why_they_ended_is_kept(self, tmp_path):
        own = start(plan(limit=2), tmp_path / "own").run
        settings = {"limit": 2, "candidates": str(tmp_path / "own"), "image": "none"}
        control = start(plan(**settings), tmp_path / "control").run
        assert set(own.head["finish"].to_pylist()) == {"end"}
        assert control.head["finish"].to_pylist() == own.head["finish"].to_pylist()


def test_every_reply_of_a_scorer_is_kept(tmp_path, monkeypatch):
    said = iter(f"A, by {number}" for number in range(100))
    generate = ToyEngine.generate
    monkeypatch.setattr(
        ToyEngine,
        "generate",
        lambda self, *given, **more: [next(said) for _ in generate(self, *given, **more)],
    )
    run = start(plan(limit=2, scorers=("judge@3",)), tmp_path / "run").run
    assert run.replies("judge@3") == [["A, by 0", "A, by 1"], ["A, by 2", "A, by 3"]]


def test_scores_are_the_callers_own(tmp_path):
    run = make_run(tmp_path / "run", items=3, n=4)
    first = run.scores("lookback")
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(run.scores("lookback"), kept)


def test_the_bytes_of_a_table_are_compared_once(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", items=13, n=2)
    compared = []
    real = verify.checksum
    monkeypatch.setattr(verify, "checksum", lambda path: compared.append(path) or real(path))
    run.quality()
    run.signals()
    assert run.texts
    assert len(compared) == 2  # two shards
    assert run.ids
    assert len(compared) == 4


def test_a_file_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    order = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: order.append("fsync") or fsync(file))
    monkeypatch.setattr(os, "replace", lambda *paths: order.append("replace") or rename(*paths))
    with replacing(tmp_path / "file") as temporary:
        temporary.write_text("whole")
    assert order == ["fsync", "replace"]
    assert (tmp_path / "file").read_text() == "whole"


@pytest.mark.parametrize(("changes", "expected"), [("", "abc"), (" M run.py", "abc+")])
def test_changed_files_show_in_the_commit(monkeypatch, changes, expected):
    def run(command, **settings):
        said = "abc\n" if "rev-parse" in command else changes
        return manifest.subprocess.CompletedProcess(command, 0, said)

    monkeypatch.setattr(manifest.subprocess, "run", run)
    assert manifest.commit() == expected


class FakeContext:
    """Processes that end at once, and remember how many threads they would have."""

    def __init__(self):
        self.threads = []

    def Pipe(self):
        ours, theirs = multiprocessing.Pipe()
        theirs.send(EngineInfo.of(ToyEngine()))
        for _ in range(99):  # each batch is done at once
            theirs.send(None)
        return ours, theirs

    def Process(self, target, args, daemon):
        assert daemon
        start = lambda: self.threads.append(os.environ["OMP_NUM_THREADS"])  # noqa: E731
        return SimpleNamespace(start=start, terminate=int, join=int, exitcode=0)


@pytest.mark.parametrize("before", [None, "7"])
@pytest.mark.parametrize(("count", "threads"), [(2, "4"), (3, "2"), (16, "1")])
def test_workers_share_the_cores(monkeypatch, tmp_path, before, count, threads):
    context = FakeContext()
    monkeypatch.setattr(executors, "get_context", lambda kind: context)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    if before is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", before)
    pool = WorkerPool(lambda: ProcessWorker(plan(), tmp_path, count), count)
    pool.load()
    pool.run(plan_batches(plan(), range(max(2, count - 1)), 1), lambda count: None)
    pool.close()
    # As many as have work; the cores are shared as if all had.
    assert context.threads == [threads] * max(2, count - 1)
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_what_a_process_said_before_its_end_is_heard(monkeypatch, tmp_path):
    """It says why it fails, and ends; after that, that it ended is all there is to say."""
    context = FakeContext()
    ours, theirs = multiprocessing.Pipe()
    monkeypatch.setattr(context, "Pipe", lambda: (ours, theirs), raising=False)
    monkeypatch.setattr(executors, "get_context", lambda kind: context)
    theirs.send(OSError("why"))
    worker = ProcessWorker(plan(), tmp_path, 1)
    with pytest.raises(OSError, match="why"):
        worker.load()
    with pytest.raises(WorkerDiedError, match="exit status 0"):
        worker.run(plan_batches(plan(), range(1), 1)[0], print)

"""Runs that keep where picks looked: stored, read, gone on with, verified; and runs without."""

import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from engines.reference import noise
from PIL import Image
from toy_engine import ToyEngine

from lookback.benchmarks.base import get_benchmark
from lookback.cli.terminal import show_verification
from lookback.conversations import Conversation
from lookback.engines import AbilityError
from lookback.looks.look import BITS, Look, Picture, rounded
from lookback.runs import Run
from lookback.runs.estimate import estimate
from lookback.runs.layout import RunError
from lookback.runs.looks import find_picks, look_row, read_look
from lookback.runs.manifest import Job
from lookback.runs.plan import Plan
from lookback.runs.sources import NOTHING
from lookback.runs.start import start
from lookback.runs.verify import verify

LIMIT, LOOK = 23, 12
TABLES = ("items", "candidates", "scores/*", "looks", "shards")


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    made = ToyEngine()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: made)
    return made


def plan(**settings):
    return Plan(**({"benchmark": "scenes-vqa", "limit": LIMIT, "n": 4, "look": LOOK} | settings))


def results(folder):
    files = [file for table in TABLES for file in folder.glob(f"{table}/*.[jp]*")]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


@pytest.fixture
def run(tmp_path):
    return start(plan(), tmp_path / "run").run


def test_the_picks_of_the_first_items_have_looks(run, engine):
    frame = pd.read_parquet(run.path / "looks")
    items = get_benchmark("scenes-vqa").items("test", LIMIT)
    assert sorted(set(frame["item"])) == list(range(LOOK))
    for place in range(LOOK):
        candidates = run.candidates(place)
        best = {m: candidates.best(m).index for m in ("lookback", "self_certainty")}
        rows = frame[frame["item"] == place]
        assert list(rows["index"]) == sorted(set(best.values()))
        for row in rows.itertuples():
            assert list(row.methods) == [m for m in best if best[m] == row.index]
            look = engine.look(items[place].image, items[place].question, candidates[row.index])
            np.testing.assert_array_equal(np.stack(row.weights), rounded(look.weights))
            assert list(row.layers) == list(look.layers)
            # All of a row together is A_t, as far as rounding lets it.
            a = candidates[row.index].visual_lookback
            np.testing.assert_allclose(np.stack(row.weights).sum(1), a, rtol=2.0 ** -(BITS + 1))


def test_a_look_is_read_as_it_was(run, engine):
    assert len(run.looks) > LOOK
    items = get_benchmark("scenes-vqa").items("test", LIMIT)
    for place in (0, 11):
        for index in run.looks.of(place):
            found = run.looks.read(place, index)
            candidate = run.candidates(place)[index]
            look = engine.look(items[place].image, items[place].question, candidate)
            assert (found.text, found.tokens, found.layers) == (
                look.text,
                look.tokens,
                look.layers,
            )
            np.testing.assert_array_equal(found.weights, rounded(look.weights))
            for one, other in zip(found.pictures, look.pictures, strict=True):
                assert one.name == other.name
                assert one.image.tobytes() == other.image.tobytes()
                np.testing.assert_array_equal(one.columns, other.columns)
                np.testing.assert_array_equal(one.boxes, other.boxes)
                np.testing.assert_array_equal(one.grids, other.grids)
            assert found.overlay(0).size == look.pictures[0].image.size
    assert run.looks.of(LOOK) == []
    with pytest.raises(RunError, match=r"no look of candidate 0 of item 12: .*--look N"):
        run.looks.read(LOOK, 0)


def test_a_layout_that_is_not_known_stays_so(tmp_path, engine, monkeypatch):
    plain = engine.look

    def flat(*given, **settings):
        look = plain(*given, **settings)
        pictures = [replace(one, boxes=None, grids=()) for one in look.pictures]
        return replace(look, pictures=pictures)

    monkeypatch.setattr(engine, "look", flat)
    run = start(plan(limit=3), tmp_path / "run").run
    [picture] = run.looks.read(0, run.looks.of(0)[0]).pictures
    assert (picture.boxes, picture.grids) == (None, ())


def test_a_run_without_is_as_it_was(tmp_path, run):
    without = start(plan(look=0), tmp_path / "without").run
    assert without.id == run.id
    assert "looks" not in json.loads((without.path / "manifest.json").read_text())
    assert not (without.path / "looks").exists()
    assert len(without.looks) == 0
    same = {name: data for name, data in results(run.path).items() if name[:4] in ("item", "cand")}
    assert {n: d for n, d in results(without.path).items() if not n.startswith("shards")} == same


def test_looks_are_added_later_and_stay(tmp_path, run):
    summary = start(plan(look=0), tmp_path / "later")
    assert summary.worked == LIMIT
    summary = start(plan(), tmp_path / "later")
    assert summary.worked == LIMIT
    assert results(tmp_path / "later") == results(run.path)
    start(plan(look=0), tmp_path / "later")
    assert Run(tmp_path / "later").manifest.looks == LOOK
    with pytest.raises(RunError, match="looks of its first 12 items, not 5: use --look 12"):
        start(plan(look=5), tmp_path / "later")


def test_stopped_at_any_write_it_goes_on_to_the_same_bytes(tmp_path, run, monkeypatch):
    real, stop = os.replace, [0]

    def failing(*paths):
        stop[0] -= 1
        if stop[0] == 0:
            raise KeyboardInterrupt
        real(*paths)

    monkeypatch.setattr(os, "replace", failing)
    whole, count = results(run.path), 0
    for number in range(1, 60):
        stop[0] = number
        folder = tmp_path / f"stopped-{number}"
        try:
            start(plan(), folder)
        except KeyboardInterrupt:
            count += 1
            if (folder / "manifest.json").exists():
                assert verify(folder).problems == []
                Run(folder)
        else:
            break
        stop[0] = 0
        start(plan(), folder)
        assert results(folder) == whole
    assert count > 15
    assert number < 59


def test_verify_sees_every_byte_and_the_same_command_mends_it(tmp_path, run, capsys):
    whole = results(run.path)
    checked = verify(run.path)
    assert (checked.ok, checked.files) == (True, 9)
    show_verification("run", checked)
    assert "9 tables, all as written" in capsys.readouterr().out
    path = run.path / "looks" / "00001.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert [p.file for p in verify(run.path).problems] == ["looks/00001.parquet"]
    with pytest.raises(RunError, match=r"looks/00001\.parquet is damaged"):
        _ = Run(run.path).looks
    start(plan(), run.path)
    assert results(run.path) == whole
    path.unlink()
    with pytest.raises(RunError, match=r"looks/00001\.parquet is missing"):
        Run(run.path)
    start(plan(), run.path)
    assert results(run.path) == whole


def test_looks_of_a_run_that_has_none_are_no_part_of_it(tmp_path, run):
    start(plan(look=0), tmp_path / "without")
    (tmp_path / "without" / "looks").mkdir()
    (run.path / "looks" / "00000.parquet").rename(tmp_path / "without" / "looks" / "00000.parquet")
    [problem] = verify(tmp_path / "without").problems
    assert str(problem) == "looks/00000.parquet is no part of this run: move it away"


def test_a_look_that_fails_stops_nothing_and_is_tried_again(tmp_path, run, engine, monkeypatch):
    plain, count = engine.look, []

    def fails_once(*given, **settings):
        count.append(1)
        if len(count) == 3:
            raise ValueError("broken")
        return plain(*given, **settings)

    monkeypatch.setattr(engine, "look", fails_once)
    summary = start(plan(), tmp_path / "failing")
    [(_, error)] = summary.failed
    assert error == "look: ValueError: broken"
    assert summary.run.finished
    assert len(summary.run.looks) == len(run.looks) - 1
    summary = start(plan(), tmp_path / "failing", retry_failed=True)
    assert summary.failed == []
    assert results(tmp_path / "failing") == results(run.path)


def test_an_item_that_failed_or_is_empty_has_none(tmp_path, engine, monkeypatch):
    plain = engine.sample

    def draws(*given, messages=None, **settings):
        found = plain(*given, messages=messages, **settings)
        if len(engine.sampled) == 1:
            raise ValueError("broken")
        nothing = [replace(c, text="", signals=NOTHING) for c in found]
        return replace(found, items=tuple(nothing)) if len(engine.sampled) == 2 else found

    monkeypatch.setattr(engine, "sample", draws)
    run = start(plan(limit=4, look=3), tmp_path / "run").run
    assert [bool(run.looks.of(place)) for place in range(4)] == [False, False, True, False]


def test_what_cannot_be_is_said_first(tmp_path, run, engine, command):
    with pytest.raises(RunError, match="in their own image: not with --image random"):
        plan(candidates=str(run.path), image="random")
    with pytest.raises(RunError, match="look = -1"):
        plan(look=-1)
    engine.abilities = frozenset({"sample"})
    with pytest.raises(AbilityError, match="--look needs an engine that can tell where"):
        start(plan(), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    code, _, err = command("run", "--benchmark", "scenes-vqa", "--look", "0")
    assert code != 0
    assert "--look" in err


def test_the_command_keeps_them(tmp_path, run, command):
    settings = ("--benchmark", "scenes-vqa", "--limit", LIMIT, "-n", 4, "--look", LOOK)
    code, _, _ = command("run", *settings, "--out", tmp_path / "by-command")
    assert code == 0
    assert results(tmp_path / "by-command") == results(run.path)
    assert command("runs", "verify", tmp_path / "by-command")[0] == 0


def test_an_estimate_counts_looks(engine):
    looked = []
    plain = engine.look
    engine.look = lambda *given, **settings: looked.append(1) or plain(*given, **settings)
    assert estimate(plan(), tries=2).items == LIMIT
    assert looked


class Clocked(ToyEngine):
    """Takes 100 seconds for its first answer and 2 for others, 5 to score them, 3 to look."""

    now = 0.0

    def sample(self, *given, **settings):
        self.now += 2 if self.sampled else 100
        return super().sample(*given, **settings | {"keep_end": True})  # so that none is empty

    def knockout(self, *given, **settings):
        self.now += 5
        return super().knockout(*given, **settings)

    def look(self, *given, **settings):
        self.now += 3
        return super().look(*given, **settings)


@pytest.mark.parametrize(
    ("look", "job", "items", "looked"),
    [
        (LOOK, None, LIMIT, LOOK),
        (0, None, LIMIT, 0),
        (LOOK, Job(0, 2), 13, 10),  # items 0 to 9 and 20 to 22
        (LOOK, Job(1, 2), 10, 2),
    ],
)
def test_an_estimate_is_of_each_item_and_of_each_look(monkeypatch, look, job, items, looked):
    engine = Clocked()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: engine)
    monkeypatch.setattr("time.perf_counter", lambda: engine.now)
    given = plan(n=1, look=look, scorers=("vauq",))
    found = estimate(given, workers=2, job=job)
    assert (found.items, found.tried, found.failed) == (items, 4, 0)
    assert found.seconds == pytest.approx((items * (2 + 5) + looked * 3) / 2)
    assert engine.now == 100 + 5 + 3 * (2 + 5) + (4 * 3 if look else 0)  # no more is tried


def test_picks_are_the_best_of_each_method():
    engine = ToyEngine()
    image = get_benchmark("scenes-vqa").items("test", 1)[0].image
    for seed in range(20):
        candidates = engine.sample(image, "what?", 5, seed=seed)
        picks = find_picks(candidates)
        for method in ("lookback", "self_certainty"):
            scores = candidates.scores(method)
            if np.isnan(scores).all():
                assert picks == {}
                continue
            [index] = [i for i, methods in picks.items() if method in methods]
            assert scores[index] == np.nanmax(scores)


def test_frames_of_a_video_are_found_again():
    frames = [Image.new("RGB", (8, 6), color) for color in ("red", "green", "blue", "white")]
    conversation = Conversation.of(noise(), "what?", video=frames)
    shown = [conversation.images[0], frames[1], frames[3]]  # a model may see every second frame
    names = ["image:0", "video:0/0", "video:0/1"]
    pictures = [
        Picture(n, i, np.array([k])) for k, (n, i) in enumerate(zip(names, shown, strict=True))
    ]
    candidate = ToyEngine().score(noise(), "what?", "red dog")[0]
    weights = np.full((2, 3), 0.25, np.float32)
    look = Look("red dog", candidate.token_ids, candidate.tokens, weights, pictures, (0, 3))
    row = look_row(0, 0, ["lookback"], look, conversation)
    assert row["frames"] == [None, 1, 3]
    found = read_look(row, candidate, conversation)
    assert [one.image.tobytes() for one in found.pictures] == [one.tobytes() for one in shown]
    other = Conversation.of(noise(), "what?", video=frames[:1])
    with pytest.raises(ValueError, match="video:0/0 is no frame"):
        look_row(0, 0, ["lookback"], look, other)

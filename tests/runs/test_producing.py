"""Making a run: what is drawn, what is kept, what happens when something goes wrong."""

import errno
import json
import shutil
import subprocess

import numpy as np
import pyarrow.parquet as pq
import pytest
from interrupting import interrupted
from toy_engine import ToyEngine

from lookback.benchmarks.base import Item, get_benchmark
from lookback.runs import Run
from lookback.runs.estimate import BYTES_A_TOKEN, estimate
from lookback.runs.items import Questions
from lookback.runs.layout import RunError
from lookback.runs.locks import lock
from lookback.runs.plan import Plan
from lookback.runs.records import forget
from lookback.runs.sources import item_seed
from lookback.runs.start import start
from lookback.runs.verify import verify

ITEMS = 23


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    made = ToyEngine()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: made)
    return made


def plan(**settings):
    return Plan(**({"benchmark": "scenes-vqa", "limit": ITEMS, "n": 4} | settings))


def results(folder):
    """Every byte of a run that must not depend on how it was made."""
    tables = ("items", "candidates", "scores/*", "looks")
    files = [file for table in tables for file in folder.glob(f"{table}/*.parquet")]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def test_a_run_has_every_item_with_its_candidates(tmp_path):
    summary = start(plan(), tmp_path / "run")
    run = summary.run
    assert (summary.items, summary.failed, summary.worked) == (ITEMS, [], ITEMS)
    assert run.finished
    assert run.sizes.tolist() == [4] * ITEMS
    benchmark = get_benchmark("scenes-vqa")
    items = benchmark.items("test", ITEMS)
    assert run.ids == [item.id for item in items]
    for row in (0, 11, 22):
        texts = [c.text for c in run.candidates(row)]
        expected = [benchmark.score(items[row], text) for text in texts]
        assert run.quality()[row].tolist() == expected


def test_each_item_draws_with_a_seed_of_its_own(tmp_path, engine):
    run = start(plan(), tmp_path / "run").run
    item = get_benchmark("scenes-vqa").items("test")[3]
    seed = item_seed(42, item.id)
    again = engine.sample(item.image, item.question, 4, seed=seed, max_new_tokens=256)
    assert [c.token_ids.tolist() for c in run.candidates(3)] == [
        c.token_ids.tolist() for c in again
    ]
    assert len({item_seed(s, i) for s in (42, 123) for i in ("a", "b")}) == 4


def test_a_smaller_draw_is_the_beginning_of_a_larger_one(tmp_path):
    large = start(plan(), tmp_path / "large").run
    small = start(plan(n=2), tmp_path / "small").run
    np.testing.assert_array_equal(small.scores("lookback"), large.scores("lookback", 2))


def test_wherever_it_is_interrupted_it_ends_with_the_same_bytes(tmp_path, monkeypatch):
    """Every write of the run fails once, before or after it took effect."""
    settings = {"scorers": ("usc@2",), "limit": 11}
    start(plan(**settings), tmp_path / "whole")
    whole = results(tmp_path / "whole")
    assert len(whole) == 2 * 3
    writes = 2 + len(whole) + 4 + 4 + 4  # manifest twice, results, timings, records of both
    for stop in range(writes):
        for after in (False, True):
            folder = tmp_path / f"{stop}-{after}"
            with interrupted(monkeypatch, stop, after):
                start(plan(**settings), folder)
            if (folder / "manifest.json").exists() and stop < writes - 1:
                part = Run(folder)  # what is there can be read, whole shards of it
                assert not part.finished
                assert len(part.ids) in (0, 10, 11)
                assert part.quality().shape == (len(part.ids), 4 if part.ids else 0)
                assert set(part.recorded) <= {"usc@2"}
            start(plan(**settings), folder)
            assert results(folder) == whole
            assert Run(folder).finished
            assert [p.name for p in folder.rglob(".*")] == [".lookback-lock"]
            assert verify(folder).problems == []


def test_going_on_draws_only_what_is_missing(tmp_path, engine):
    start(plan(), tmp_path / "run")
    forget(tmp_path / "run", 1, ["items"])
    engine.sampled.clear()
    summary = start(plan(), tmp_path / "run")
    assert len(engine.sampled) == summary.worked == 10
    assert start(plan(), tmp_path / "run").worked == 0


def test_a_full_disk_says_so_and_loses_nothing(tmp_path, monkeypatch):
    start(plan(), tmp_path / "whole")
    real = pq.write_table
    count = iter(range(10**6))

    def full(table, path, **settings):
        if next(count) == 3:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        real(table, path, **settings)

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(RunError, match=r"No space left on device; what was written before is kept"):
        start(plan(), tmp_path / "run")
    assert (tmp_path / "run" / "items" / "00000.parquet").exists()
    start(plan(), tmp_path / "run")
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_a_disk_that_is_really_full(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(small)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        with pytest.raises(RunError, match=r"cannot write .*No space left on device"):
            start(plan(), small / "run")
        subprocess.run(["mount", "-o", "remount,size=4m", str(small)], check=True)
        start(plan(), small / "run")
        start(plan(), tmp_path / "whole")
        assert results(small / "run") == results(tmp_path / "whole")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_two_writers_are_refused(tmp_path):
    start(plan(), tmp_path / "run")
    held = lock(tmp_path / "run")
    with pytest.raises(RunError, match="another process is writing to"):
        start(plan(), tmp_path / "run")
    held.release()
    start(plan(), tmp_path / "run")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"seed": 43}, "sampling"),
        ({"n": 5}, "sampling"),
        ({"limit": 24}, "limit"),
        ({"benchmark": "scenes-pairs"}, "benchmark"),
    ],
)
def test_another_run_is_not_overwritten(tmp_path, other, named):
    start(plan(), tmp_path / "run")
    before = results(tmp_path / "run")
    with pytest.raises(RunError, match=f"holds another run: its {named} is"):
        start(plan(**other), tmp_path / "run")
    assert results(tmp_path / "run") == before


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="holds other files"):
        start(plan(), tmp_path)


def test_a_bad_item_is_recorded_and_stops_nothing(tmp_path, monkeypatch, engine):
    benchmark = get_benchmark("scenes-vqa")
    items = list(benchmark.items("test", ITEMS))

    def broken():
        raise ValueError("cannot read the image 'x.jpg':\ntruncated")

    bad = Item(items[5].id, items[5].question, items[5].truth, broken)
    monkeypatch.setattr(Plan, "items", lambda plan, benchmark: [*items[:5], bad, *items[6:]])
    summary = start(plan(scorers=("vauq",)), tmp_path / "run")
    assert summary.failed == [(items[5].id, "ValueError: cannot read the image 'x.jpg': truncated")]
    run = summary.run
    assert run.manifest.failed == 1
    assert 5 not in run.places
    assert len(run.places) == ITEMS - 1
    assert run.scores("vauq", 4).shape == (ITEMS - 1, 4)
    monkeypatch.undo()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: engine)
    assert start(plan(scorers=("vauq",)), tmp_path / "run").worked == 0
    mended = start(plan(scorers=("vauq",)), tmp_path / "run", retry_failed=True)
    assert mended.failed == []
    start(plan(scorers=("vauq",)), tmp_path / "whole")
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_a_scorer_that_fails_is_recorded_too(tmp_path, monkeypatch):
    def generate(self, image, prompts, **settings):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(ToyEngine, "generate", generate)
    summary = start(plan(limit=2, scorers=("usc@3",)), tmp_path / "run")
    assert [error for _, error in summary.failed] == ["usc@3: RuntimeError: out of memory"] * 2
    assert np.isnan(summary.run.scores("usc", 3)).all()


def test_scorers_can_be_added_later(tmp_path, engine):
    start(plan(), tmp_path / "run")
    engine.sampled.clear()
    summary = start(plan(scorers=("usc@3", "vauq")), tmp_path / "run")
    assert engine.sampled == []
    run = summary.run
    assert run.recorded == ["usc@3", "vauq"]
    cands = run.candidates(2)
    item = get_benchmark("scenes-vqa").items("test")[2]
    from dataclasses import replace

    from lookback.signals import Asked

    asked = replace(cands, asked=Asked(engine, item.conversation))
    np.testing.assert_array_equal(run.scores("vauq")[2], asked.scores("vauq"))
    np.testing.assert_array_equal(run.scores("usc", 3)[2], asked[:3].scores("usc"))
    assert run.replies("usc@3")[2][0].startswith("The most consistent response is Response")
    assert {row["stage"] for row in run.timings()} == {"sample", "usc@3", "vauq"}


def test_a_control_scores_the_same_candidates_with_another_image(tmp_path):
    own = start(plan(), tmp_path / "own").run
    settings = {"candidates": str(tmp_path / "own")}
    random = start(plan(image="random", **settings), tmp_path / "random").run
    none = start(plan(image="none", **settings), tmp_path / "none").run
    assert random.texts == none.texts == own.texts
    assert random.controls == none.controls == own.id
    np.testing.assert_array_equal(random.quality(), own.quality())
    assert (none.signal("visual_lookback") == 0).all()
    assert not np.allclose(random.signal("log_prob"), own.signal("log_prob"))
    shown = random.items["image"].to_pylist()
    assert all(other != item for other, item in zip(shown, random.ids, strict=True))
    assert none.items["image"].to_pylist() == [None] * ITEMS
    assert len(set(shown)) > 10  # not one picture for all
    again = start(plan(image="random", **settings), tmp_path / "again").run
    assert again.items["image"].to_pylist() == shown
    other = start(plan(image="random", seed=7, **settings), tmp_path / "other").run
    assert other.items["image"].to_pylist() != shown


def test_a_random_image_is_never_the_own_one():
    """Two questions about one picture are no two pictures."""
    items = [*get_benchmark("scenes-pairs").items("test", 8)]
    questions = Questions(plan(candidates="x", image="random"), items, range(8))
    for place, item in enumerate(items):
        question = questions.of(place)
        (picture,) = question.conversation.images
        assert picture.tobytes() != item.image.tobytes()
        assert question.image != item.id
        assert question.conversation.question == item.question
    same = Questions(plan(candidates="x", image="random"), items, [0])
    with pytest.raises(RunError, match="are there others"):
        same.of(0)


def test_a_question_without_an_image_is_asked_without_one():
    with_one, *_ = items = [*get_benchmark("scenes-vqa").items("test", 3)]
    without = Item("none", "What is usual?", {}, None)
    for mode in ("own", "random"):
        questions = Questions(plan(candidates="x", image=mode), [*items, without], range(4))
        blind = questions.of(3)
        assert (blind.conversation.images, blind.image, blind.source) == ([], None, "none")
        shown = questions.of(0)
        assert shown.image != "none"
        assert len(shown.conversation.images) == 1
        assert (shown.image == with_one.id) == (mode == "own")


def test_candidates_from_a_file(tmp_path):
    file = tmp_path / "given.jsonl"
    lines = [
        {"id": "scenes-vqa/test/3", "responses": ["red", "", "blue dog"]},
        {"id": "scenes-vqa/test/20", "response": "yes"},
        {"id": "scenes-vqa/test/20", "answer": "no"},
    ]
    file.write_text("".join(json.dumps(line) + "\n\n" for line in lines))
    run = start(plan(candidates=str(file), scorers=("vauq",)), tmp_path / "run").run
    assert run.ids == ["scenes-vqa/test/3", "scenes-vqa/test/20"]
    assert run.texts == ["red", "", "blue dog", "yes", "no"]
    assert run.sizes.tolist() == [3, 2]
    scores = run.scores("lookback")
    assert np.isnan(scores[0, 1])
    assert np.isnan(scores[1, 2])
    assert np.isfinite(scores[0, [0, 2]]).all()
    assert run.scores("vauq").shape == (2, 3)
    assert run.seed is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: not JSON"),
        ('{"id": 3}', 'line 2: no "response"'),
        ('{"id": "scenes-vqa/test/1", "responses": "red"}', "line 2: the responses are no list"),
        ('{"id": "elsewhere", "response": "red"}', "1 ids that are not among the 23 items"),
    ],
)
def test_a_bad_file_of_candidates_is_refused(tmp_path, line, said):
    file = tmp_path / "given.jsonl"
    file.write_text('{"id": "scenes-vqa/test/0", "response": "red"}\n' + line + "\n")
    with pytest.raises(RunError, match=said):
        start(plan(candidates=str(file)), tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"image": "random"}, "name it with --candidates"),
        ({"image": "blue"}, "must be one of own, none, random"),
        ({"scorers": ("lookback",)}, "computed from signals"),
        ({"scorers": ("usc@x",)}, "write usc@N"),
        ({"candidates": "nowhere"}, "neither a file nor a run"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, settings, said):
    with pytest.raises(RunError, match=said):
        start(plan(**settings), tmp_path / "run")


def test_scorers_have_one_name_each():
    assert plan(scorers=("usc", "usc@4", "vauq@2", "judge@2")).scorers == (
        "usc@4",
        "vauq",
        "judge@2",
    )


def test_an_estimate_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = estimate(plan(scorers=("vauq",)), workers=2)
    assert (found.items, found.tried, found.failed) == (ITEMS, 4, 0)
    assert list(tmp_path.iterdir()) == []


def test_an_estimate_of_all_items_has_the_size_of_the_run(tmp_path):
    run = start(plan(), tmp_path / "run").run
    found = estimate(plan(), tries=ITEMS)
    assert found.tried == ITEMS
    assert found.megabytes == pytest.approx(run.lengths.sum() * BYTES_A_TOKEN / 1e6)


def test_an_estimate_counts_failures(monkeypatch):
    items = list(get_benchmark("scenes-vqa").items("test", ITEMS))

    def broken():
        raise ValueError("no image")

    items[1] = Item(items[1].id, items[1].question, items[1].truth, broken)
    monkeypatch.setattr(Plan, "items", lambda plan, benchmark: items)
    found = estimate(plan())
    assert (found.tried, found.failed) == (4, 1)


def test_an_estimate_needs_an_item_beside_the_first():
    with pytest.raises(RunError, match="nothing to estimate for 1 items"):
        estimate(plan(limit=1))
    assert estimate(plan(limit=2)).tried == 2

"""Some items of a run against the whole, row by row."""

import json

import numpy as np
import pyarrow as pa
import pytest
from made_runs import make_run, write_shard

from lookback.runs import Run
from lookback.runs.part import Part, items_with_quality
from lookback.signals import SIGNALS

KEPT = [1, 4, 11]


@pytest.fixture
def run(tmp_path):
    made = make_run(
        tmp_path / "run",
        items=13,
        n=4,
        failed=(3,),
        empty=((4, 1),),
        recorded=("vauq", "usc@3", "judge@4"),
    )
    rows = made.table("candidates").to_pylist()
    rows = [row for row in rows if (row["item"], row["index"]) != (4, 3)]  # one has three
    for shard in (0, 1):
        here = [row for row in rows if row["item"] // 10 == shard]
        write_shard(made.path, "candidates", shard, here)
    return Run(made.path)


def test_a_part_is_the_rows_of_the_whole(run):
    part = Part(run, np.array(KEPT))
    rows = [run.places.tolist().index(position) for position in KEPT]
    assert part.places.tolist() == KEPT
    assert part.sizes.tolist() == [4, 3, 4]
    assert part.ids == [run.ids[row] for row in rows]
    assert part.questions == [run.questions[row] for row in rows]
    assert (part.id, part.model, part.n) == (run.id, run.model, 4)
    np.testing.assert_array_equal(part.quality(), run.quality()[rows])
    for scorer, n in (("lookback", 4), ("majority", 3), ("random", 2), ("vauq", 4), ("usc", 3)):
        np.testing.assert_array_equal(part.scores(scorer, n), run.scores(scorer, n)[rows])
    for new, old in enumerate(rows):
        assert [c.text for c in part.candidates(new)] == [c.text for c in run.candidates(old)]


def test_tokens_and_signals_are_those_of_the_candidates_kept(run):
    part = Part(run, np.array(KEPT))
    wanted = [row for row in run.table("candidates").to_pylist() if row["item"] in KEPT]
    assert part.tokens().to_pylist() == [row["tokens"] for row in wanted]
    assert isinstance(part.tokens(), pa.ListArray)
    assert part.texts == [row["text"] for row in wanted]
    for name in SIGNALS:
        flat = [value for row in wanted for value in row[name]]
        np.testing.assert_allclose(part.signal(name), flat)


def test_replies_and_failures_are_those_of_the_items_kept(run):
    rows = run.table("scores/judge@4").to_pylist()
    for row in rows:
        row["replies"] = [f"of {row['item']}"]
        row["error"] = "ValueError: lost" if row["item"] in (0, 4) else None
    for shard in (0, 1):
        write_shard(
            run.path, "scores/judge@4", shard, [r for r in rows if r["item"] // 10 == shard]
        )
    whole = Run(run.path)
    part = Part(whole, np.array(KEPT))
    assert part.replies("judge@4") == [[f"of {position}"] for position in KEPT]
    assert (whole.unscored("judge@4"), part.unscored("judge@4")) == (2, 1)


def test_nothing_kept(run):
    part = Part(run, np.array([], dtype=np.int64))
    assert (part.n, part.ids, part.quality().shape) == (0, [], (0, 0))


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_items_with_quality(run, nothing):
    assert items_with_quality(run) is run
    rows = run.table("candidates").to_pylist()
    for row in rows:
        if (row["item"], row["index"]) == (4, 2) or row["item"] == 12:  # one of three; all
            row["quality"] = nothing
    for shard in (0, 1):
        write_shard(run.path, "candidates", shard, [r for r in rows if r["item"] // 10 == shard])
    part = items_with_quality(Run(run.path))
    assert part.places.tolist() == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]
    assert np.isfinite(part.quality()).all()
    assert json.loads((run.path / "manifest.json").read_text())["items"] == 13

"""Studies of pruned runs: what a pruned candidate said counts nowhere, and no smaller N is told."""

import numpy as np
import pytest
from changed_runs import change_rows
from made_runs import make_run, write_shard

from lookback.runs import Run
from lookback.runs.layout import RunError
from lookback.runs.part import Complete
from lookback.scores.base import get_scorer
from lookback.studies import STUDIES, Runs, StudyError, get_study
from lookback.studies.common.selection import outcome

N, ITEMS = 6, 8
RECORDED = ("vauq", f"usc@{N}", f"judge@{N}")


def is_pruned(place, index):
    """Every item keeps two, others in each."""
    return (index + place) % N not in (1, 4)


def pruned_run(folder, said, **settings):
    """A run four of whose six candidates are pruned; what they said follows from `said`."""
    run = make_run(folder, items=ITEMS, n=N, length=6, layers=3, **settings)

    def prune(row):
        if not is_pruned(row["item"], row["index"]):
            return
        rng = np.random.default_rng([said, row["item"], row["index"]])
        length = 1 + said
        row |= {"finish": "pruned", "length": length, "tokens": [" dog"] * length}
        row |= {"text": "dog " * said, "token_ids": [said] * length, "quality": float("nan")}
        for name in ("visual_lookback", "self_certainty", "entropy"):
            row[name] = rng.uniform(0.1, 0.9, length).tolist()
        row["log_prob"] = (-rng.uniform(0, 0.1, length)).tolist()  # they would win
        row["by_layer"] = [[value] * 3 for value in row["visual_lookback"]]

    change_rows(run, prune)
    for name in run.recorded:
        rows = run.table(f"scores/{name}").to_pylist()
        for row in rows:
            row["scores"] = [
                None if is_pruned(row["item"], index) else value
                for index, value in enumerate(row["scores"])
            ]
        write_shard(run.path, f"scores/{name}", 0, rows)
    return Run(run.path)


def make_runs(folder, said):
    own = pruned_run(folder / "own", said, recorded=RECORDED)
    controls = [
        pruned_run(folder / image, said, image=image, controls=own) for image in ("none", "random")
    ]
    return [own, *controls, pruned_run(folder / "other", said, seed=43)]


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """The same runs, but for what pruned candidates said until they were ended."""
    folder = tmp_path_factory.mktemp("pruned")
    return make_runs(folder / "one", 2), make_runs(folder / "two", 5)


@pytest.mark.parametrize("name", [name for name in STUDIES.names() if name != "budget"])
def test_what_a_pruned_candidate_said_counts_in_no_study(twice, name):
    first, second = (get_study(name)(runs) for runs in twice)
    assert first.rows
    if name == "overhead":  # times
        assert [r["N"] for r in first.rows] == [r["N"] for r in second.rows]
        return
    assert len(first.rows) == len(second.rows)
    for one, other in zip(first.rows, second.rows, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert value == other[key] or value != value, (key, value, other[key])
    assert {row["N"] for row in first.rows if row.get("N")} == {N}
    notes = [note.replace("of a bar", "") for note in first.notes if "pruned" in note]
    assert any(f"{ITEMS * 4} of {ITEMS * N} candidates in own were pruned" in n for n in notes)


def test_picks_and_expectations_are_of_the_complete_ones_by_a_plain_loop(twice):
    whole, run = twice[0][0], Complete(twice[0][0])
    quality = whole.quality()
    kept = np.array([[not is_pruned(i, j) for j in range(N)] for i in range(ITEMS)])
    assert (np.isnan(quality) == ~kept).all()
    np.testing.assert_array_equal(run.quality(), quality)
    for method in ("lookback", "self_certainty", "majority", "vauq"):
        scores = run.scores(method, N)
        assert (np.isfinite(scores) == kept).all()
        np.testing.assert_array_equal(scores, whole.scores(method, N))
        for i, found in enumerate(outcome(run, method, N)):
            best = max(np.flatnonzero(kept[i]), key=lambda j: (scores[i, j], -j))
            assert found == quality[i, best]
    for i in range(ITEMS):
        of = [quality[i, j] for j in range(N) if kept[i, j]]
        assert outcome(run, "random", N)[i] == pytest.approx(sum(of) / 2)
        assert outcome(run, "oracle", N)[i] == max(of)


def test_a_complete_run_has_only_what_was_not_pruned(twice):
    whole, run = twice[0][0], Complete(twice[0][0])
    rows = [row for row in whole.table("candidates").to_pylist() if row["finish"] != "pruned"]
    assert run.texts == [row["text"] for row in rows]
    assert run.index.tolist() == [row["index"] for row in rows]
    assert run.sizes.tolist() == [2] * ITEMS
    assert run.tokens().to_pylist() == [row["tokens"] for row in rows]
    flat = [value for row in rows for value in row["log_prob"]]
    np.testing.assert_allclose(run.signal("log_prob"), flat)
    assert run.by_layer().shape == (len(flat), 3)
    assert (run.n, run.steered, run.pruned.any()) == (N, True, np.False_)


def test_the_first_of_pruned_candidates_are_no_smaller_draw(twice):
    run = twice[0][0]
    assert (run.has_draw(N), run.has_draw(N - 1), run.has_draw(N + 1)) == (True, False, False)
    for ask in (run.quality, run.batch, lambda n: run.scores("lookback", n)):
        with pytest.raises(RunError, match="no draw of 3: ask for N = 6"):
            ask(3)
        assert ask(N) is not None
    with pytest.raises(RunError, match="no draw of 3"):
        Runs([run], ns=(3, 6))
    with pytest.raises(RunError, match="no draw of 3"):
        get_study("ablation")([run], {"n": 3})
    with pytest.raises(StudyError, match="no model and benchmark"):
        get_study("seeds")(twice[0], {"n": 3})
    assert Runs([run]).budgets(run) == [N]


def test_a_whole_run_is_taken_before_a_pruned_one(twice, tmp_path):
    pruned = twice[0][0]
    whole = make_run(tmp_path / "whole", items=ITEMS, n=N)
    assert Runs([pruned, whole]).largest == [whole]
    smaller = make_run(tmp_path / "smaller", items=ITEMS, n=N - 1)
    assert Runs([smaller, pruned]).largest == [pruned]
    assert whole.has_draw(3)
    assert get_scorer("majority").joint

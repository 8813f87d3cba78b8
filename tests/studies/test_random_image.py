"""The same candidates with another image, against plain loops and the paper's own numbers."""

import numpy as np
import pytest
from changed_runs import change_rows
from made_runs import make_run

from lookback.scores.formula import lookback_score
from lookback.studies import StudyError, get_study
from lookback.studies.common.controls import share_removed
from lookback.studies.random_image import _control


@pytest.fixture
def runs(tmp_path):
    own = make_run(tmp_path / "own", n=7, empty=((2, 0), (5, 6)), failed=(0,))
    random = make_run(
        tmp_path / "random",
        n=7,
        image="random",
        controls=own,
        empty=((2, 0), (5, 6)),
        failed=(0, 11),
    )
    return [own, random]


@pytest.mark.parametrize(
    ("original", "replaced", "random", "percent"),
    [
        (65.70, 63.10, 60.40, 49.1),  # the paper's table
        (67.60, 59.50, 60.40, 112.5),
        (73.53, 73.64, 71.52, -5.5),
        (74.43, 71.81, 71.52, 90.0),
    ],
)
def test_removed_gains_of_the_paper(original, replaced, random, percent):
    assert round(share_removed(original, replaced, random), 1) == percent


def test_there_is_no_share_of_no_gain():
    assert np.isnan(share_removed(60, 50, 60))
    assert np.isnan(share_removed(59, 50, 60))


def pick(candidates, score):
    """The first of the best; an empty one loses."""
    found, top = 0, -np.inf
    for i, one in enumerate(candidates):
        if len(one.tokens) and score(one) > top:
            found, top = i, score(one)
    return found


SCORES = {
    "self_certainty": lambda c: float(np.mean(c.self_certainty.astype(float))),
    "visual_lookback": lambda c: float(np.mean(c.visual_lookback.astype(float))),
    "mean_log_prob": lambda c: float(np.mean(c.log_prob.astype(float))),
    "lookback": lambda c: lookback_score(c.log_prob, c.visual_lookback, 0.5, 1.25),
}


def test_rows(runs):
    own, random = runs
    rows = {row["method"]: row for row in get_study("random-image")(runs).rows}
    assert set(rows) == set(SCORES)
    for method, score in SCORES.items():
        same, before, after, floor = [], [], [], []
        for place in range(1, 11):
            row = own.places.tolist().index(place)
            other = random.places.tolist().index(place)
            a, b = pick(own.candidates(row), score), pick(random.candidates(other), score)
            quality = own.quality()[row].tolist()
            same.append(a == b)
            before.append(quality[a])
            after.append(quality[b])
            floor.append(sum(quality) / 7)
        before, after, floor = (100 * sum(x) / 10 for x in (before, after, floor))
        row = rows[method]
        assert row["agreement"] == pytest.approx(sum(same) / 10)
        assert row["original"] == pytest.approx(before)
        assert row["replaced"] == pytest.approx(after)
        assert row["drop"] == pytest.approx(before - after)
        assert row["low"] <= row["drop"] <= row["high"]
        assert row["random"] == pytest.approx(floor)
        if before > floor:
            share = 100 * (before - after) / (before - floor)
            assert row["removed"] == pytest.approx(share)
        else:
            assert np.isnan(row["removed"])
        assert (row["items"], row["N"]) == (10, 7)


def test_the_same_image_removes_nothing(tmp_path):
    own = make_run(tmp_path / "own", n=7)
    same = {(c["item"], c["index"]): c for c in tables(own)}
    control = make_run(tmp_path / "random", n=7, image="random", controls=own)
    control = change_rows(control, lambda row: row.update(same[row["item"], row["index"]]))
    rows = get_study("random-image")([own, control]).rows
    assert {row["agreement"] for row in rows} == {1.0}
    assert {row["drop"] for row in rows} == {0.0}
    assert all(row["removed"] == 0 for row in rows if row["original"] > row["random"])
    assert rows[-1]["original"] > rows[-1]["random"]


def tables(run):
    return run.table("candidates").to_pylist()


def test_tables(tmp_path, runs):
    other = make_run(tmp_path / "vqa", "scenes-vqa", n=7)
    control = make_run(tmp_path / "vqa-random", "scenes-vqa", n=7, image="random", controls=other)
    worst = {(c["item"], c["index"]): -c["quality"] for c in tables(other)}

    def misled(row):  # self-certainty picks the worst there is
        row["self_certainty"] = [worst[row["item"], row["index"]] + 9] * row["length"]

    other = change_rows(other, misled)
    result = get_study("random-image")([*runs, other, control])
    agreement, outcomes = result.tables
    assert [row[0] for row in agreement.rows] == ["Scenes VQA", "Scenes Caption", "Avg."]
    values = [[float(cell.text) for cell in row[1:]] for row in agreement.rows]
    exact = [row["agreement"] for row in result.rows]
    assert values[0] == pytest.approx(exact[:4], abs=6e-4)
    assert values[2] == pytest.approx(np.mean([exact[:4], exact[4:]], axis=0), abs=6e-4)
    for row, numbers in zip(agreement.rows, values, strict=True):
        marked = [cell.mark == "best" for cell in row[1:]]
        assert marked == [number == min(numbers) for number in numbers]
    assert outcomes.columns[2:4] == [("SC", "Orig.→Rand."), ("SC", "Removed")]
    assert outcomes.rows[0][3].text == "-"  # no gain to remove
    assert outcomes.rows[0][3].mark == ""
    ours = result.rows[7]
    assert ours["method"] == "lookback"
    assert outcomes.rows[1][4] == f"{ours['original']:.2f} → {ours['replaced']:.2f}"
    assert outcomes.rows[1][5].text == f"{ours['removed']:.1f}%"
    shares = [float(outcomes.rows[1][i].text[:-1]) for i in (5, 7)]
    marks = [outcomes.rows[1][i].mark == "best" for i in (5, 7)]
    assert marks == [share == max(shares) for share in shares]


def test_it_needs_the_control(runs):
    with pytest.raises(StudyError, match="--image random"):
        get_study("random-image")(runs[:1])


def test_a_share_of_a_small_gain_stands_in_brackets_and_is_never_the_most():
    head = {"model": "m", "benchmark": "b", "N": 25, "random": 60.0}
    outcomes = {"self_certainty": (60.5, 50.0), "lookback": (70.0, 62.0), "mean_log_prob": (59, 50)}
    rows = [
        head
        | {"method": method, "original": own, "replaced": other}
        | {"removed": share_removed(own, other, 60.0)}
        for method, (own, other) in outcomes.items()
    ]
    ((_, _, _, sc, _, ours, _, log_prob),) = _control(rows).rows
    assert (sc.text, sc.mark) == ("(2100.0%)", "")
    assert (ours.text, ours.mark) == ("80.0%", "best")
    assert log_prob.text == "-"

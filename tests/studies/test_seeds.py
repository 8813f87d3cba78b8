"""The mean and spread over seeds."""

import statistics

import pytest
from made_runs import make_run
from slow_outcomes import cells, change, marks, mean, slow_percent

from lookback.studies import StudyError, get_study


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    made = [
        make_run(folder / "456", items=12, n=5, seed=456, failed=(2,), recorded=("usc@5", "vauq")),
        make_run(folder / "42", items=12, n=25, seed=42, recorded=("usc@5",)),
        make_run(folder / "123", items=12, n=7, seed=123, empty=[(0, 0)], recorded=("usc@5",)),
        make_run(folder / "v1", "scenes-vqa", items=6, n=5, seed=1, model="other"),
        make_run(folder / "v2", "scenes-vqa", items=6, n=5, seed=2, model="other"),
        make_run(folder / "alone", "scenes-pairs", items=3, n=5),
    ]
    control = make_run(folder / "c", items=12, n=25, controls=made[1], image="random")
    return [*made, control]


@pytest.fixture(scope="module")
def result(runs):
    return get_study("seeds")(runs)


@pytest.mark.parametrize("method", ["random", "self_certainty", "usc", "lookback"])
def test_mean_and_spread(result, runs, method):
    rows = [r for r in result.rows if (r["benchmark"], r["method"]) == ("Scenes Caption", method)]
    by_seed = {456: runs[0], 42: runs[1], 123: runs[2]}
    assert [r["seed"] for r in rows] == [42, 123, 456]
    assert [r["items"] for r in rows] == [12, 12, 11]
    values = [slow_percent(by_seed[r["seed"]], method, 5) for r in rows]
    assert [r["value"] for r in rows] == pytest.approx(values)
    for row in rows:
        assert row["mean"] == pytest.approx(mean(values))
        assert row["std"] == pytest.approx(statistics.stdev(values))  # divided by 2, not by 3
        assert row["N"] == 5


def test_table(result, runs):
    (table,) = result.tables
    assert table.label == "tab:appendix_seed"
    assert table.columns == [
        ("", "Method"),
        ("made-up", "Scenes Caption"),
        ("other", "Scenes VQA"),
    ]  # a benchmark with one seed has no column
    lines = cells(table)
    assert list(lines) == ["Random", "SC", "USC", "LookBack"]  # VAUQ is there for one seed alone
    assert lines["USC"][1] == "-"
    values = [slow_percent(run, "lookback", 5) for run in runs[3:5]]
    assert lines["LookBack"][1] == f"{mean(values):.2f} ± {statistics.stdev(values):.2f}"
    for column in range(2):
        numbers = {
            name: float(line[column].split()[0].replace("-", "nan")) for name, line in lines.items()
        }
        best = max(value for value in numbers.values() if value == value)
        bold = [name for name in lines if marks(table)[name][column] == "best"]
        assert bold == [name for name, value in numbers.items() if value == best]
    assert "Scenes Caption, made-up: seeds 42, 123, 456." in result.notes
    assert "Scenes VQA, other: seeds 1, 2." in result.notes
    assert any("number of seeds - 1" in note for note in result.notes)


def test_n(runs):
    fewer = get_study("seeds")(runs, {"n": 6})
    assert {(r["seed"], r["N"]) for r in fewer.rows} == {(42, 6), (123, 6)}
    (row,) = [r for r in fewer.rows if (r["method"], r["seed"]) == ("lookback", 42)]
    assert row["value"] == pytest.approx(slow_percent(runs[1], "lookback", 6))
    with pytest.raises(StudyError, match="n = 0"):
        get_study("seeds")(runs, {"n": 0})


def test_two_seeds_are_needed(runs, tmp_path):
    same = make_run(tmp_path / "same", items=12, n=5, seed=42)
    control = runs[-1]
    for given in ([runs[1]], [runs[1], same], [runs[1], runs[5]], [runs[1], control]):
        with pytest.raises(StudyError, match="lookback run --seed 123"):
            get_study("seeds")(given)
    with pytest.raises(StudyError, match="at least 8 candidates"):
        get_study("seeds")(runs, {"n": 8})


def test_runs_that_differ_in_more_than_the_seed_are_not_mixed(runs, tmp_path):
    shorter = make_run(tmp_path / "s", items=4, n=5, seed=7)
    with pytest.raises(StudyError, match="otherwise the same"):
        get_study("seeds")([runs[1], shorter])
    colder = make_run(tmp_path / "t", items=12, n=5, seed=8)
    old = colder.settings
    colder = change(colder, settings=old | {"sampling": old["sampling"] | {"temperature": 0.1}})
    given = [shorter, colder, runs[1], runs[2]]
    assert {r["seed"] for r in get_study("seeds")(given).rows} == {42, 123}


def test_the_group_with_most_seeds_is_taken(runs, tmp_path):
    pair = [make_run(tmp_path / str(seed), items=4, n=5, seed=seed) for seed in (7, 8)]
    three = runs[:3]
    for given in ([*pair, *three], [*three, *pair]):
        rows = get_study("seeds")(given).rows
        assert {row["seed"] for row in rows} == {42, 123, 456}
        assert {row["benchmark"] for row in rows} == {"Scenes Caption"}


def test_given_candidates_have_no_seed(runs, tmp_path):
    given = make_run(tmp_path / "given", items=12, n=5, seed=9)
    given = change(given, settings=given.settings | {"sampling": None, "candidates": {"file": "x"}})
    with pytest.raises(StudyError):
        get_study("seeds")([runs[1], given])


def test_signals_by_layer_make_no_other_run(tmp_path):
    """One seed with them and one without are of the same settings."""
    first = make_run(tmp_path / "1", items=6, n=5, seed=1, layers=2)
    second = make_run(tmp_path / "2", items=6, n=5, seed=2)
    assert {row["seed"] for row in get_study("seeds")([first, second]).rows} == {1, 2}

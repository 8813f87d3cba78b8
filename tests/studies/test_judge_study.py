"""The judge beside USC, and how many replies could not be read."""

import pytest
from made_runs import change_manifest, make_run
from slow_outcomes import cells, mean, record, slow_percent

from lookback.runs.layout import RunError
from lookback.runs.records import forget
from lookback.studies import StudyError, get_study
from lookback.studies.common.selection import bootstrap_means, interval, outcome
from lookback.studies.judge import count_unparsed

METHODS = ("random", "usc", "judge", "lookback")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judge")
    caption = make_run(
        folder / "caption",
        items=12,
        n=6,
        failed=(3,),
        empty=[(0, 1)],
        recorded=("usc@5", "judge@5"),
    )
    vqa = make_run(folder / "vqa", "scenes-vqa", items=7, n=5, recorded=("judge@5",))
    larger = make_run(folder / "larger", "scenes-vqa", items=7, n=25)
    other = make_run(folder / "other", items=4, n=5, model="other", recorded=("usc@5", "judge@5"))
    control = make_run(
        folder / "none",
        "scenes-pairs",
        items=4,
        n=5,
        image="none",
        controls=other,
        recorded=("judge@5",),
    )
    return [caption, larger, vqa, other, control]


@pytest.fixture(scope="module")
def result(runs):
    return get_study("judge")(runs)


def row(result, method, benchmark, model="made-up"):
    key = (model, benchmark, method)
    (found,) = [r for r in result.rows if (r["model"], r["benchmark"], r["method"]) == key]
    return found


@pytest.mark.parametrize("method", METHODS)
def test_values(result, runs, method):
    places = [(runs[0], "Scenes Caption", "made-up"), (runs[3], "Scenes Caption", "other")]
    places += [(runs[2], "Scenes VQA", "made-up")] if method != "usc" else []
    for run, name, model in places:
        found = row(result, method, name, model)
        assert found["value"] == pytest.approx(slow_percent(run, method, 5))
        expected = interval(bootstrap_means(100 * outcome(run, method, 5)))
        assert (found["low"], found["high"]) == pytest.approx(expected)
        assert found["N"] == 5
    assert row(result, method, "Scenes Caption")["items"] == 11


def test_tables(result, runs):
    value, unread, other, _ = result.tables
    assert [name for _, name in value.columns] == ["Method", "Scenes VQA", "Scenes Caption", "Avg."]
    lines = cells(value)
    assert list(lines) == ["Random", "USC", "Judge", "LookBack"]
    assert lines["USC"] == ["-", f"{slow_percent(runs[0], 'usc', 5):.2f}", "-"]
    pair = [slow_percent(run, "judge", 5) for run in (runs[2], runs[0])]
    assert lines["Judge"] == [f"{number:.2f}" for number in (*pair, mean(pair))]
    assert cells(unread) == {"USC": ["-", "50.00", "-"], "Judge": ["100.00"] * 3}
    assert all(isinstance(cell, str) for line in unread.rows for cell in line)  # no contest
    assert "with other" in other.caption
    assert {r["benchmark"] for r in result.rows} == {"Scenes VQA", "Scenes Caption"}  # no control


def test_replies_of_usc_are_read_with_the_number_of_responses_shown(tmp_path):
    empty = [(0, 1), (0, 7)]
    run = make_run(tmp_path / "run", items=4, n=8, empty=empty, length=3)

    def replies(first):
        """Item 0 has shown four of its five, so that there is no Response 4."""
        said = ["The most consistent response is Response 4", "Response 0"]
        return {0: said, 1: said, 2: ["Response 5", "none"], 3: None}[first[0]["item"]]

    run = record(run, "usc@5", replies=replies)
    assert count_unparsed(run, "usc", 5) == (3, 6)


def test_replies_of_the_judge_are_letters(tmp_path):
    run = make_run(tmp_path / "run", items=2, n=5, length=3)
    said = {0: ["A", "B.", "Response 1", "both"], 1: ["The answer is B", "", "b", "neither"]}
    run = record(run, "judge@5", replies=lambda first: said[first[0]["item"]])
    assert count_unparsed(run, "judge", 5) == (4, 8)
    found = row(get_study("judge")([run]), "judge", "Scenes Caption")
    assert (found["replies"], found["unread"]) == (8, 50)


def test_methods_that_ask_nothing_have_no_share(result):
    for method in ("random", "lookback"):
        found = row(result, method, "Scenes Caption")
        assert found["replies"] == 0
        assert found["unread"] != found["unread"]  # NaN


def test_missing_replies_are_an_error(tmp_path):
    run = make_run(tmp_path / "run", items=12, n=5, recorded=("judge@5",))
    forget(run.path, 1, ["scores/judge@5"])
    run = change_manifest(run.path, status="running")
    with pytest.raises(RunError, match="no judge@5 scores yet for 2 of its items: run its command"):
        get_study("judge")([run])


def test_nothing_recorded(runs, tmp_path):
    with pytest.raises(StudyError, match="--scorers judge@5"):
        get_study("judge")([runs[1]])
    with pytest.raises(StudyError, match="judge@3"):
        get_study("judge")(runs, {"n": 3})
    three = make_run(tmp_path / "three", items=3, n=5, recorded=("judge@3",))
    (found,) = {r["N"] for r in get_study("judge")([three], {"n": 3}).rows}
    assert found == 3

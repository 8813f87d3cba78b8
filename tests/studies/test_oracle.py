"""The best there is and the average, against plain loops."""

import pytest
from made_runs import make_run
from slow_outcomes import by_item, cells, mean, shorten

from lookback.studies import get_study


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle")
    made = [
        make_run(folder / "caption", items=14, failed=(3,), empty=[(0, 0)]),
        make_run(folder / "vqa", "scenes-vqa", items=9, seed=5),
        make_run(folder / "other", items=9, n=6, seed=6, model="other"),
    ]
    made[0] = shorten(made[0], 12, 3)
    return made


@pytest.fixture(scope="module")
def result(runs):
    return get_study("oracle")(runs)


def row(result, model, benchmark, n):
    key = (model, benchmark, n)
    (found,) = [r for r in result.rows if (r["model"], r["benchmark"], r["N"]) == key]
    return found


def test_against_loops(result, runs):
    places = [("made-up", "Scenes Caption", runs[0], 5), ("made-up", "Scenes Caption", runs[0], 25)]
    places += [("made-up", "Scenes VQA", runs[1], 25), ("other", "Scenes Caption", runs[2], 6)]
    for model, name, run, n in places:
        items = [[c["quality"] for c in first[:n]] for first in by_item(run).values()]
        top, average = 100 * mean(max(q) for q in items), 100 * mean(mean(q) for q in items)
        found = row(result, model, name, n)
        assert found["oracle"] == pytest.approx(top)
        assert found["mean"] == pytest.approx(average)
        assert found["gap"] == pytest.approx(top - average)
        assert found["items"] == len(items)


def test_more_candidates_are_never_worse(result):
    for name in ("Scenes Caption", "Scenes VQA"):
        few, many = (row(result, "made-up", name, n) for n in (5, 25))
        assert many["oracle"] >= few["oracle"]
        assert few["gap"] > 0


def test_average_over_benchmarks(result):
    for n in (5, 25):
        for key in ("oracle", "mean", "gap"):
            two = [row(result, "made-up", b, n)[key] for b in ("Scenes Caption", "Scenes VQA")]
            assert row(result, "made-up", "Average", n)[key] == pytest.approx(mean(two))
    assert not [r for r in result.rows if (r["model"], r["benchmark"]) == ("other", "Average")]


def test_tables(result):
    best, rest = result.tables
    assert best.columns == [
        ("", "Benchmark"),
        ("made-up", "N=5"),
        ("made-up", "N=25"),
        ("other", "N=6"),
    ]
    assert [name for _, name in rest.columns[1:5]] == [
        "N=5 mean",
        "N=5 gap",
        "N=25 mean",
        "N=25 gap",
    ]
    lines, others = cells(best), cells(rest)
    assert list(lines) == list(others) == ["Scenes VQA", "Scenes Caption", "Average"]
    assert lines["Scenes VQA"][2] == lines["Average"][2] == "-"
    assert others["Scenes VQA"][4:] == ["-", "-"]
    assert lines["Average"][1] == f"{row(result, 'made-up', 'Average', 25)['oracle']:.2f}"
    assert others["Scenes Caption"][4:] == [
        f"{row(result, 'other', 'Scenes Caption', 6)[key]:.2f}" for key in ("mean", "gap")
    ]
    assert best.rules == rest.rules == [2]

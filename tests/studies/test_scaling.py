"""Best of N against N: each point against a loop, and the figure against the points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run
from matplotlib.collections import PolyCollection
from slow_outcomes import cells, marks, record, shorten, slow_percent

from lookback.runs import Run
from lookback.studies import Runs, get_study
from lookback.studies.common.plots import tiles
from lookback.studies.common.selection import (
    bootstrap_means,
    has_scores,
    interval,
    outcome,
    outcomes,
)
from lookback.studies.scaling import scaling_methods, ticks_of_n

ALONE = ("self_certainty", "clipscore", "lookback", "mean_log_prob", "visual_lookback")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scaling")
    caption = make_run(
        folder / "caption",
        items=16,
        n=8,
        failed=(1,),
        empty=[(0, 0), *((7, i) for i in range(8))],
        recorded=("usc@3", "usc@8", "judge@3", "clipscore"),
    )
    vqa = make_run(folder / "vqa", "scenes-vqa", items=5, n=26, length=3)
    return [shorten(caption, 4, 2), vqa]


@pytest.fixture(scope="module")
def result(runs):
    return get_study("scaling")(runs)


def curve(result, method, benchmark="Scenes Caption"):
    rows = [r for r in result.rows if (r["method"], r["benchmark"]) == (method, benchmark)]
    return {r["N"]: r for r in rows}


@pytest.mark.parametrize("method", ["random", *ALONE])
def test_every_point_is_that_of_a_loop(result, runs, method):
    found = curve(result, method)
    assert list(found) == list(range(1, 9))
    for n, row in found.items():
        assert row["value"] == pytest.approx(slow_percent(runs[0], method, n))
        assert row["items"] == 15


def test_of_one_candidate_all_pick_the_same(result):
    assert len({round(curve(result, method)[1]["value"], 9) for method in ("random", *ALONE)}) == 1


def test_scorers_of_sets_have_points_where_they_were_recorded(result, runs):
    assert list(curve(result, "usc")) == [3, 8]
    assert list(curve(result, "judge")) == [3]
    for n, row in curve(result, "usc").items():
        assert row["value"] == pytest.approx(slow_percent(runs[0], "usc", n))
    assert not curve(result, "vauq")
    assert not curve(result, "usc", "Scenes VQA")


def test_intervals(result, runs):
    for method, n in (("lookback", 8), ("lookback", 3), ("random", 5), ("usc", 3)):
        row = curve(result, method)[n]
        expected = interval(bootstrap_means(100 * outcome(runs[0], method, n)))
        assert (row["low"], row["high"]) == pytest.approx(expected)


def test_outcomes_are_those_of_each_n(runs):
    for method in scaling_methods(Runs(runs)):
        found = outcomes(runs[0], method, range(1, 9))
        assert list(found) == [n for n in range(1, 9) if has_scores(runs[0], method, n)]
        for n, values in found.items():
            np.testing.assert_array_equal(values, outcome(runs[0], method, n))
    strong = outcomes(runs[0], "lookback", [8], alpha=8.0, lam=3.0)[8]
    np.testing.assert_array_equal(strong, outcome(runs[0], "lookback", 8, alpha=8.0, lam=3.0))
    assert list(outcomes(runs[0], "lookback", [5, 25])) == [5]


def test_scores_recorded_for_fewer_candidates_than_there_are(tmp_path):
    run = record(make_run(tmp_path / "run", items=4, n=6, length=3), "vauq@4")
    found = outcomes(run, "vauq", range(1, 7))
    assert list(found) == [4]
    np.testing.assert_array_equal(found[4], outcome(run, "oracle", 4))


def test_scores_that_stand_alone_are_made_once(runs, monkeypatch):
    asked = []
    scores = Run.scores

    def counted(run, scorer, *args, **params):
        asked.append(scorer)
        return scores(run, scorer, *args, **params)

    monkeypatch.setattr(Run, "scores", counted)
    get_study("scaling")(runs[:1])
    assert sorted(asked) == sorted([*ALONE, "usc", "usc", "judge"])


def test_table(result, runs):
    longer, table = result.tables
    assert "Scenes VQA" in longer.caption
    assert [name for _, name in table.columns] == ["Method", "N=1", "N=2", "N=5", "N=8"]
    numbers = (1, 2, 5, 10, 15, 20, 25, 26)
    assert [name for _, name in longer.columns[1:]] == [f"N={n}" for n in numbers]
    lines = cells(table)
    assert lines["USC"][:3] == ["-", "-", "-"]
    assert lines["USC"][3] == f"{slow_percent(runs[0], 'usc', 8):.2f}"
    assert "Judge" not in lines  # recorded for N = 3, which is not shown
    for name, method in (("LookBack", "lookback"), ("CLIPScore", "clipscore")):
        expected = [f"{slow_percent(runs[0], method, n):.2f}" for n in (1, 2, 5, 8)]
        assert lines[name] == expected
    assert {mark[0] for mark in marks(table).values()} == {"best", ""}  # N = 1: all but USC equal
    assert marks(table)["USC"][0] == ""


def test_figure(result):
    first, second = result.figure.axes
    assert first.get_title().startswith("Scenes VQA")
    drawn = {tuple(line.get_xdata()): line for line in second.lines if len(line.get_xdata()) < 3}
    assert set(drawn) == {(3, 8), (3,)}
    assert all(line.get_linestyle() == "None" for line in drawn.values())
    (ours,) = [line for line in second.lines if line.get_linewidth() == 2]
    assert list(ours.get_xdata()) == list(range(1, 9))
    values = [row["value"] for row in curve(result, "lookback").values()]
    assert list(ours.get_ydata()) == values
    *points, band = sorted(second.collections, key=lambda one: isinstance(one, PolyCollection))
    assert len(points) == 2  # whiskers of USC and of the judge
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == max(row["high"] for row in curve(result, "lookback").values())
    assert heights.min() == min(row["low"] for row in curve(result, "lookback").values())
    (legend,) = result.figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["USC", "Judge"]  # points alone; lines are named where they end
    ends = [text.get_text() for text in second.texts]
    assert ends == ["Random", "SC", "CLIPScore", "LookBack", "Mean log p", "Visual lookback"]
    lines = [line for line in second.lines if line.get_linestyle() != "None"]
    for line, text in zip(lines, second.texts, strict=True):
        assert tuple(text.xy) == (line.get_xdata()[-1], line.get_ydata()[-1])
    assert first.get_ylim() == second.get_ylim()
    assert second.get_xticks().tolist() == ticks_of_n(8)


@given(st.integers(1, 3000))
def test_ticks_of_n(most):
    ticks = ticks_of_n(most)
    assert (ticks[0], ticks[-1]) == (1, most)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= 9
    assert len(ticks) >= min(most, 3)


def test_ticks_of_the_papers_n():
    assert ticks_of_n(25) == [1, 5, 10, 15, 20, 25]
    assert ticks_of_n(5) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("count", "high", "shape"), [(1, 1, (1, 1)), (5, 1, (2, 4)), (3, 2, (2, 3)), (6, 2, (4, 4))]
)
def test_tiles(count, high, shape):
    figure, found = tiles(count, high)
    assert len(found) == count
    assert all(len(tile) == high for tile in found)
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == shape
    used = [axis for tile in found for axis in tile]
    assert len(set(used)) == count * high
    assert [axis for axis in figure.axes if axis.axison] == sorted(used, key=figure.axes.index)
    for tile in found:  # one below another
        places = [axis.get_subplotspec() for axis in tile]
        assert len({place.colspan.start for place in places}) == 1
        rows = [place.rowspan.start for place in places]
        assert rows == list(range(rows[0], rows[0] + high))

"""Figures: what is drawn is what was computed."""

import numpy as np
import pytest
from made_runs import make_run

from lookback.studies import get_study
from lookback.studies.shared.plots import Dots, dots, figure_bytes


def test_dots_stand_where_the_values_are():
    series = {
        "first": Dots("#000000", [1.0, 2.0], [0.5, 1.0], [2.0, 2.5]),
        "second": Dots("#ff0000", [3.0, np.nan], [3.0, np.nan], [3.0, np.nan], filled=False),
    }
    figure = dots(["a", "b"], series, "per cent")
    (axis,) = figure.axes
    first, second = axis.containers
    assert first.lines[0].get_ydata().tolist() == [1.0, 2.0]
    whiskers = first.lines[2][0].get_segments()
    assert [segment[:, 1].tolist() for segment in whiskers] == [[0.5, 2.0], [1.0, 2.5]]
    assert second.lines[0].get_markerfacecolor() == "white"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["a", "b"]
    assert first.lines[0].get_xdata()[0] < second.lines[0].get_xdata()[0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots")
    found = []
    for benchmark in ("scenes-vqa", "scenes-caption"):
        run = make_run(folder / benchmark, benchmark, recorded=("usc@5", "judge@5"))
        found += [run, make_run(folder / f"{benchmark}2", benchmark, seed=7, n=5)]
        found += [make_run(folder / f"{benchmark}3", benchmark, image="random", controls=run)]
    return found


def values_of(figure):
    """{series: its dots}."""
    (axis,) = figure.axes
    return {c.get_label(): c.lines[0].get_ydata().tolist() for c in axis.containers}


def test_the_judges_figure_has_the_rows_values(runs):
    result = get_study("judge")(runs)
    shown = values_of(result.figure)
    for method, name in (("random", "Random"), ("judge", "Judge"), ("lookback", "LookBack")):
        assert shown[name] == [r["value"] for r in result.rows if r["method"] == method]


def test_the_seeds_figure_has_means(runs):
    result = get_study("seeds")(runs)
    means = {(r["benchmark"], r["method"]): r["mean"] for r in result.rows}
    shown = values_of(result.figure)["LookBack"]
    assert shown == [means["Scenes VQA", "lookback"], means["Scenes Caption", "lookback"]]


def test_the_random_images_figure_has_both_outcomes(runs):
    result = get_study("random-image")(runs)
    shown = values_of(result.figure)
    ours = [row for row in result.rows if row["method"] == "lookback"]
    assert shown["LookBack, own image"] == [row["original"] for row in ours]
    assert shown["LookBack, random image"] == [row["replaced"] for row in ours]
    assert shown["Random selection"] == [row["random"] for row in ours]


def test_the_oracles_figure_goes_from_mean_to_oracle(runs):
    result = get_study("oracle")(runs)
    lines, means, tops = result.figure.axes[0].collections
    rows = [row for row in result.rows if row["benchmark"] != "Average"][::-1]
    assert means.get_offsets()[:, 0].tolist() == [row["mean"] for row in rows]
    assert tops.get_offsets()[:, 0].tolist() == [row["oracle"] for row in rows]
    assert len(lines.get_segments()) == len(rows)


def test_the_disagreements_figure_adds_up(runs):
    result = get_study("disagreements")(runs)
    bars = result.figure.axes[0].patches
    widths = np.array([bar.get_width() for bar in bars]).reshape(3, 2)  # verdicts x runs
    np.testing.assert_allclose(widths.sum(axis=0), 100)
    here = [row["verdict"] for row in result.rows if row["benchmark"] == "Scenes VQA"]
    shares = [100 * here.count(v) / len(here) for v in ("first", "tie", "second")]
    np.testing.assert_allclose(widths[:, 0], shares)


def test_a_figure_has_the_same_bytes_every_time(runs):
    first, second = (get_study("main")(runs).figure for _ in range(2))
    for form in ("png", "svg"):
        assert figure_bytes(first, form) == figure_bytes(second, form)

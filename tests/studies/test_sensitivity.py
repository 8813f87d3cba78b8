"""The whole grid against the bare formula; its summary, its marks, its picture."""

import statistics
from itertools import pairwise

import numpy as np
import pytest
from made_runs import make_run
from slow_outcomes import cells, change, marks, mean, record, shorten, slow_percent, texts

from lookback.scores.formula import ALPHAS, LAMBDAS
from lookback.studies import get_study


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sensitivity")
    small = make_run(
        folder / "caption",
        items=7,
        n=25,
        length=4,
        failed=(2,),
        empty=[(0, 0), *((5, i) for i in range(25))],
        recorded=("usc@5", "usc@25", "clipscore", "vauq"),
    )
    vqa = make_run(folder / "vqa", "scenes-vqa", items=5, n=4, length=4, recorded=("vauq",))
    other = make_run(folder / "other", items=6, n=5, length=4, model="other", seed=3)
    return [shorten(small, 3, 2), vqa, other]


@pytest.fixture(scope="module")
def result(runs):
    return get_study("sensitivity")(runs)


def grid(result, benchmark, n, model="made-up"):
    key = (model, benchmark, n)
    return [r for r in result.rows if (r["model"], r["benchmark"], r["N"]) == key]


def test_every_point_is_the_formula(result, runs):
    for run, name, n in ((runs[0], "Scenes Caption", 5), (runs[1], "Scenes VQA", 4)):
        rows = grid(result, name, n)
        assert [(r["alpha"], r["lam"]) for r in rows] == [(a, b) for a in ALPHAS for b in LAMBDAS]
        for r in rows:
            slow = slow_percent(run, "lookback", n, alpha=r["alpha"], lam=r["lam"])
            assert r["value"] == pytest.approx(slow)
    full = [r for r in grid(result, "Scenes Caption", 25) if r["lam"] in (0.25, 3.0)]
    for r in full:
        slow = slow_percent(runs[0], "lookback", 25, alpha=r["alpha"], lam=r["lam"])
        assert r["value"] == pytest.approx(slow)
    assert len(result.rows) == 4 * 168
    assert {r["items"] for r in grid(result, "Scenes Caption", 25)} == {6}


def test_summary(result, runs):
    table = result.tables[0]
    assert table.label == "tab:appendix_hp_range"
    assert [group for group, _ in table.columns[2:]] == [
        g for n in (4, 5, 25) for g in [f"N={n}"] * 5
    ]
    assert [name for _, name in table.columns[2:7]] == ["Min", "Max", "Mean", "Std", "Reported"]
    vqa, caption, other = (texts(table, i) for i in range(3))
    assert vqa[:2] == ["made-up", "Scenes VQA"]
    assert other[:2] == ["other", "Scenes Caption"]
    assert table.rules == [2]
    assert caption[2:7] == ["-"] * 5
    assert vqa[7:] == ["-"] * 10
    places = (
        (runs[1], vqa[2:7], "Scenes VQA", 4, "made-up"),
        (runs[0], caption[7:12], "Scenes Caption", 5, "made-up"),
        (runs[0], caption[12:], "Scenes Caption", 25, "made-up"),
        (runs[2], other[7:12], "Scenes Caption", 5, "other"),
    )
    for run, cells_, name, n, model in places:
        values = [r["value"] for r in grid(result, name, n, model)]
        expected = [min(values), max(values), mean(values), statistics.pstdev(values)]
        reported = slow_percent(run, "lookback", n)
        assert cells_ == [f"{value:.2f}" for value in (*expected, reported)]


def mean_mark(run):
    """Of the mean at N = 5, the only N."""
    (row,) = get_study("sensitivity")([run]).tables[0].rows
    return row[4].mark


def test_marks(tmp_path):
    run = make_run(tmp_path / "run", items=40, n=5, length=4)
    rows = get_study("sensitivity")([run]).rows
    worst, best = (f(rows, key=lambda r: r["value"]) for f in (min, max))
    assert worst["value"] < best["value"]
    average = mean(r["value"] for r in rows)
    assert average > max(slow_percent(run, m, 5) for m in ("random", "self_certainty"))
    at_worst = {"alpha": worst["alpha"], "lam": worst["lam"]}
    at_best = {"alpha": best["alpha"], "lam": best["lam"]}
    assert mean_mark(change(run, defaults=at_worst)) == "best"  # above the reported value
    assert mean_mark(change(run, defaults=at_best)) == "second"  # above the baselines alone
    perfect = record(change(run, defaults=at_best), "clipscore")
    assert slow_percent(perfect, "clipscore", 5) > average
    assert mean_mark(perfect) == ""  # below a baseline
    assert mean_mark(change(perfect, defaults=at_worst)) == "best"
    other = make_run(tmp_path / "other", items=40, n=5, length=4)
    judged = record(change(other, defaults=at_best), "judge@5")  # no baseline of the paper
    assert mean_mark(judged) == "second"


def counted(result):
    """The note on how many reported values are where."""
    (note,) = [note for note in result.notes if "of its mean in" in note]
    return note


def test_where_all_is_equal_nothing_is_marked(tmp_path):
    run = record(make_run(tmp_path / "run", items=7, n=5, length=4), "vauq")
    for item in range(7):  # one candidate each: nothing to choose from
        run = shorten(run, item, 1)
    result = get_study("sensitivity")([run])
    row = texts(result.tables[0], 0)
    assert row[2] == row[3] == row[4] == row[6]
    assert row[5] == "0.00"
    assert result.tables[0].rows[0][4].mark == ""
    assert "range in 1 of 1 settings" in counted(result)


def test_notes_count_settings(result, runs):
    setups = [("Scenes VQA", 4, "made-up", runs[1]), ("Scenes Caption", 5, "made-up", runs[0])]
    setups += [("Scenes Caption", 25, "made-up", runs[0]), ("Scenes Caption", 5, "other", runs[2])]
    near = inside = 0
    for name, n, model, run in setups:
        values = [r["value"] for r in grid(result, name, n, model)]
        reported = slow_percent(run, "lookback", n)
        inside += min(values) - 1e-9 <= reported <= max(values) + 1e-9
        near += abs(reported - mean(values)) <= 2 * statistics.pstdev(values)
    assert f"range in {inside} of 4 settings" in counted(result)
    assert counted(result).endswith(f"mean in {near}.")


def test_a_reported_setting_outside_the_range_is_counted_so(tmp_path):
    run = make_run(tmp_path / "run", items=40, n=5, length=4)
    off = change(run, defaults={"alpha": 0.0, "lam": 0.0})  # no part of the grid
    result = get_study("sensitivity")([off])
    values = [r["value"] for r in result.rows]
    assert slow_percent(off, "lookback", 5) < min(values)  # of these made-up signals
    assert "range in 0 of 1 settings" in counted(result)


def test_one_setting_for_all(result, runs):
    table = result.tables[1]
    assert [name for _, name in table.columns] == ["Method", "made-up", "other", "Avg."]
    lines = cells(table)
    setups = [(runs[1], 4), (runs[0], 5), (runs[0], 25)]
    one = {"alpha": 0.25, "lam": 1.25}
    for name, method, params in (
        ("Random", "random", {}),
        ("SC", "self_certainty", {}),
        ("LookBack (global)", "lookback", one),
        ("LookBack (reported)", "lookback", {}),
    ):
        first = mean(slow_percent(run, method, n, **params) for run, n in setups)
        second = slow_percent(runs[2], method, 5, **params)
        numbers = [float(text) for text in lines[name]]
        assert numbers == pytest.approx([first, second, (first + second) / 2], abs=0.0051)
    vauq = mean(slow_percent(run, "vauq", n) for run, n in setups)
    assert lines["VAUQ"] == [f"{vauq:.2f}", "-", "-"]
    assert lines["USC"] == ["-", "-", "-"]  # one run has none
    assert set(marks(table)["LookBack (reported)"]) == {""}
    assert list(lines)[table.rules[0]] == "LookBack (reported)"
    for column in range(3):
        rivals = {k: float(v[column].replace("-", "nan")) for k, v in list(lines.items())[:-1]}
        best = max(v for v in rivals.values() if v == v)
        bold = {k for k in rivals if marks(table)[k][column] == "best"}
        assert bold == {k for k, v in rivals.items() if v == best}


def test_the_reported_setting_is_no_rival(tmp_path):
    run = make_run(tmp_path / "run", items=40, n=5, length=4)
    run = change(run, defaults={"alpha": 8.0, "lam": 3.0})
    table = get_study("sensitivity")([run]).tables[1]
    lines = cells(table)
    assert float(lines["LookBack (reported)"][0]) > float(lines["LookBack (global)"][0])
    assert marks(table)["LookBack (global)"] == ["best"]


def test_the_setting_can_be_chosen(runs):
    chosen = get_study("sensitivity")(runs[2:], {"alpha": 8.0, "lam": 3.0})
    table = chosen.tables[1]
    slow = slow_percent(runs[2], "lookback", 5, alpha=8.0, lam=3.0)
    assert cells(table)["LookBack (global)"] == [f"{slow:.2f}"]
    assert [name for _, name in table.columns] == ["Method", "other"]
    assert "α = 8 and λ = 3" in table.caption


def test_figure(result, runs):
    axes = [axis for axis in result.figure.axes if axis.get_xlabel() == "λ"]
    assert len(axes) == 3
    assert axes[1].get_title() == "Scenes Caption, N = 25\nmade-up"
    (mesh,) = axes[1].collections
    values = {(r["alpha"], r["lam"]): r["value"] for r in grid(result, "Scenes Caption", 25)}
    array = mesh.get_array()
    assert array.shape == (14, 12)
    for i, alpha in enumerate(ALPHAS):
        for j, lam in enumerate(LAMBDAS):
            assert array[i, j] == values[alpha, lam]
    (star,) = axes[1].lines
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (1.25, 0.5)
    (legend,) = result.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["reported setting"]
    assert legend.legend_handles[0].get_marker() == star.get_marker() == "*"


def test_the_figures_cells_are_to_scale(result):
    axis = next(axis for axis in result.figure.axes if axis.get_xlabel() == "λ")
    (mesh,) = axis.collections
    edges = mesh.get_coordinates()
    lams, alphas = edges[0, :, 0], edges[:, 0, 1]
    np.testing.assert_allclose(lams, np.arange(0.125, 3.2, 0.25))
    assert axis.get_yscale() == "log"
    assert "log scale" in axis.get_ylabel()
    inner = [(low * high) ** 0.5 for low, high in pairwise(ALPHAS)]  # half way, in octaves
    np.testing.assert_allclose(alphas[1:-1], inner)
    for alpha, (low, high) in zip(ALPHAS, pairwise(alphas), strict=True):
        assert low < alpha < high
    result.figure.draw_without_rendering()
    ticks = dict(
        zip(axis.get_yticks(), (t.get_text() for t in axis.get_yticklabels()), strict=True)
    )
    assert {at: ticks[at] for at in (0.25, 1, 8)} == {0.25: "0.25", 1: "1", 8: "8"}


@pytest.mark.parametrize(
    ("alpha", "lam", "where"), [(0.0, 1.0, (1.0, 0.25 / 2**0.5)), (0.5, 9.0, (3.125, 0.5))]
)
def test_a_setting_beyond_the_grid_stands_on_its_border(tmp_path, alpha, lam, where):
    run = make_run(tmp_path / "run", items=3, n=5)
    run.manifest.defaults.update(alpha=alpha, lam=lam)
    figure = get_study("sensitivity")([run]).figure
    (star,) = next(axis for axis in figure.axes if axis.get_xlabel() == "λ").lines
    assert (star.get_xdata()[0], star.get_ydata()[0]) == pytest.approx(where)

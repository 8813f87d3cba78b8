"""Alpha and lambda, each alone and together, against the bare formula."""

import numpy as np
import pytest
from made_runs import make_run
from slow_outcomes import cells, change, marks, shorten, slow_percent

from lookback.scores.formula import ALPHAS, LAMBDAS
from lookback.studies import StudyError, get_study
from lookback.studies.common.selection import sweep


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablation") / "run"
    empty = [(0, 0), (3, 2), *((5, i) for i in range(9))]
    made = make_run(folder, items=12, n=9, failed=(2,), empty=empty)
    return shorten(change(made, defaults={"alpha": 0.6, "lam": 1.25}), 7, 3)


@pytest.fixture(scope="module")
def result(run):
    return get_study("ablation")([run])


def curve(result, varied, **fixed):
    rows = [r for r in result.rows if r["varied"] == varied]
    return [r for r in rows if all(r[name] == value for name, value in fixed.items())]


def test_sweep_is_the_formula_for_each_setting_and_n(run):
    alphas, lams, budgets = (0.0, 0.6, 8.0), (0.0, 3.0), (1, 4, 9)
    found = sweep(run, alphas, lams, budgets)
    assert found.shape == (3, 3, 2)
    for k, n in enumerate(budgets):
        for i, alpha in enumerate(alphas):
            for j, lam in enumerate(lams):
                slow = slow_percent(run, "lookback", n, alpha=alpha, lam=lam)
                assert found[k, i, j] == pytest.approx(slow)
    assert len(np.unique(found[2].round(6))) > 3  # settings matter in this run


def test_a_run_of_empty_responses_is_worth_its_first_ones(tmp_path):
    run = make_run(tmp_path / "run", items=3, n=2, empty=[(i, j) for i in range(3) for j in (0, 1)])
    first = slow_percent(run, "oracle", 1)
    assert sweep(run, (1.0,), (1.0, 2.0), (2,)).ravel() == pytest.approx([first, first])


def test_the_four_curves(result, run):
    alphas, lams = sorted({0, 0.6, *ALPHAS}), [0, *LAMBDAS]
    for lam in (0, 1.25):
        rows = curve(result, "alpha", lam=lam)
        assert [r["alpha"] for r in rows] == alphas
        for row in rows:
            slow = slow_percent(run, "lookback", 9, alpha=row["alpha"], lam=lam)
            assert row["value"] == pytest.approx(slow)
    for alpha in (0, 0.6):
        rows = curve(result, "lam", alpha=alpha)
        assert [r["lam"] for r in rows] == lams
        for row in rows:
            slow = slow_percent(run, "lookback", 9, alpha=alpha, lam=row["lam"])
            assert row["value"] == pytest.approx(slow)
    assert len(result.rows) == 2 * (len(alphas) + len(lams))
    assert {(r["N"], r["items"]) for r in result.rows} == {(9, 11)}


def test_off_is_mean_log_p_and_on_is_lookback(result, run):
    lines = cells(result.tables[0])
    assert lines["neither (mean log p)"] == [f"{slow_percent(run, 'mean_log_prob', 9):.2f}"]
    assert lines["both, as reported"] == [f"{slow_percent(run, 'lookback', 9):.2f}"]
    alone = {"α alone": {"alpha": 0.6, "lam": 0.0}, "λ alone": {"alpha": 0.0, "lam": 1.25}}
    for name, settings in alone.items():
        assert lines[name] == [f"{slow_percent(run, 'lookback', 9, **settings):.2f}"]
    numbers = {name: float(line[0]) for name, line in lines.items()}
    best = [name for name, (mark,) in marks(result.tables[0]).items() if mark == "best"]
    assert best == [name for name, value in numbers.items() if value == max(numbers.values())]
    assert "N = 9" in result.tables[0].caption


def test_n(run):
    fewer = get_study("ablation")([run], {"n": 4})
    assert {row["N"] for row in fewer.rows} == {4}
    (row,) = curve(fewer, "alpha", alpha=0.6, lam=1.25)
    assert row["value"] == pytest.approx(slow_percent(run, "lookback", 4))
    with pytest.raises(StudyError, match="n = 0"):
        get_study("ablation")([run], {"n": 0})


def test_figure(result, tmp_path, run):
    top, bottom = result.figure.axes
    for axis, varied, fixed, value in (
        (top, "alpha", "lam", 1.25),
        (bottom, "lam", "alpha", 0.6),
    ):
        dashed, solid, dotted = axis.lines
        for line, style, at in ((dashed, "--", 0), (solid, "-", value)):
            rows = curve(result, varied, **{fixed: at})
            assert line.get_linestyle() == style
            assert list(line.get_xdata()) == [r[varied] for r in rows]
            assert list(line.get_ydata()) == [r["value"] for r in rows]
        assert dotted.get_linestyle() == ":"
        assert dotted.get_xdata()[0] == run.defaults[varied]
        bands = [band.get_paths()[0].vertices[:, 1] for band in axis.collections]
        for band, at in zip(bands, (0, value), strict=True):
            rows = curve(result, varied, **{fixed: at})
            assert (band.min(), band.max()) == pytest.approx(
                (min(r["low"] for r in rows), max(r["high"] for r in rows))
            )
    assert [t.get_text() for t in top.texts] == ["λ = 0", "λ = 1.25"]  # where the lines end
    assert [t.get_text() for t in bottom.texts] == ["α = 0", "α = 0.6"]
    assert top.get_ylim() == bottom.get_ylim()
    other = make_run(tmp_path / "vqa", "scenes-vqa", items=3, n=2)
    both = get_study("ablation")([run, other])
    assert len(both.figure.axes) == 4
    heads = [("", "Part"), ("made-up", "Scenes VQA"), ("made-up", "Scenes Caption")]
    assert both.tables[0].columns == heads
    assert "N = 2 or 9" in both.tables[0].caption

"""What methods pick and how good that is, against slow loops; the laws of the bootstrap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from made_runs import make_run
from slow_outcomes import by_item, mean, record, shorten, slow_outcome

from lookback.runs.layout import RunError
from lookback.scores.base import best_first, get_scorer
from lookback.studies import title
from lookback.studies.common.budgets import default_budgets
from lookback.studies.common.selection import (
    bootstrap_means,
    has_scores,
    in_order,
    interval,
    outcome,
    outcome_of,
    percent,
    picks,
    quality_of_picks,
)

NAN, INF = np.nan, np.inf


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Failed items, an empty first response, an item with none that is filled, a short one."""
    empty = [(0, 0), (4, 2), *((5, i) for i in range(7))]
    folder = tmp_path_factory.mktemp("selection") / "run"
    made = make_run(
        folder, items=23, n=7, failed=(2, 11), empty=empty, recorded=("vauq", "usc@5", "judge@3")
    )
    return shorten(made, 14, 4)


@pytest.mark.parametrize(
    ("scores", "place"),
    [
        ([1, 3, 2], 1),
        ([3, 3, 3], 0),  # the first of equals
        ([1, 2, 2], 1),
        ([NAN, -5, NAN], 1),  # an empty response never wins
        ([5, NAN, 6], 2),
        ([NAN, NAN, NAN], 0),
        ([NAN, -INF, NAN], 1),  # a number, however low
        ([-INF, INF, NAN], 1),
        ([-0.0, 0.0, -1], 0),
    ],
)
def test_picks_the_first_of_the_highest(scores, place):
    assert picks(np.array([scores])).tolist() == [place]


@given(
    arrays(
        float,
        array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.sampled_from([-INF, -2.0, -1.0, 0.0, 1.0, INF, NAN]),
    )
)
def test_picks_what_ranking_puts_first(scores):
    assert picks(scores).tolist() == [best_first(row)[0] for row in scores]


def test_picked_takes_a_row_each():
    scores = np.array([[0.0, 1.0], [1.0, 0.0], [NAN, 0.0]])
    quality = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    assert quality_of_picks(scores, quality).tolist() == [0.2, 0.3, 0.6]


@pytest.mark.parametrize("n", [1, 2, 5, 7])
@pytest.mark.parametrize(
    "method",
    ["lookback", "mean_log_prob", "self_certainty", "entropy", "visual_lookback", "vauq"],
)
def test_outcome_is_that_of_a_loop(run, method, n):
    found = outcome(run, method, n)
    assert found.shape == (21,)
    np.testing.assert_array_equal(found, slow_outcome(run, method, n))


@pytest.mark.parametrize(("method", "n"), [("usc", 5), ("judge", 3)])
def test_outcome_of_scorers_that_depend_on_the_set(run, method, n):
    np.testing.assert_allclose(outcome(run, method, n), slow_outcome(run, method, n), rtol=1e-12)
    assert not has_scores(run, method, n + 1)
    with pytest.raises(RunError, match=f"{method}@{n + 1}"):
        outcome(run, method, n + 1)


def test_outcome_takes_settings(run):
    found = outcome(run, "lookback", 7, alpha=8.0, lam=3.0)
    np.testing.assert_array_equal(found, slow_outcome(run, "lookback", 7, alpha=8.0, lam=3.0))
    assert (found != outcome(run, "lookback", 7)).any()


@pytest.mark.parametrize("n", [1, 4, 7])
def test_random_is_the_mean_and_oracle_the_maximum(run, n):
    items = [[c["quality"] for c in first[:n]] for first in by_item(run).values()]
    np.testing.assert_allclose(outcome(run, "random", n), [mean(q) for q in items])
    np.testing.assert_array_equal(outcome(run, "oracle", n), [max(q) for q in items])


def test_oracle_is_what_perfect_scores_pick(run, tmp_path):
    perfect = record(make_run(tmp_path / "run", items=9, n=6), "clipscore")
    for n in (1, 3, 6):
        picked_by = outcome(perfect, "clipscore", n)
        np.testing.assert_array_equal(picked_by, outcome(perfect, "oracle", n))


def test_no_more_candidates_than_there_are(run):
    for method in ("random", "oracle", "lookback", "vauq"):
        assert has_scores(run, method, 7)
        assert not has_scores(run, method, 8)
        with pytest.raises(RunError, match="has 7 candidates per item, not 8"):
            outcome(run, method, 8)


def test_has_not_what_was_not_recorded(run):
    assert not has_scores(run, "clipscore", 5)
    assert has_scores(run, "vauq", 2)
    assert not has_scores(run, "usc", 4)


@pytest.mark.parametrize(
    ("n", "expected"), [(3, [3]), (5, [5]), (24, [24]), (25, [5, 25]), (30, [5, 25])]
)
def test_budgets(tmp_path, n, expected):
    assert default_budgets(make_run(tmp_path / "run", items=2, n=n, length=2)) == expected


def test_a_constant_has_an_interval_of_no_width():
    assert interval(bootstrap_means(np.full(17, 0.25))) == (0.25, 0.25)


def test_resampled_means_are_means_of_drawn_items():
    values = np.arange(6.0) ** 2
    drawn = np.random.default_rng(3).integers(0, 6, (50, 6))
    expected = [mean(values[i] for i in sample) for sample in drawn]
    np.testing.assert_allclose(bootstrap_means(values, seed=3, draws=50), expected)


@given(arrays(float, (2, 9), elements=st.floats(-10, 10)), st.integers(0, 5))
def test_differences_are_paired(pair, seed):
    a, b = pair
    difference = bootstrap_means(a, seed, 40) - bootstrap_means(b, seed, 40)
    np.testing.assert_allclose(bootstrap_means(a - b, seed, 40), difference, atol=1e-9)


def test_columns_are_resampled_together():
    values = np.random.default_rng(0).normal(size=(30, 3))
    both = bootstrap_means(values, draws=100)
    assert both.shape == (100, 3)
    for k in range(3):
        np.testing.assert_allclose(both[:, k], bootstrap_means(values[:, k], draws=100))


def test_another_seed_draws_other_items():
    values = np.random.default_rng(0).normal(size=30)
    assert (bootstrap_means(values, 0) != bootstrap_means(values, 1)).any()
    np.testing.assert_array_equal(bootstrap_means(values, 1), bootstrap_means(values, 1))


def test_spread_is_the_standard_error():
    values = np.random.default_rng(1).normal(size=400)
    draws = bootstrap_means(values)
    assert draws.shape == (2000,)
    assert draws.std() == pytest.approx(values.std() / 20, rel=0.07)
    assert draws.mean() == pytest.approx(values.mean(), abs=0.005)


def test_intervals_cover_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        low, high = interval(bootstrap_means(rng.uniform(size=50), draws=400))
        covered += low <= 0.5 <= high
    assert 0.90 <= covered / 400 <= 0.98


def test_interval_is_the_middle_95_per_cent():
    low, high = interval(np.arange(1001.0))
    assert (low, high) == (25.0, 975.0)


def test_percent():
    assert percent(np.array([0.0, 1.0, 1.0, 1.0])) == 75


def test_order_and_names(tmp_path):
    names = [("b", "zzz"), ("b", "chair"), ("a", "scenes-vqa"), ("b", "vqav2"), ("a", "amber")]
    runs = [
        make_run(tmp_path / str(i), benchmark, items=1, n=1, model=model)
        for i, (model, benchmark) in enumerate(names)
    ]
    ordered = [(run.model, title(run)) for run in in_order(runs)]
    assert ordered[:3] == [("b", "VQAv2"), ("b", "CHAIR"), ("b", "zzz")]
    assert ordered[3:] == [("a", "AMBER"), ("a", "Scenes VQA")]


def test_shares_that_are_all_zero_count_as_the_first_candidate():
    """A scorer that could not be asked picks the first, as for any lost reply; never NaN."""
    scores = np.array([[0.0, 0, 0], [0, 0.5, 0.5], [NAN, NAN, NAN]])
    quality = np.array([[0.2, 0.9, 0.9], [0.2, 0.4, 0.8], [0.7, 0.1, 0.1]])
    values = outcome_of(get_scorer("usc"), scores, quality)
    np.testing.assert_allclose(values, [0.2, 0.6, 0.7])

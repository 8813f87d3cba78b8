"""The study `combine` against plain loops; visual gains from a control; and the laws of mixing."""

from itertools import combinations

import numpy as np
import pytest
from made_runs import make_run

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.studies import Runs, StudyError, get_study
from lookback.studies.combine import (
    SCORERS,
    WEIGHTS,
    Combination,
    ranks_within,
    standardised,
)
from lookback.studies.common.controls import WithGain, with_gains
from lookback.studies.common.selection import (
    bootstrap_means,
    choose_on_other_half,
    interval,
    outcome,
)

N = 6
SPLITS = {"splits": 4, "seed": 3}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two benchmarks, one with a control without image, a failed item and empty responses."""
    root = tmp_path_factory.mktemp("combine")
    first = make_run(
        root / "a", items=14, n=N, failed=(3,), empty=((4, 1), (5, 0)), recorded=("vauq",)
    )
    other = {"benchmark": "scenes-vqa", "items": 11, "n": N, "seed": 5}
    second = make_run(root / "b", **other, recorded=("vauq",))
    more = {"items": 14, "n": N, "failed": (3,), "empty": ((4, 1), (5, 0))}
    control = make_run(root / "a-none", **more, image="none", controls=first)
    return [first, second, control]


@pytest.fixture(scope="module")
def result(runs):
    return get_study("combine")(runs, SPLITS)


def pick(values):
    """The first of the highest; what is NaN loses."""
    best = 0
    for i, value in enumerate(values):
        if not np.isnan(value) and (np.isnan(values[best]) or value > values[best]):
            best = i
    return best


def ranks_by_hand(values):
    known = sorted(v for v in values if not np.isnan(v))
    places = {v: [i + 1 for i, k in enumerate(known) if k == v] for v in known}
    return [np.nan if np.isnan(v) else sum(places[v]) / len(places[v]) for v in values]


def z_by_hand(values):
    known = [v for v in values if not np.isnan(v)]
    return [(v - np.mean(known)) / np.std(known) for v in values]


def slow(run, first, second, n=N):
    """What each is worth alone, both by ranks, and both by each weight: lists, an item each."""
    found = []
    quality = 100 * run.quality(n)
    for item, (a, b) in enumerate(zip(run.scores(first, n), run.scores(second, n), strict=True)):
        ranks = [x + y for x, y in zip(ranks_by_hand(a), ranks_by_hand(b), strict=True)]
        mixes = []
        for w in WEIGHTS:
            both = zip(z_by_hand(a), z_by_hand(b), strict=True)
            mixes.append(quality[item, pick([w * x + (1 - w) * y for x, y in both])])
        alone = [quality[item, pick(one)] for one in (a, b)]
        found.append((*alone, quality[item, pick(ranks)], mixes))
    return found


def test_every_pair_by_a_plain_loop(runs, result):
    for run in runs[:2]:
        for a, b in combinations(("lookback", "consensus", "vauq"), 2):
            found = slow(run, a, b)
            (row,) = [
                r
                for r in result.rows
                if (r["first"], r["second"], r["items"]) == (a, b, len(run.ids))
            ]
            assert row["first_value"] == pytest.approx(np.mean([one[0] for one in found]))
            assert row["second_value"] == pytest.approx(np.mean([one[1] for one in found]))
            assert row["ranks"] == pytest.approx(np.mean([one[2] for one in found]))
            grid = np.array([one[3] for one in found])
            mix, counts = choose_on_other_half(grid, 4, 3)
            alone, _ = choose_on_other_half(np.array([one[:2] for one in found]), 4, 3)
            assert row["mix"] == pytest.approx(mix.mean())
            assert row["better"] == pytest.approx(alone.mean())
            assert row["mix_gain"] == pytest.approx((mix - alone).mean())
            assert row["weight"] == pytest.approx((counts * WEIGHTS).sum() / counts.sum())


def test_differences_are_paired(runs, result):
    both = Combination(runs[1], N, "lookback", "consensus", 4, 3)
    row = next(r for r in result.rows if (r["first"], r["second"]) == both.names)
    for name in ("ranks", "mix"):
        gain = getattr(both, name) - both.better
        expected = interval(bootstrap_means(gain, 0))  # the samples of the table's first run
        ends = row[f"{name}_gain_low"], row[f"{name}_gain_high"]
        assert ends == pytest.approx(expected, abs=1e-8)


def test_averages_are_over_the_benchmarks(result):
    for row in (r for r in result.rows if r["benchmark"] == "Average"):
        here = [
            r
            for r in result.rows
            if (r["first"], r["second"], r["N"]) == (row["first"], row["second"], row["N"])
            and r["benchmark"] != "Average"
        ]
        assert len(here) == 2
        for key in ("first_value", "better", "ranks", "mix", "mix_gain", "weight"):
            assert row[key] == pytest.approx(np.mean([r[key] for r in here]))
        assert row["mix_gain_low"] <= row["mix_gain"] <= row["mix_gain_high"]
    gains = [r for r in result.rows if "visual_gain" in (r["first"], r["second"])]
    assert {r["benchmark"] for r in gains} == {"Scenes Caption"}  # not all have it: no average


def test_a_scorer_with_itself_adds_nothing(runs):
    both = Combination(runs[1], N, "lookback", "lookback", 4, 3)
    np.testing.assert_array_equal(both.gain("mix"), 0)
    np.testing.assert_array_equal(both.gain("ranks"), 0)


def test_the_ends_of_a_mix_are_the_scorers(runs):
    both = Combination(runs[0], N, "lookback", "consensus", 4, 3)
    np.testing.assert_array_equal(both.grid[:, 0], 100 * outcome(runs[0], "consensus", N))
    np.testing.assert_array_equal(both.grid[:, -1], 100 * outcome(runs[0], "lookback", N))


def test_neither_ranks_nor_mix_know_of_scale(runs, monkeypatch):
    run = Run(runs[0].path)
    before = Combination(run, N, "lookback", "vauq", 4, 3)
    plain = Run.scores
    stretched = {"lookback": lambda v: 5 * v - 3, "vauq": lambda v: v / 7}
    monkeypatch.setattr(
        Run, "scores", lambda self, name, *a, **k: stretched[name](plain(self, name, *a, **k))
    )
    after = Combination(run, N, "lookback", "vauq", 4, 3)
    np.testing.assert_array_equal(before.ranks, after.ranks)
    np.testing.assert_array_equal(before.grid, after.grid)


def test_ranks_and_standard_scores_by_hand():
    scores = np.array([[3.0, 1, np.nan, 3, 2], [1, 1, 1, 1, np.nan]])
    np.testing.assert_array_equal(
        ranks_within(scores), [[3.5, 1, np.nan, 3.5, 2], [2.5, 2.5, 2.5, 2.5, np.nan]]
    )
    found = standardised(scores)
    np.testing.assert_allclose(found[0], z_by_hand(scores[0]))
    np.testing.assert_array_equal(found[1], [0, 0, 0, 0, np.nan])


def test_what_is_taken_is_what_the_other_half_would_take(runs, result):
    table = next(t for t in result.tables if t.caption.startswith("Which scorer to take"))
    assert [row[0] for row in table.rows] == ["Scenes VQA", "Scenes Caption"]
    run, line = runs[1], table.rows[0]
    names = [n for n in SCORERS if n not in ("visual_gain", "clipscore")]
    alone = np.stack([100 * outcome(run, name, N) for name in names], 1)
    best, counts = choose_on_other_half(alone, 4, 3)
    mostly = get_scorer(names[int(counts.argmax())]).title
    assert line[3] == f"{mostly} ({counts.max() / counts.sum():.0%})"
    assert line[4] == f"{best.mean():.1f}"
    gain = best - 100 * outcome(run, "lookback", N)
    assert line[5].startswith(f"{gain.mean():+.1f} [")


def test_visual_gain_comes_from_the_control(runs, result):
    """As the scorer would give it: mean log p, less that without the image."""
    run, control = runs[0], runs[2]
    given = with_gains(Runs(runs))
    assert [isinstance(one, WithGain) for one in given] == [True, False, False]
    found = given[0].scores("visual_gain", N)
    for row in range(len(run.ids)):
        pairs = zip(run.candidates(row), control.candidates(row), strict=True)
        expected = [
            np.mean(a.log_prob, dtype=float) - np.mean(b.log_prob, dtype=float)
            if len(a.signals)
            else np.nan
            for a, b in pairs
        ]
        np.testing.assert_allclose(found[row], expected, rtol=1e-6)
    assert np.isnan(found).sum() == 2
    np.testing.assert_array_equal(given[0].scores("vauq"), run.scores("vauq"))
    assert "Visual gain of a: from its control a-none." in result.notes


def test_a_control_of_some_items_is_none(runs, tmp_path):
    few = make_run(tmp_path / "few", items=9, n=N, image="none", controls=runs[0])
    assert not isinstance(with_gains(Runs([runs[0], few]))[0], WithGain)


def test_recorded_gains_go_before_the_controls(tmp_path):
    run = make_run(tmp_path / "a", items=5, n=3, recorded=("visual_gain",))
    control = make_run(tmp_path / "none", items=5, n=3, image="none", controls=run)
    given = with_gains(Runs([run, control]))
    np.testing.assert_array_equal(given[0].scores("visual_gain"), run.scores("visual_gain"))


def test_the_main_table_shows_gains_of_a_control(runs):
    rows = get_study("main")(runs).rows
    found = {r["benchmark"]: r["value"] for r in rows if r["method"] == "visual_gain"}
    assert np.isfinite(found["Scenes Caption"])
    assert np.isnan(found["Scenes VQA"])


@pytest.mark.parametrize(
    ("scorers", "message"),
    [
        ("lookback,usc", "usc gives no scores that could be mixed"),
        (["lookback", "oracle"], "oracle gives no scores"),
        ("lookback", "has scores of 1 of lookback"),
        ("lookback,clipscore", "has scores of 1 of lookback, clipscore"),
    ],
)
def test_what_cannot_be_combined_is_named(runs, scorers, message):
    with pytest.raises(StudyError, match=message):
        get_study("combine")(runs, {"scorers": scorers})


def test_scorers_can_be_chosen(runs):
    rows = get_study("combine")(runs, {"scorers": "lookback, entropy", **SPLITS}).rows
    assert {(r["first"], r["second"]) for r in rows} == {("lookback", "entropy")}


def test_averages_have_bootstrap_samples_of_their_own_for_each_run(runs, result):
    """Run i of the table is resampled with seed i: runs are independent."""
    order = [runs[1], runs[0]]  # as in the table
    pairs = [Combination(run, N, "lookback", "consensus", 4, 3) for run in order]
    (row,) = [
        r
        for r in result.rows
        if (r["benchmark"], r["first"], r["second"]) == ("Average", "lookback", "consensus")
    ]
    for name in ("ranks", "mix"):
        draws = [bootstrap_means(pair.gain(name), seed) for seed, pair in enumerate(pairs)]
        expected = interval(np.mean(draws, axis=0))
        ends = row[f"{name}_gain_low"], row[f"{name}_gain_high"]
        assert ends == pytest.approx(expected, abs=1e-8)
        same_seed = [bootstrap_means(pair.gain(name), 0) for pair in pairs]
        assert ends != pytest.approx(interval(np.mean(same_seed, axis=0)), abs=1e-8)


def test_two_of_three_benchmarks_have_no_average(tmp_path):
    names = ("scenes-caption", "scenes-vqa", "scenes-pairs")
    runs = [
        make_run(tmp_path / name, name, 6, 4, recorded=("vauq",) if i else ())
        for i, name in enumerate(names)
    ]
    rows = get_study("combine")(runs, {"scorers": "lookback,entropy,vauq", **SPLITS}).rows
    averages = {(r["first"], r["second"]) for r in rows if r["benchmark"] == "Average"}
    assert averages == {("lookback", "entropy")}


@pytest.mark.parametrize("value", [0.1, -2.3, 1e6 + 0.1])
def test_equal_scores_are_equal_although_their_mean_is_inexact(value):
    """Seven times 0.1 has a mean that is not 0.1 in floating point."""
    np.testing.assert_array_equal(standardised(np.full((1, 7), value)), np.zeros((1, 7)))

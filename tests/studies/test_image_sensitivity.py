"""Scoring with and without the image, against plain loops over the candidates."""

import math

import numpy as np
import pytest
from changed_runs import change_rows, keep_rows, set_tokens
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.transforms import Bbox

from lookback.runs import Run
from lookback.studies import Runs, StudyError, get_study
from lookback.studies.common.controls import (
    Pair,
    auc,
    control_pairs,
    ks_distance,
    match_items,
    overlap,
    same_picks,
)

EMPTY = ((0, 0), (2, 5), (4, 1))


@pytest.fixture
def runs(tmp_path):
    own = make_run(tmp_path / "own", n=6, empty=EMPTY, failed=(1,))
    none = make_run(tmp_path / "none", n=6, image="none", controls=own, empty=EMPTY, failed=(1, 3))
    zero = change_rows(none, lambda row: row.update(visual_lookback=[0.0] * row["length"]))
    return [own, zero]


def scored(run, row, score):
    """The scores of one item's candidates; an empty one has None."""
    return [score(c) if len(c.tokens) else None for c in run.candidates(row)]


def best(scores):
    found = None
    for i, score in enumerate(scores):
        if score is not None and (found is None or score > scores[found]):
            found = i
    return found


def mean(values):
    return sum(float(v) for v in values) / len(values)


def certainty(c):
    return mean(c.self_certainty)


def looked(c):
    return mean(c.visual_lookback)


def log_prob(c):
    return mean(c.log_prob)


def final(c):
    a = [max(float(x), 1e-10) for x in c.visual_lookback]
    weights = [x**1.25 for x in a]
    scores = [float(p) + 0.5 * math.log(x) for p, x in zip(c.log_prob, a, strict=True)]
    return sum(w * u for w, u in zip(weights, scores, strict=True)) / sum(weights)


def test_agreement(runs):
    own, none = runs
    rows = {(row["first"], row["second"]): row for row in get_study("image-sensitivity")(runs).rows}
    assert len(rows) == 4
    shared = [place for place in range(12) if place not in (1, 3)]
    mine, theirs = own.places.tolist(), none.places.tolist()
    for name, score in (
        ("self_certainty", certainty),
        ("mean_log_prob", log_prob),
        ("lookback", final),
    ):
        same = [
            best(scored(own, mine.index(place), score))
            == best(scored(none, theirs.index(place), score))
            for place in shared
        ]
        assert rows[name, "without image"]["agreement"] == pytest.approx(mean(same))
        assert rows[name, "without image"]["items"] == 10
    same = [
        best(scored(own, mine.index(place), certainty))
        == best(scored(own, mine.index(place), looked))
        for place in shared
    ]
    row = rows["self_certainty", "visual_lookback"]
    assert row["agreement"] == pytest.approx(mean(same))
    assert row["chance"] == pytest.approx(1 / 6)
    assert row["low"] <= row["agreement"] <= row["high"]
    assert np.isnan(row["ks"])


def test_items_with_uneven_numbers_of_candidates(runs):
    """Chance is the mean of 1/n, not 1 over the mean of n; only items of both runs count."""

    def keep(row):
        return row["index"] < (2 if row["item"] < 5 else 6)

    uneven = [keep_rows(run, keep) for run in runs]
    rows = get_study("image-sensitivity")(uneven).rows
    shared = [place for place in range(12) if place not in (1, 3)]
    sizes = [2 if place < 5 else 6 for place in shared]
    for row in rows:
        assert row["chance"] == pytest.approx(mean([1 / size for size in sizes]))
        assert (row["items"], row["N"]) == (10, 6)
    own, none = uneven
    same = [
        best(scored(own, own.places.tolist().index(place), certainty))
        == best(scored(none, none.places.tolist().index(place), certainty))
        for place in shared
    ]
    assert rows[0]["agreement"] == pytest.approx(mean(same))
    assert rows[0]["responses"] == sum(sizes) - len([1 for i, j in EMPTY if j < 2])


def test_distributions(runs):
    own, none = runs
    row = get_study("image-sensitivity")(runs).rows[0]
    a, b = [], []
    for place in range(12):
        if place not in (1, 3):
            for run, into in ((own, a), (none, b)):
                found = scored(run, run.places.tolist().index(place), certainty)
                into += [s for s in found if s is not None]
    assert row["responses"] == len(a) == 60 - len(EMPTY)
    assert row["mean"] == pytest.approx(mean(a))
    assert row["second_mean"] == pytest.approx(mean(b))
    assert row["ks"] == pytest.approx(slow_ks(a, b))
    assert row["overlap"] == pytest.approx(slow_overlap(a, b))


def test_without_image_lookback_picks_what_mean_log_prob_picks(runs):
    pair = match_items(*runs)
    assert same_picks(pair.scores("lookback")[1], pair.scores("mean_log_prob")[1]).all()
    rows = get_study("image-sensitivity")(runs).rows
    assert rows[1]["second_mean"] - rows[2]["second_mean"] == pytest.approx(-0.5 * math.log(1e-10))


def test_a_run_agrees_with_itself(runs):
    own = runs[0]
    rows = np.arange(len(own.ids))
    pair = Pair(own, own, rows, rows)
    a, b = pair.scores("self_certainty")
    assert same_picks(a, b).mean() == same_picks(a, b, pair.texts()).mean() == 1
    a = a[np.isfinite(a)]
    assert overlap(a, a) == pytest.approx(1)
    assert ks_distance(a, a) == 0


def test_the_same_text_counts_as_the_same(tmp_path):
    def same(row):
        set_tokens(row, [" a"] if row["index"] % 2 else [" b"])

    own = change_rows(make_run(tmp_path / "own", n=4), same)
    none = change_rows(make_run(tmp_path / "none", n=4, image="none", controls=own), same)
    pair = match_items(own, none)
    first = np.zeros((12, 4))
    first[:, 1] = 1
    third, second = np.roll(first, 2, axis=1), np.roll(first, 1, axis=1)
    assert same_picks(first, third).mean() == 0
    assert same_picks(first, third, pair.texts()).mean() == 1
    assert same_picks(first, second, pair.texts()).mean() == 0
    first[0] = np.nan
    assert len(same_picks(first, third)) == 11


def test_what_is_missing(runs, tmp_path):
    with pytest.raises(StudyError, match="--image none"):
        get_study("image-sensitivity")(runs[:1])
    change_rows(runs[1], lambda row: row.update(text=row["text"] + "!"))
    with pytest.raises(StudyError, match="other candidates"):
        control_pairs(Runs([runs[0], Run(runs[1].path)]), "none")


def test_what_is_shown(runs, tmp_path):
    other = make_run(tmp_path / "vqa", "scenes-vqa", n=6)
    control = make_run(tmp_path / "vqa-none", "scenes-vqa", n=6, image="none", controls=other)
    result = get_study("image-sensitivity")([*runs, other, control])
    (table,) = result.tables
    assert [row[0] for row in table.rows] == ["Scenes VQA, N=6", "Scenes Caption, N=6"]
    assert table.rows[1][5] == f"{result.rows[4]['agreement']:.3f}"
    assert len(result.figure.axes) == 3  # a panel a run, and the bars
    first, second = result.figure.axes[:2]
    assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())
    bars = result.figure.axes[2]
    heights = [patch.get_height() for patch in bars.patches]
    rows = [r["agreement"] for r in result.rows if r["first"] == "self_certainty"]
    assert heights == [*rows[::2], *rows[1::2]]
    assert [bool(patch.get_hatch()) for patch in bars.patches] == [False] * 2 + [True] * 2
    whiskers = [one.lines[2][0].get_segments() for one in bars.containers if len(one) == 3]
    ends = [segment[:, 1].tolist() for group in whiskers for segment in group]
    kept = [r for r in result.rows if r["first"] == "self_certainty"]
    expected = [[r["low"], r["high"]] for r in (*kept[::2], *kept[1::2])]
    np.testing.assert_allclose(ends, expected, atol=1e-12)
    assert not labels_on_lines(result.figure, bars)
    areas = [
        (s.get_data().values * np.diff(s.get_data().edges)).sum()
        for s in result.figure.axes[0].patches
    ]
    assert areas == pytest.approx([1] * 4)  # densities


def labels_on_lines(figure, axis):
    """The numbers that the line of chance, or a whisker, runs through."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    lines = [axis.transData.transform(s) for c in axis.collections for s in c.get_segments()]
    return [
        text.get_text()
        for text in axis.texts
        for (x0, y0), (x1, y1) in lines
        if text.get_window_extent(renderer).overlaps(Bbox([[x0, y0], [x1 + 0.1, y1 + 0.1]]))
    ]


def slow_ks(a, b):
    return max(abs(mean([x <= t for x in a]) - mean([x <= t for x in b])) for t in [*a, *b])


def slow_overlap(a, b, bins=50):
    low, high = min([*a, *b]), max([*a, *b])

    def shares(values):
        counts = [0] * bins
        for value in values:
            place = int((value - low) / (high - low) * bins) if high > low else 0
            counts[min(place, bins - 1)] += 1
        return [count / len(values) for count in counts]

    return sum(min(x, y) for x, y in zip(shares(a), shares(b), strict=True))


samples = st.lists(st.integers(-8, 8).map(float), min_size=1, max_size=12)


@given(samples, samples)
def test_two_samples(a, b):
    first, second = np.array(a), np.array(b)
    assert ks_distance(first, second) == pytest.approx(slow_ks(a, b))
    assert ks_distance(second, first) == pytest.approx(ks_distance(first, second))
    wins = [1.0 if x > y else 0.5 if x == y else 0.0 for x in a for y in b]
    right = np.array([True] * len(a) + [False] * len(b))
    values = np.concatenate([first, second])
    assert auc(values, right) == pytest.approx(mean(wins))
    assert auc(-values, right) == pytest.approx(1 - mean(wins))
    assert np.isnan(auc(first, right[: len(a)]))


def test_overlap_by_hand():
    low, high = np.zeros(4), np.ones(4)
    assert overlap(low, high) == 0
    half = np.array([0.0, 0.0, 1.0, 1.0])
    assert overlap(low, half) == pytest.approx(0.5)
    assert overlap(np.array([0.0, 0.0, 0.0, 1.0]), half) == pytest.approx(0.75)

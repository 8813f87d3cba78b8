"""LookBack's factors from two images, and right against wrong mentions, by plain loops."""

import json
import math

import numpy as np
import pytest
from changed_runs import change_rows, set_tokens
from made_runs import make_run

from lookback.studies import StudyError, get_study
from lookback.studies.common.controls import match_items
from lookback.studies.common.words import find_mentions, mentioning_benchmark
from lookback.studies.decomposition import swap_factors

EMPTY = ((2, 0), (5, 6))


@pytest.fixture
def runs(tmp_path):
    own = make_run(tmp_path / "own", n=7, empty=EMPTY, failed=(0,))
    random = make_run(
        tmp_path / "random", n=7, image="random", controls=own, empty=EMPTY, failed=(4,)
    )
    return [own, random]


def slow_score(log_prob, a, alpha=0.5, lam=1.25):
    if not len(a):
        return math.nan
    weights = [float(x) ** lam for x in a]
    u = [float(p) + alpha * math.log(float(x)) for p, x in zip(log_prob, a, strict=True)]
    return sum(w * v for w, v in zip(weights, u, strict=True)) / sum(weights)


def test_all_four_combinations(runs):
    own, random = runs
    found = swap_factors(match_items(own, random))
    assert list(found) == ["none", "log p", "A", "both"]
    shared = [place for place in range(12) if place not in (0, 4)]
    for i, place in enumerate(shared):
        mine = own.candidates(own.places.tolist().index(place))
        theirs = random.candidates(random.places.tolist().index(place))
        for j in range(7):
            wanted = {
                "none": slow_score(mine[j].log_prob, mine[j].visual_lookback),
                "log p": slow_score(theirs[j].log_prob, mine[j].visual_lookback),
                "A": slow_score(mine[j].log_prob, theirs[j].visual_lookback),
                "both": slow_score(theirs[j].log_prob, theirs[j].visual_lookback),
            }
            for name, score in wanted.items():
                assert found[name][i, j] == pytest.approx(score, nan_ok=True)


def test_nothing_or_all_swapped_is_scoring_as_usual(runs):
    pair = match_items(*runs)
    found, (own, other) = swap_factors(pair), pair.scores("lookback")
    np.testing.assert_allclose(found["none"], own)
    np.testing.assert_allclose(found["both"], other)


def test_drops(runs):
    result = get_study("decomposition")(runs)
    rows = {row["what"]: row for row in result.rows if row["measure"] == "outcome"}
    assert list(rows) == ["none", "log p", "A", "both", "random selection"]
    pair = match_items(*runs)
    quality = pair.quality()
    for name, scores in swap_factors(pair).items():
        picked = [
            100 * quality[i][max(range(7), key=lambda j: (not math.isnan(s[j]), s[j], -j))]
            for i, s in enumerate(scores.tolist())
        ]
        assert rows[name]["value"] == pytest.approx(sum(picked) / 10)
    for row in rows.values():
        assert row["drop"] == pytest.approx(rows["none"]["value"] - row["value"])
        assert row["drop_low"] <= row["drop"] <= row["drop_high"]
        assert row["over_a"] == pytest.approx(row["drop"] - rows["A"]["drop"])
        assert row["over_a_low"] <= row["over_a"] <= row["over_a_high"]
        assert row["low"] <= row["value"] <= row["high"]
    assert rows["none"]["drop_low"] == rows["none"]["drop_high"] == 0
    assert rows["random selection"]["value"] == pytest.approx(100 * quality.mean())
    assert [" ".join(filter(None, head)) for head in result.tables[0].columns] == [
        *("Benchmark", "Random", "LookBack"),
        *("random image for log p outcome", "random image for log p drop"),
        *("random image for A outcome", "random image for A drop"),
        *("random image for both outcome", "random image for both drop"),
    ]
    line = result.tables[0].rows[0]
    assert line[1:3] == [f"{rows[name]['value']:.2f}" for name in ("random selection", "none")]
    assert line[3::2] == [f"{rows[name]['value']:.2f}" for name in ("log p", "A", "both")]
    for cell, name in zip(line[4::2], ("log p", "A", "both"), strict=True):
        low, high = rows[name]["drop_low"], rows[name]["drop_high"]
        assert cell == f"{rows[name]['drop']:.2f} [{low:.2f}, {high:.2f}]"
    heights = result.figure.axes[0].collections[1].get_offsets()[:, 1].tolist()
    assert heights == [rows[name]["value"] for name in ("none", "log p", "A", "both")]


def test_other_tokens_are_refused(runs):
    def longer(row):
        if (row["item"], row["index"]) == (7, 3):
            set_tokens(row, ["x", *row["tokens"]], text=row["text"])

    with pytest.raises(StudyError, match="other numbers of tokens"):
        get_study("decomposition")([runs[0], change_rows(runs[1], longer)])


TREE_FIRST = [" A", " tr", "ee", " and", " a", " hou", "se", "."]
HOUSE_FIRST = [" Look", ":", " a", " hou", "se", " and", " a", " tr", "ee", "."]


def tokens_of(place, index):
    return TREE_FIRST if (place + index) % 2 else HOUSE_FIRST


@pytest.fixture
def told(tmp_path):
    """Responses with a tree and a house in sub-tokens; in item 7 there is a house, else a tree."""

    def scored(*seed):
        def change(row):
            tokens = tokens_of(row["item"], row["index"])
            rng = np.random.default_rng([row["item"], row["index"], *seed])
            log_prob, a = -rng.uniform(0, 3, len(tokens)), rng.uniform(0.1, 1, len(tokens))
            set_tokens(row, tokens, log_prob=log_prob, visual_lookback=a)

        return change

    def truth(row):
        row["truth"] = json.dumps({"categories": ["house" if row["item"] == 7 else "tree"]})

    run = change_rows(make_run(tmp_path / "own", n=3, failed=(1,)), scored(), truth)
    control = make_run(tmp_path / "random", n=3, image="random", controls=run, failed=(2,))
    return [run, change_rows(control, scored(1))]


def test_right_and_wrong_mentions_are_told_apart_by_their_column(told):
    """As many of both would let the two columns change places unseen."""

    def wrong_everywhere(row):
        row["truth"] = json.dumps({"categories": ["tree", "house"] if row["item"] == 3 else []})

    runs = [change_rows(told[0], None, wrong_everywhere), told[1]]
    table = get_study("decomposition")(runs).tables[1]
    assert table.rows[0][1:3] == ["6", "54"]


def test_right_against_wrong_mentions(told):
    run, control = told
    result = get_study("decomposition")(told)
    rows = {row["what"]: row for row in result.rows if row["measure"] == "AUC"}
    assert list(rows) == [
        *("A, own image", "A, random image"),
        *("log p, own image", "log p, random image"),
    ]
    for what, row in rows.items():
        source = run if "own" in what else control
        signal = "visual_lookback" if what.startswith("A") else "log_prob"
        right, wrong = [], []
        for place in range(12):
            if place in (1, 2):
                continue
            for c in source.candidates(source.places.tolist().index(place)):
                tokens, values = tokens_of(place, c.index), getattr(c, signal).astype(float)
                tree = (values[tokens.index(" tr")] + values[tokens.index("ee")]) / 2
                house = (values[tokens.index(" hou")] + values[tokens.index("se")]) / 2
                right.append(house if place == 7 else tree)
                wrong.append(tree if place == 7 else house)
        wins = [1.0 if r > w else 0.5 if r == w else 0.0 for r in right for w in wrong]
        assert row["value"] == pytest.approx(sum(wins) / len(wins))
        assert (row["right"], row["wrong"]) == (30, 30)
    table = result.tables[1]
    assert table.rows[0][1:3] == ["30", "30"]
    assert table.rows[0][3:] == [f"{row['value']:.3f}" for row in rows.values()]
    heads = [" ".join(filter(None, head)) for head in table.columns]
    assert heads[:3] == ["Benchmark", "Mentions right", "Mentions wrong"]
    assert heads[3:] == [
        "AUC of A own",
        "AUC of A random",
        "AUC of log p own",
        "AUC of log p random",
    ]


def test_as_many_responses_as_asked_for(told):
    result = get_study("decomposition")(told, {"responses": 4})
    assert {row["right"] for row in result.rows if row["measure"] == "AUC"} == {4}
    assert any("mentions of 4 responses" in note for note in result.notes)


def test_the_tokens_of_mentions(told):
    run = told[0]
    # Item 0 has candidates 0 to 2, item 2 the next, item 7 those from 18 on.
    found = find_mentions(run, mentioning_benchmark(run), np.array([1, 3, 18]), most=9)
    assert found.ranges.tolist() == [[1, 3], [5, 7], [11, 13], [15, 17], [19, 21], [23, 25]]
    assert found.right.tolist() == [True, False, False, True, False, True]
    assert found.responses == 3


def test_a_benchmark_that_cannot_tell(tmp_path):
    own = make_run(tmp_path / "own", "scenes-vqa", n=3)
    control = make_run(tmp_path / "random", "scenes-vqa", n=3, image="random", controls=own)
    result = get_study("decomposition")([own, control])
    assert {row["measure"] for row in result.rows} == {"outcome"}
    assert len(result.tables) == 1
    assert any("cannot tell" in note for note in result.notes)
    assert mentioning_benchmark(make_run(tmp_path / "x", "of-their-own", n=2)) is None


def test_chair_is_read_without_its_files(tmp_path, monkeypatch):
    monkeypatch.delenv("LOOKBACK_DATA", raising=False)

    def dogs(row):
        set_tokens(row, [" Two", " do", "gs", " on", " a", " couch", "."])

    def truth(row):
        row["truth"] = '{"objects": ["dog"], "captions": []}'

    own = change_rows(make_run(tmp_path / "own", "chair", n=2), dogs, truth)
    control = make_run(tmp_path / "random", "chair", n=2, image="random", controls=own)
    result = get_study("decomposition")([own, change_rows(control, dogs)])
    assert {(r["right"], r["wrong"]) for r in result.rows if r["measure"] == "AUC"} == {(24, 24)}

"""A_t by layer: selection, words and mentions, by plain loops over the candidates."""

import json
import math

import numpy as np
import pytest
from changed_runs import change_rows, set_tokens
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run
from slow_outcomes import by_item, cells, slow_percent

from lookback.runs import Run
from lookback.scores.formula import lookback_score
from lookback.studies import StudyError, get_study
from lookback.studies.common.controls import auc, bootstrap_aucs
from lookback.studies.common.selection import bootstrap_means, choose_on_other_half, interval
from lookback.studies.layers import stretches

LAYERS = 5
STUDY = get_study("layers")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return make_run(folder, n=7, layers=LAYERS, empty=((2, 0), (5, 6)), failed=(1,))


@pytest.fixture(scope="module")
def result(run):
    return STUDY([run], {"splits": 3, "seed": 4})


def rows_of(result, measure):
    return {row["what"]: row for row in result.rows if row["measure"] == measure}


def slow_outcomes(run, layers, n=7, alpha=0.5, lam=1.25):
    """The quality of LookBack's pick with A_t from some layers: an item each."""
    found = []
    for candidates in by_item(run).values():
        best, quality = -math.inf, candidates[0]["quality"]
        for c in candidates[:n]:
            if not c["length"]:
                continue
            a = [math.fsum(row[i] for i in layers) / len(layers) for row in c["by_layer"]]
            score = lookback_score(c["log_prob"], a, alpha, lam)
            if score > best:
                best, quality = score, c["quality"]
        found.append(100 * quality)
    return found


def test_every_stretch_of_layers(run, result):
    rows = rows_of(result, "outcome")
    everything = np.array(slow_outcomes(run, range(LAYERS)))
    assert len(rows) == len(stretches(LAYERS)) + 3
    named = {(row["first"] - 1, row["last"]): row for row in rows.values() if row["first"]}
    for layers in stretches(LAYERS):
        wanted = np.array(slow_outcomes(run, layers))
        row = named[layers.start, layers.stop]
        assert row["value"] == pytest.approx(wanted.mean())
        assert row["gain"] == pytest.approx(wanted.mean() - everything.mean())
        assert row["gain_low"] <= row["gain"] <= row["gain_high"]
        assert row["low"] <= row["value"] <= row["high"]
    assert rows["all layers"]["gain_low"] == rows["all layers"]["gain_high"] == 0
    assert len({row["value"] for row in rows.values()}) > 4


def test_intervals_are_paired(run, result):
    """As those of the differences of items, drawn together."""
    gain = np.subtract(slow_outcomes(run, [2]), slow_outcomes(run, range(LAYERS)))
    samples = np.random.default_rng(0).integers(0, len(gain), (2000, len(gain)))
    low, high = np.percentile(gain[samples].mean(axis=1), [2.5, 97.5])
    row = rows_of(result, "outcome")["layer 3"]
    assert (row["gain_low"], row["gain_high"]) == pytest.approx((low, high))


def test_the_choice_is_held_out(run, result):
    values = np.array([slow_outcomes(run, layers) for layers in stretches(LAYERS)]).T
    wanted, counts = choose_on_other_half(values, splits=3, seed=4)
    row = rows_of(result, "outcome")["chosen on the other half"]
    assert row["value"] == pytest.approx(wanted.mean())
    (note,) = [note for note in result.notes if "halves chose" in note]
    assert f"of {len(stretches(LAYERS))} stretches of layers 6 halves chose" in note
    assert f" {counts.max()} times" in note


def test_references(run, result):
    rows = rows_of(result, "outcome")
    assert rows["random selection"]["value"] == pytest.approx(100 * np.nanmean(run.quality()))
    assert rows["mean log p"]["value"] == pytest.approx(slow_percent(run, "mean_log_prob", 7))


def test_fewer_candidates(run):
    rows = rows_of(STUDY([run], {"n": 3}), "outcome")
    assert rows["layer 2"]["N"] == 3
    assert rows["layer 2"]["value"] == pytest.approx(np.mean(slow_outcomes(run, [1], 3)))
    with pytest.raises(StudyError, match="n = 0"):
        STUDY([run], {"n": 0})


def test_other_settings(run):
    rows = rows_of(STUDY([run], {"alpha": 0, "lam": 3.0}), "outcome")
    for what, layers in (("layer 2", [1]), ("all layers", range(LAYERS))):
        wanted = slow_outcomes(run, layers, alpha=0.0, lam=3.0)
        assert rows[what]["value"] == pytest.approx(np.mean(wanted))


def test_tables(run, result):
    selection, single = result.tables
    rows, lines = rows_of(result, "outcome"), cells(selection)
    assert list(lines) == [
        *("all layers", "first half (layers 1-2)", "second half (layers 3-5)"),
        *("first quarter (layer 1)", "second quarter (layer 2)", "third quarter (layer 3)"),
        *("fourth quarter (layers 4-5)", "chosen on the other half"),
        *("mean log p", "random selection"),
    ]
    assert lines["all layers"] == [f"{rows['all layers']['value']:.2f}", "-"]
    row = rows["layers 3-5"]
    around = f"[{row['gain_low']:+.1f}, {row['gain_high']:+.1f}]"
    half = lines["second half (layers 3-5)"]
    assert half == [f"{row['value']:.2f}", f"{row['gain']:+.2f} {around}"]
    assert list(cells(single)) == [*(f"layer {i}" for i in range(1, 6)), "all layers"]
    assert cells(single)["layer 4"][0] == f"{rows['layer 4']['gain']:+.2f}"
    assert "nan" not in selection.markdown() + single.markdown()


def test_several_benchmarks_have_an_average(run, tmp_path):
    other = make_run(tmp_path / "other", "scenes-vqa", n=4, layers=LAYERS)
    selection, _ = STUDY([run, other]).tables
    assert selection.columns[-1] == ("Average", "gain")
    gains = [float(cell.split()[0]) for cell in cells(selection)["first half (layers 1-2)"][1::2]]
    average = float(cells(selection)["first half (layers 1-2)"][-1].split()[0])
    assert average == pytest.approx(np.mean(gains), abs=0.011)


def test_models_of_other_depths_have_tables_of_their_own(run, tmp_path):
    other = make_run(tmp_path / "other", n=4, layers=2, model="another")
    tables = STUDY([run, other]).tables
    assert [len(table.rows) for table in tables] == [10, 6, 6, 3]
    assert "another" in tables[2].caption


def nouns_in_layer_two(row):
    words = [" The", " dog", " is", " a", " cup", "."]
    high = [0.1, 0.9, 0.1, 0.1, 0.9, 0.1]
    set_tokens(row, words, visual_lookback=[0.5, 0.5, 0.4, 0.5, 0.5, 0.6])
    row["by_layer"] = [[0.3, h, 1 - h] for h in high]


def test_words_by_layer(tmp_path):
    made = change_rows(make_run(tmp_path / "run", n=3, layers=3), nouns_in_layer_two)
    result = STUDY([made])
    visual, textual = (rows_of(result, f"z-score, {s} set") for s in ("visual", "textual"))
    assert visual["layer 2"]["value"] == pytest.approx(2**0.5, rel=1e-5)
    assert visual["layer 3"]["value"] == pytest.approx(-(2**0.5), rel=1e-5)
    assert textual["layer 2"]["value"] == pytest.approx(-(0.5**0.5), rel=1e-5)
    assert np.isnan(visual["layer 1"]["value"])  # the same for all tokens
    assert visual["layer 2"]["words"] == 2 * 36
    whole = {row["group"]: row for row in get_study("pos")([made]).rows}
    assert visual["all layers"]["value"] == pytest.approx(whole["visual set"]["A"])
    assert cells(result.tables[1])["layer 1"][1:3] == ["-", "-"]


def test_right_against_wrong_mentions_by_layer(tmp_path):
    tokens = [" A", " tr", "ee", " and", " a", " hou", "se", "."]

    def told(row):  # layer 1 looks at the tree, layer 2 by chance, layer 3 at the house
        rng = np.random.default_rng([row["item"], row["index"]])
        set_tokens(row, tokens)
        row["by_layer"] = [[0.1, x, 0.5] for x in rng.uniform(0.1, 0.9, len(tokens))]
        for i in (1, 2):
            row["by_layer"][i][0] = 0.9
        for i in (5, 6):
            row["by_layer"][i][2] = 0.6

    def truth(row):
        row["truth"] = json.dumps({"categories": ["tree"]})

    made = change_rows(make_run(tmp_path / "run", n=3, layers=3), told, truth)
    result = STUDY([made])
    rows = rows_of(result, "AUC")
    assert (rows["layer 1"]["value"], rows["layer 3"]["value"]) == (1.0, 0.0)
    right, wrong = [], []
    for candidates in by_item(made).values():
        for c in candidates:
            values = [row[1] for row in c["by_layer"]]
            right.append((values[1] + values[2]) / 2)
            wrong.append((values[5] + values[6]) / 2)
    wins = [1.0 if r > w else 0.5 if r == w else 0.0 for r in right for w in wrong]
    assert rows["layer 2"]["value"] == pytest.approx(sum(wins) / len(wins))
    assert (rows["layer 2"]["right"], rows["layer 2"]["wrong"]) == (36, 36)
    assert set(rows) == {"layer 1", "layer 2", "layer 3", "all layers"}
    shown = result.figure.axes[2].lines[0].get_ydata().tolist()
    assert shown == [rows[f"layer {i}"]["value"] for i in (1, 2, 3)]


def test_a_benchmark_that_cannot_tell_has_no_auc(tmp_path):
    result = STUDY([make_run(tmp_path / "run", "scenes-vqa", n=3, layers=2)])
    assert not rows_of(result, "AUC")
    assert any("cannot tell" in note for note in result.notes)
    assert cells(result.tables[1])["layer 1"][-1] == "-"


def test_the_figure_has_a_panel_per_part(run, result):
    top, middle, _ = result.figure.axes
    rows = rows_of(result, "outcome")
    single, upto, since = (line.get_ydata().tolist() for line in top.lines[:3])
    assert single == pytest.approx([rows[f"layer {i}"]["value"] for i in range(1, 6)])
    assert upto[-1] == since[0] == pytest.approx(rows["all layers"]["value"])
    assert since[1] == pytest.approx(rows["layers 2-5"]["value"])
    visual = rows_of(result, "z-score, visual set")
    assert middle.lines[0].get_ydata().tolist() == pytest.approx(
        [visual[f"layer {i}"]["value"] for i in range(1, 6)]
    )


def test_without_signals_by_layer_it_says_how_to_get_them(tmp_path, command):
    made = make_run(tmp_path / "run", n=3)
    code, _, err = command("study", "layers", made.path, "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (1, 1)
    assert "no run here has signals by layer: make one with `lookback run ... --by-layer" in err


def test_responses_without_tokens_tell_nothing(tmp_path):
    empty = [(item, index) for item in range(12) for index in range(2)]
    with pytest.raises(StudyError, match="every response is empty"):
        STUDY([make_run(tmp_path / "run", n=2, layers=3, empty=empty)])


def test_runs_without_are_passed_over(run, tmp_path):
    larger = make_run(tmp_path / "larger", n=9)
    assert {row["N"] for row in STUDY([larger, run]).rows} == {7}


def test_the_same_on_every_reading(run, result):
    again = STUDY([Run(run.path)], {"splits": 3, "seed": 4})
    assert str(again.rows) == str(result.rows)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 5)), max_size=9))
def test_aucs_of_samples_of_items(mentions):
    items, right, values = (np.array([m[i] for m in mentions], dtype=int) for i in range(3))
    right = right.astype(bool)
    slow = []
    for sample in np.random.default_rng(0).integers(0, 4, (2000, 4))[:50]:
        drawn = np.array([i for item in sample for i in np.flatnonzero(items == item)], dtype=int)
        slow.append(auc(values[drawn].astype(float), right[drawn]))
    found = bootstrap_aucs(values.astype(float), right, items, 4)
    kept = [value for value in slow if not np.isnan(value)]
    np.testing.assert_allclose(found[: len(kept)], kept)


def test_the_figures_bands_are_the_rows_intervals(run, result):
    top, middle, bottom = result.figure.axes
    for measure, axis in (("z-score, visual set", middle), ("outcome", top)):
        rows = rows_of(result, measure)
        assert all(row["low"] <= row["value"] <= row["high"] for row in rows.values())
        if axis is middle:
            band = axis.collections[0].get_paths()[0].vertices[:, 1]
            each = [rows[f"layer {i}"] for i in range(1, 6)]
            assert band.max() == pytest.approx(max(row["high"] for row in each))
            assert band.min() == pytest.approx(min(row["low"] for row in each))
    names = ["it alone", "up to it", "from it on", "all layers", "mean log p"]
    assert [text.get_text() for text in top.texts] == names
    assert all(axis.get_legend() is None for axis in (top, middle, bottom))


def test_the_average_has_bootstrap_samples_of_its_own_for_each_run(run, tmp_path):
    """Run i of the table is resampled with seed i: runs are independent."""
    other = make_run(tmp_path / "other", "scenes-vqa", n=7, layers=LAYERS, seed=7)
    selection, _ = STUDY([run, other]).tables
    order = [other, run] if selection.columns[1][0] == "Scenes VQA" else [run, other]
    gains = [
        np.subtract(slow_outcomes(one, [0, 1]), slow_outcomes(one, range(LAYERS))) for one in order
    ]
    draws = [bootstrap_means(gain, seed) for seed, gain in enumerate(gains)]
    low, high = interval(np.mean(draws, axis=0))
    cell = cells(selection)["first half (layers 1-2)"][-1]
    assert cell.endswith(f"[{low:+.1f}, {high:+.1f}]")
    low, high = interval(np.mean([bootstrap_means(gain, 0) for gain in gains], axis=0))
    assert not cell.endswith(f"[{low:+.1f}, {high:+.1f}]")  # else this test could not fail

"""The main table against a slow reading of the runs."""

import numpy as np
import pytest
from made_runs import change_manifest, make_run
from slow_outcomes import cells, marks, mean, shorten, slow_percent

import lookback
from lookback.scores.base import SCORERS, get_scorer
from lookback.studies import StudyError, get_study
from lookback.studies.common.selection import bootstrap_means, interval, outcome

OTHERS = (
    "Mean log p",
    "Sum log p",
    "Entropy",
    "Visual lookback",
    "Consensus",
    "Majority",
    "SC + Borda",
    "Judge",
)
SIGNALS = ("random", "self_certainty", "lookback", "mean_log_prob", "entropy", "visual_lookback")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("main")
    made = [
        make_run(
            folder / "caption",
            items=14,
            failed=(3,),
            empty=[(0, 0), (6, 1)],
            recorded=("usc@5", "usc@25", "vauq", "judge@5"),
        ),
        make_run(folder / "vqa", "scenes-vqa", items=11, seed=7, recorded=("usc@5", "vauq")),
        make_run(folder / "small", items=5, n=5),
        make_run(folder / "other", items=6, n=4, model="other", seed=8),
    ]
    made[0] = shorten(made[0], 4, 3)
    return made


@pytest.fixture(scope="module")
def result(runs):
    return get_study("main")(runs)


def row(result, method, benchmark, n, model="made-up"):
    key = {"model": model, "benchmark": benchmark, "method": method, "N": n}
    (found,) = [r for r in result.rows if all(r[k] == v for k, v in key.items())]
    return found


@pytest.mark.parametrize("method", [*SIGNALS, "oracle", "vauq"])
def test_values_are_those_of_a_loop(result, runs, method):
    for run, name, items in ((runs[0], "Scenes Caption", 13), (runs[1], "Scenes VQA", 11)):
        for n in (5, 25):
            found = row(result, method, name, n)
            assert found["value"] == pytest.approx(slow_percent(run, method, n))
            assert found["items"] == items
    if method != "vauq":
        found = row(result, method, "Scenes Caption", 4, "other")["value"]
        assert found == pytest.approx(slow_percent(runs[3], method, 4))


def test_usc_where_it_was_recorded(result, runs):
    for n in (5, 25):
        found = row(result, "usc", "Scenes Caption", n)["value"]
        assert found == pytest.approx(slow_percent(runs[0], "usc", n))
    assert np.isnan(row(result, "usc", "Scenes VQA", 25)["value"])


def test_the_average_is_over_benchmarks_and_n(result):
    for method in SIGNALS:
        four = [
            row(result, method, name, n)["value"]
            for name in ("Scenes Caption", "Scenes VQA")
            for n in (5, 25)
        ]
        assert row(result, method, "Average", 0)["value"] == pytest.approx(mean(four))
        for n, two in ((5, four[::2]), (25, four[1::2])):
            assert row(result, method, "Average", n)["value"] == pytest.approx(mean(two))
    whole = [r for r in result.rows if r["benchmark"] == "Average" and r["N"] == 0]
    averaged = {r["method"] for r in whole}
    assert "vauq" in averaged
    assert not averaged & {"usc", "judge", "clipscore"}  # not recorded everywhere


def test_intervals_are_those_of_resampled_items(result, runs):
    # A seed a run, in the table's order: the methods and N of a run see the same samples.
    for seed, run, name in ((0, runs[1], "Scenes VQA"), (1, runs[0], "Scenes Caption")):
        for method, n in (("lookback", 25), ("random", 5)):
            found = row(result, method, name, n)
            expected = interval(bootstrap_means(100 * outcome(run, method, n), seed))
            assert (found["low"], found["high"]) == pytest.approx(expected)
    for r in result.rows:
        if np.isfinite(r["value"]):
            assert r["low"] <= r["value"] <= r["high"]


@pytest.mark.parametrize("n", [5, 25, 0])
def test_how_far_behind_the_leader(result, runs, n):
    """The leader is the highest that does not know the truth; both see the same samples."""
    here = [
        r for r in result.rows if (r["model"], r["benchmark"], r["N"]) == ("made-up", "Average", n)
    ]
    (leader,) = {r["leader"] for r in here}
    assert leader != "oracle"
    best = row(result, leader, "Average", n)["value"]
    assert best == max(r["value"] for r in here if r["method"] != "oracle")
    for method in SIGNALS:
        found = row(result, method, "Average", n)
        assert found["behind"] == pytest.approx(best - found["value"])
        draws = [
            bootstrap_means(100 * (outcome(run, leader, count) - outcome(run, method, count)), seed)
            for seed, run in ((0, runs[1]), (1, runs[0]))
            for count in ((5, 25) if n == 0 else (n,))
        ]
        expected = interval(np.mean(draws, axis=0))
        assert (found["behind_low"], found["behind_high"]) == pytest.approx(expected)
    assert all(r["leader"] == "" for r in result.rows if r["benchmark"] != "Average")


def test_benchmarks_are_resampled_apart(tmp_path):
    """Two benchmarks with the same numbers: their average is surer than each."""
    twins = [
        make_run(tmp_path / name, name, items=60, n=5, length=3)
        for name in ("scenes-vqa", "scenes-caption")
    ]
    found = get_study("main")(twins)
    for method in SIGNALS:
        one = row(found, method, "Scenes VQA", 5)
        both = row(found, method, "Average", 0)
        assert both["value"] == pytest.approx(one["value"])
        ratio = (both["high"] - both["low"]) / (one["high"] - one["low"])
        assert ratio == pytest.approx(0.5**0.5, abs=0.12)


def test_leads_are_paired_differences(result, runs):
    lookback, other = (
        np.mean(
            [
                bootstrap_means(100 * outcome(run, method, 25), seed)
                for seed, run in enumerate((runs[1], runs[0]))
            ],
            axis=0,
        )
        for method in ("lookback", "self_certainty")
    )
    found = row(result, "self_certainty", "Average", 25)
    assert (found["lead_low"], found["lead_high"]) == pytest.approx(interval(lookback - other))
    ours = row(result, "lookback", "Average", 25)
    assert found["lead"] == pytest.approx(ours["value"] - found["value"])
    assert (ours["lead"], ours["lead_low"], ours["lead_high"]) == (0, 0, 0)
    lines = cells(result.tables[1])
    assert lines["over SC"][1].startswith(f"{found['lead']:+.2f} [{found['lead_low']:+.1f}, ")
    assert "over LookBack" not in lines
    assert lines["over USC"][1:] == ["-", "-"]  # recorded everywhere for N = 5 alone


def test_table(result, runs):
    table, _, other, _ = result.tables
    assert table.label == "tab:main_results"
    assert table.columns == [
        ("", "Method"),
        ("Scenes VQA", "N=5"),
        ("Scenes VQA", "N=25"),
        ("Scenes Caption", "N=5"),
        ("Scenes Caption", "N=25"),
        ("Average", ""),
    ]
    lines = cells(table)
    assert list(lines) == [
        *("Random", "SC", "USC", "VAUQ", "LookBack"),
        *OTHERS,
        "Oracle",
    ]
    assert lines["USC"][1] == "-"
    assert lines["USC"][4] == "-"
    assert lines["Judge"][:2] == ["-", "-"]
    assert lines["Judge"][3:] == ["-", "-"]
    assert lines["SC"][2].startswith(f"{slow_percent(runs[0], 'self_certainty', 5):.2f} [")
    assert lines["Oracle"][3] == f"{slow_percent(runs[0], 'oracle', 25):.2f}"
    assert table.rules == [5, 13]
    assert other.columns == [("", "Method"), ("Scenes Caption", "N=4")]
    assert "USC" not in cells(other)
    assert "with other" in other.caption


def test_marks(result):
    table = result.tables[0]
    for column, mark in enumerate(zip(*marks(table).values(), strict=True)):
        names = list(marks(table))
        numbers = [float(c[column].split()[0].replace("-", "nan")) for c in cells(table).values()]
        rivals = numbers[:-1]
        best = np.nanmax(rivals)
        second = np.nanmax([v for v in rivals if v != best])
        expected = ["best" if v == best else "second" if v == second else "" for v in rivals]
        assert list(mark) == [*expected, ""], names


def test_the_largest_run_counts(result):
    assert row(result, "random", "Scenes Caption", 5)["items"] == 13  # not the run of five items


def test_one_panel_a_model(result):
    assert [axis.get_title() for axis in result.figure.axes] == ["made-up", "other"]
    labels = [label.get_text() for label in result.figure.axes[0].get_yticklabels()]
    lines, shown = result.figure.axes[0].collections
    values = shown.get_offsets()[:, 0].tolist()
    assert "Oracle" not in labels
    assert values == sorted(values)
    for label, value, ends in zip(labels, values, lines.get_segments(), strict=True):
        (method,) = [m for m in SCORERS.names() if get_scorer(m).title == label]
        found = row(result, method, "Average", 0)
        assert value == pytest.approx(found["value"])
        assert ends[:, 0].tolist() == pytest.approx([found["low"], found["high"]])


def test_controls_alone_are_refused(tmp_path, runs):
    control = make_run(tmp_path / "c", items=14, controls=runs[0], image="none")
    with pytest.raises(StudyError, match="control"):
        get_study("main")([control])
    with pytest.raises(StudyError, match="no runs"):
        get_study("main")([])
    with pytest.raises(TypeError, match="no setting 'n'"):
        get_study("main")(runs, {"n": 5})


def test_a_scorer_of_ones_own_has_its_row(runs, monkeypatch):
    monkeypatch.setattr(SCORERS, "entries", dict(SCORERS.all()))

    @lookback.scorer("cautious")
    def cautious(batch):
        return -batch.mean(batch.entropy)

    result = get_study("main")(runs)
    for n in (5, 25):
        found = row(result, "cautious", "Scenes VQA", n)
        assert found["value"] == row(result, "entropy", "Scenes VQA", n)["value"]
    lines = cells(result.tables[0])
    assert list(lines)[-2:] == ["cautious", "Oracle"]
    assert "over cautious" in cells(result.tables[1])
    assert "perplexity" not in lines  # it picks what mean log p picks


def test_scores_made_with_other_settings_than_todays_are_named(tmp_path):
    run = make_run(tmp_path / "run", items=6, n=5, recorded=("vauq",))
    assert not any("recorded with" in note for note in get_study("main")([run]).notes)
    made = {"vauq": dict(run.manifest.scorers["vauq"]) | {"rows": "response"}}
    old = change_manifest(tmp_path / "run", scorers=made)
    note = "Scenes Caption: vauq was recorded with rows = 'response', which is not its default."
    assert note in get_study("main")([old]).notes


def make_greedy(folder, benchmark, items, **settings):
    """A run of one candidate per item at temperature 0."""
    made = make_run(folder, benchmark, items=items, n=1, seed=5)
    sampling = {"n": 1, "seed": 5, "temperature": 0.0}
    return change_manifest(folder, settings=made.settings | {"sampling": sampling} | settings)


def test_greedy_decoding_has_a_row_where_it_was_run(runs, tmp_path):
    """The items that failed in the draw are not counted for it, and it is the same at every N."""
    greedy = [
        make_greedy(tmp_path / "caption", "scenes-caption", 20),
        make_greedy(tmp_path / "vqa", "scenes-vqa", 11),
    ]
    result = get_study("main")([*greedy, *runs])
    kept = [i for i in range(14) if i != 3]
    for n in (5, 25):
        caption, vqa = (row(result, "greedy", f"Scenes {b}", n) for b in ("Caption", "VQA"))
        assert caption["value"] == pytest.approx(100 * greedy[0].quality(1)[kept, 0].mean())
        assert vqa["value"] == pytest.approx(100 * greedy[1].quality(1).mean())
        ours = row(result, "lookback", "Average", n)["value"]
        found = row(result, "greedy", "Average", n)
        assert found["lead"] == pytest.approx(ours - found["value"])
        assert found["lead_low"] <= found["lead"] <= found["lead_high"]
    lines = cells(result.tables[0])
    assert list(lines)[-2:] == ["Greedy decoding", "Oracle"]
    assert "over Greedy decoding" in cells(result.tables[1])
    assert "Greedy decoding" not in cells(result.tables[2])  # of the other model there is none
    labels = [label.get_text() for label in result.figure.axes[0].get_yticklabels()]
    assert "Greedy decoding" in labels


def test_greedy_answers_to_other_questions_or_to_some_are_not_compared(runs, tmp_path):
    other = make_greedy(tmp_path / "other", "scenes-vqa", 11, revision="other")
    result = get_study("main")([*runs, other])
    assert "Greedy decoding" not in cells(result.tables[0])
    some = make_greedy(tmp_path / "some", "scenes-vqa", 8)
    result = get_study("main")([*runs, some])
    assert "Greedy decoding" not in cells(result.tables[0])
    assert any("some lacks 3 of its 11 items" in note for note in result.notes)


def test_a_draw_without_its_greedy_run_is_told_how_to_make_it(tmp_path):
    drawn = make_run(tmp_path / "drawn", "scenes-vqa", items=11, n=5)
    sampling = drawn.settings["sampling"] | {"temperature": 1.2}
    drawn = change_manifest(tmp_path / "drawn", settings=drawn.settings | {"sampling": sampling})
    greedy = make_greedy(tmp_path / "greedy", "scenes-vqa", 11)
    told = {
        name: [note for note in get_study("main")(runs).notes if "--temperature 0" in note]
        for name, runs in {"alone": [drawn], "both": [drawn, greedy], "greedy": [greedy]}.items()
    }
    assert [name for name, notes in told.items() if notes] == ["alone"]

"""A user's own scorer has its rows, its columns and its place in the legend of every study."""

import numpy as np
import pytest
from made_runs import make_run
from slow_outcomes import by_item, cells, mean, record, slow_percent, texts

import lookback
from lookback.studies import get_study

RECORDED = ("usc@5", "judge@5")


@pytest.fixture
def runs(tmp_path, own_scorers):
    """Of two benchmarks, with controls and seeds; the scorer with a model is recorded in one."""
    recorded = (*RECORDED, "gaze")
    own = make_run(tmp_path / "own", items=9, n=6, recorded=recorded, empty=((1, 0),))
    vqa = make_run(tmp_path / "vqa", "scenes-vqa", items=7, n=6, recorded=RECORDED)
    made = [own, vqa, make_run(tmp_path / "seed", items=9, n=6, seed=7, recorded=recorded)]
    for image in ("none", "random"):
        made.append(
            make_run(
                tmp_path / image,
                items=9,
                n=6,
                image=image,
                controls=own,
                recorded=("gaze",),
                empty=((1, 0),),
            )
        )
        of_vqa = {"items": 7, "n": 6, "image": image, "controls": vqa}
        made.append(make_run(tmp_path / f"vqa-{image}", "scenes-vqa", **of_vqa))
    return made


STUDIES = [
    *("main", "scaling", "sensitivity", "image-sensitivity", "random-image", "seeds"),
    *("judge", "overhead", "disagreements", "tokens"),
]
SETTINGS = {"disagreements": {"first": "cautious", "second": "gaze"}, "tokens": {"item": 4}}
ROWS = {"image-sensitivity": "first", "overhead": "scorer", "disagreements": "A1_scorer"}
"""The key of the rows that names the scorer, where it is not `method`."""


def words_of_tables(result):
    """Every name of a column and every text of a cell."""
    for table in result.tables:
        yield from (" ".join(column) for column in table.columns)
        for number in range(len(table.rows)):
            yield from texts(table, number)


def words_of_figure(result):
    """The legend, or, where there is none, the labels of axes."""
    for legend in result.figure.legends:
        yield from (text.get_text() for text in legend.get_texts())
    for axis in result.figure.axes:
        yield from (label.get_text() for label in axis.get_yticklabels())
        yield from (text.get_text() for text in axis.texts)


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize(("name", "title"), [("cautious", "Cautious pick"), ("gaze", "Gaze again")])
def test_it_is_shown(runs, study, name, title):
    # Disagreements need scores in every run; the figure of tokens is of the first benchmark.
    given = runs[:1] if study in ("disagreements", "tokens") else runs
    result = get_study(study)(given, SETTINGS.get(study))
    if study == "tokens":
        assert any(title in row["picked_by"] for row in result.rows)
        assert f", {title} 1" in result.files["page.html"]  # its rank
    elif study == "sensitivity":  # its rows are of the grid
        assert title in cells(result.tables[1])
    else:
        assert name in {row[ROWS.get(study, "method")] for row in result.rows}
    if result.tables:
        assert any(title in words for words in words_of_tables(result))
    if study == "main" and name == "gaze":
        return  # the figure shows averages, and one benchmark lacks it
    if study != "sensitivity":  # its figure shows the grid
        assert any(title in words for words in words_of_figure(result))


@pytest.mark.parametrize("study", ["main", "scaling", "seeds", "judge", "random-image"])
def test_its_numbers_are_those_of_a_loop(runs, study):
    """Cautious picks what entropy picks, which the slow reading knows."""
    rows = [r for r in get_study(study)(runs).rows if r["method"] == "cautious"]
    found = [r for r in rows if (r["benchmark"], r.get("seed", 42)) == ("Scenes Caption", 42)]
    assert found
    for row in found:
        value = row["original"] if study == "random-image" else row["value"]
        assert value == pytest.approx(slow_percent(runs[0], "entropy", row["N"]))


def test_one_that_needs_a_model_is_there_where_it_was_recorded(runs):
    for study in ("scaling", "random-image", "image-sensitivity"):
        rows = get_study(study)(runs).rows
        key = ROWS.get(study, "method")
        assert {r["benchmark"] for r in rows if r[key] == "gaze"} == {"Scenes Caption"}
    agreement, outcomes = get_study("random-image")(runs).tables
    assert cells(agreement)["Scenes VQA"][-1] == cells(agreement)["Avg."][-1] == "-"
    assert cells(outcomes)["Scenes VQA"][-2:] == ["-", "-"]
    assert cells(get_study("image-sensitivity")(runs).tables[0])["Scenes VQA, N=6"][-2] == "-"


@pytest.mark.parametrize("study", [s for s in STUDIES if s != "disagreements"])
def test_one_that_was_recorded_nowhere_is_not_there(runs, study):
    result = get_study(study)([run for run in runs if run.benchmark == "scenes-vqa"] + extra(runs))
    assert not any("Gaze" in words for words in words_of_tables(result))
    assert "gaze" not in {value for row in result.rows for value in row.values()}


def extra(runs):
    """A second seed of the benchmark whose runs lack the scorer."""
    folder = runs[0].path.parent / "vqa-seed"
    return [make_run(folder, "scenes-vqa", items=7, n=6, seed=8)]


def test_one_that_always_picks_what_another_picks_is_left_out(runs):
    for study in STUDIES:
        if study != "disagreements":
            result = get_study(study)(runs)
            assert not any("Doubt" in words for words in words_of_tables(result))


def test_one_that_knows_the_truth_is_no_rival(runs):
    result = get_study("main")(runs)
    lines = cells(result.tables[0])
    assert list(lines)[-2:] == ["Oracle", "The worst"]
    (row,) = [
        r
        for r in result.rows
        if (r["method"], r["benchmark"], r["N"]) == ("worst", "Scenes VQA", 5)
    ]
    items = [[c["quality"] for c in first[:5]] for first in by_item(runs[1]).values()]
    assert row["value"] == pytest.approx(100 * mean(min(quality) for quality in items))
    assert lines["The worst"][0] == f"{row['value']:.2f}"
    assert not any("worst" in words for words in words_of_figure(result))


def test_it_is_a_baseline_of_the_grid(tmp_path, own_scorers):
    run = make_run(tmp_path / "run", items=40, n=5, length=4)
    best = max(get_study("sensitivity")([run]).rows, key=lambda row: row["value"])
    (row,) = get_study("sensitivity")([run]).tables[0].rows
    assert row[4].mark != ""  # above the baselines
    perfect = record(run, "gaze")
    assert slow_percent(perfect, "gaze", 5) > best["value"]
    table = get_study("sensitivity")([perfect]).tables[1]
    assert cells(table)["Gaze again"] == [f"{slow_percent(perfect, 'gaze', 5):.2f}"]
    assert list(cells(table))[-2:] == ["LookBack (global)", "LookBack (reported)"]


def test_scores_that_are_no_numbers_without_the_image(runs, own_scorers):
    """Nothing to compare, and nothing breaks."""

    @lookback.scorer("blind", title="Blind")
    def blind(batch):
        return np.full(len(batch.lengths), np.nan)

    result = get_study("image-sensitivity")(runs)
    assert cells(result.tables[0])["Scenes VQA, N=6"][-2] == "-"
    assert {r["items"] for r in result.rows if r["first"] == "blind"} == {0}

"""Runs of which the quality of responses is not known, or not of every item."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
from changed_runs import change_rows
from made_runs import make_run, write_shard
from slow_outcomes import cells, slow_percent

from lookback.runs import Run
from lookback.runs.layout import CANDIDATES
from lookback.studies import STUDIES, StudyError, get_study

NEEDING = [
    *("main", "scaling", "budget", "ablation", "sensitivity", "random-image", "decomposition"),
    *("seeds", "oracle", "judge", "tokens", "layers", "combine"),
]
OTHERS = ("image-sensitivity", "pos", "overhead", "disagreements")
UNKNOWN = (0, 4, 5)  # items without a quality


def make_runs(folder, unknown):
    """A run with controls and a second seed; `unknown` tells which candidates have no quality."""

    def forget(row):
        if unknown(row):
            row["quality"] = None

    recorded = ("usc@5", "judge@5")
    own = make_run(folder / "own", items=12, n=6, recorded=recorded, empty=((1, 0),), layers=3)
    made = [own, make_run(folder / "seed", items=12, n=6, seed=7)]
    for image in ("none", "random"):
        made.append(
            make_run(folder / image, items=12, n=6, image=image, controls=own, empty=((1, 0),))
        )
    return [change_rows(run, forget) for run in made]


@pytest.fixture
def nothing_known(tmp_path):
    return make_runs(tmp_path, lambda row: True)


@pytest.fixture
def partly_known(tmp_path):
    """Two items without any, and one of which a single candidate lacks it."""
    return make_runs(
        tmp_path, lambda row: row["item"] in (0, 4) or (row["item"], row["index"]) == (5, 3)
    )


def test_all_studies_are_here():
    assert sorted((*NEEDING, *OTHERS)) == sorted(STUDIES.builtin)
    declared = {name for name, study in STUDIES.all().items() if study.needs_quality}
    assert declared == set(NEEDING) - {"tokens"}  # it can be told which item to show


@pytest.mark.parametrize("name", NEEDING)
def test_those_that_need_it_say_so(nothing_known, name):
    with pytest.raises(StudyError, match=f"study '{name}' .* metric .*`lookback run --data`"):
        get_study(name)(nothing_known)


@pytest.mark.parametrize("name", OTHERS)
def test_the_others_do_without(nothing_known, name):
    result = get_study(name)(nothing_known)
    assert result.rows
    for table in result.tables:
        assert "nan" not in table.markdown().lower()


def known_only(runs, folder):
    """The same runs made without the items that lack quality."""
    found = []
    for run in runs:
        path = folder / f"known-{run.path.name}"
        shutil.copytree(run.path, path)
        for table in ("candidates", *(f"scores/{name}" for name in run.recorded)):
            layers = run.has_layers and table == "candidates"
            columns = (*CANDIDATES.names, "by_layer") if layers else None
            rows = Run(path).table(table, columns).to_pylist()
            rows = [r for r in rows if r["item"] not in UNKNOWN]
            for shard in (0, 1):
                here = [r for r in rows if r["item"] // 10 == shard]
                write_shard(path, table, shard, here, by_layer=layers)
        found.append(Run(path))
    return found


@pytest.mark.parametrize("name", [n for n in NEEDING if n != "decomposition"])
def test_items_without_it_are_left_out(partly_known, tmp_path, name):
    """What is found is what runs without these items give; a note tells."""
    found, wanted = (
        get_study(name)(runs) for runs in (partly_known, known_only(partly_known, tmp_path))
    )
    assert as_csv(found.rows) == as_csv(wanted.rows)
    assert [t.markdown() for t in found.tables] == [t.markdown() for t in wanted.tables]
    told = [note for note in found.notes if "without a quality" in note]
    assert "Scenes Caption, made-up: 3 of 12 items" in told[0]
    assert len(told) == 2  # both seeds
    assert not [note for note in wanted.notes if "without a quality" in note]


def test_decomposition_on_the_items_that_have_it(partly_known, tmp_path):
    """Mentions are drawn among the candidates of these items."""
    found, wanted = (
        get_study("decomposition")(runs, {"responses": 10**6})
        for runs in (partly_known, known_only(partly_known, tmp_path))
    )
    assert as_csv(found.rows) == as_csv(wanted.rows)


def as_csv(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("name", [n for n in NEEDING if n != "tokens"])
def test_no_table_has_nan(partly_known, name):
    for table in get_study(name)(partly_known).tables:
        assert "nan" not in table.markdown().lower()


def test_a_run_without_any_makes_room_for_a_smaller_one_that_has_it(tmp_path):
    large = change_rows(make_run(tmp_path / "large", n=8), lambda row: row.update(quality=None))
    small = make_run(tmp_path / "small", n=5, seed=7)
    result = get_study("oracle")([large, small])
    assert [row["N"] for row in result.rows if row["benchmark"] != "Average"] == [5]
    assert result.rows[0]["oracle"] == pytest.approx(slow_percent(small, "oracle", 5))
    assert any("all 12 items" in note for note in result.notes)


def test_controls_keep_no_quality_of_their_own(tmp_path):
    """A control's candidates are its run's, and so is their quality."""
    own = make_run(tmp_path / "own", n=5)
    control = make_run(tmp_path / "random", n=5, image="random", controls=own)
    wanted = get_study("random-image")([own, control])
    bare = change_rows(control, lambda row: row.update(quality=None))
    found = get_study("random-image")([own, bare])
    assert as_csv(found.rows) == as_csv(wanted.rows)
    assert found.notes == wanted.notes


def test_verdicts_where_there_are_any(partly_known):
    result = get_study("disagreements")(partly_known[:1])
    unjudged = [row for row in result.rows if row["verdict"] == "-"]
    assert {row["item"] for row in unjudged} <= set(UNKNOWN)
    assert {row["item"] for row in unjudged} >= {0, 4} & {row["item"] for row in result.rows}
    counts = [int(cell.split()[0]) for cell in cells(result.tables[0]).popitem()[1]]
    assert sum(counts) == len(result.rows) - len(unjudged)
    shares = [float(cell.split("(")[1][:-2]) for cell in cells(result.tables[0]).popitem()[1]]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert any(f"{len(unjudged)} disagreements have no quality" in note for note in result.notes)
    assert unjudged


def test_no_verdict_at_all(nothing_known):
    result = get_study("disagreements")(nothing_known[:1])
    assert {row["verdict"] for row in result.rows} == {"-"}
    assert all(line == ["-"] * 3 for line in cells(result.tables[0]).values())
    assert result.figure is None
    key = json.loads(result.files["cases/key.json"])  # people can still judge
    assert {quality for case in key["cases"] for quality in case["quality"]} == {None}


def test_tokens_of_an_item_that_is_named(nothing_known):
    result = get_study("tokens")(nothing_known, {"item": 4})
    assert {row["id"] for row in result.rows} == {"scenes-caption/test/4"}
    assert all(np.isnan(row["quality"]) for row in result.rows)
    assert not any("oracle" in row["picked_by"] for row in result.rows)
    assert "quality - " in result.files["page.html"]

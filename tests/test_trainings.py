"""tools/trainings.py: the main table over several trainings."""

import numpy as np
import pytest
from made_runs import make_run

from lookback.runs import open_runs
from lookback.scores.base import get_scorer
from lookback.studies import Runs, get_study
from tools import blocks, trainings

TASKS = ("scenes-vqa", "scenes-caption")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two trainings on two tasks."""
    found = []
    for number in range(2):
        folder = tmp_path_factory.mktemp("training")
        for task in TASKS:
            make_run(folder / "runs" / task, task, seed=number)
        found.append(folder)
    return found


def test_each_cell_is_the_mean_and_the_range_of_the_studies(folders):
    studies = [
        {
            (get_scorer(row["method"]).title, row["benchmark"], row["N"]): row["value"]
            for row in get_study("main")(Runs(open_runs([folder / "runs"]))).rows
        }
        for folder in folders
    ]
    table = trainings.values_table([trainings.main_rows(folder) for folder in folders])
    setups = [(b, int(n.removeprefix("N=") or 0)) for b, n in table.columns[1:]]
    assert {n for _, n in setups} == {0, 5, 25}
    seen = 0
    for name, *line in table.rows:
        for cell, setup in zip(line, setups, strict=True):
            values = [study.get((name, *setup), np.nan) for study in studies]
            text = getattr(cell, "text", cell)
            if np.isfinite(values).all():
                seen += 1
                mean, low, high = np.mean(values), min(values), max(values)
                assert text == f"{mean:.2f} [{low:.1f}, {high:.1f}]"
            else:
                assert text == "-"
    assert seen > 40


def test_leads_have_a_column_per_training(folders):
    rows = [trainings.main_rows(folder) for folder in folders]
    table = trainings.leads_table(rows)
    (line,) = [line for line in table.rows if line[0] == "over Random"]
    for cell, study in zip(line[1:], rows, strict=True):
        (row,) = [
            r for r in study if (r["method"], r["benchmark"], r["N"]) == ("random", "Average", 0)
        ]
        assert cell.startswith(f"{row['lead']:+.2f} [")


def test_runs_of_two_models_are_no_training(tmp_path):
    for task in TASKS:
        make_run(tmp_path / "runs" / task, task, model=task)
    with pytest.raises(ValueError, match="of 2 models"):
        trainings.main_rows(tmp_path)


def test_a_part_of_a_document_is_replaced(tmp_path):
    doc = tmp_path / "doc.md"
    doc.write_text("a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\nkept\n<!-- /y -->\n")
    blocks.put(doc, "x", "new \\1\n")
    assert doc.read_text().split("\n")[1:5] == ["<!-- x -->", "new \\1", "<!-- /x -->", "b"]
    assert "<!-- y -->\nkept\n<!-- /y -->" in doc.read_text()
    with pytest.raises(ValueError, match="no block between <!-- z -->"):
        blocks.put(doc, "z", "")

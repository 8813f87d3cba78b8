"""The table that a report opens with: LookBack minus each other scorer, against slow loops."""

import json
import re

import numpy as np
import pytest
from made_runs import make_run
from studies.slow_outcomes import slow_outcome

from lookback.report import report
from lookback.report.tables import difference_rows, difference_tables
from lookback.studies import STUDIES, Runs, get_study

BENCHMARKS = {"Scenes VQA": "vqa", "Scenes Caption": "caption"}  # in the order of tables


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two benchmarks of one model; the second lacks a recorded scorer."""
    folder = tmp_path_factory.mktemp("differences")
    caption = make_run(folder / "caption", items=30, n=8, recorded=("vauq",))
    vqa = make_run(folder / "vqa", "scenes-vqa", items=12, n=8, seed=7)
    return Runs([caption, vqa], ns=(3, 8))


def slow_difference(run, method, n, seed):
    """The mean difference in points, and that of 2,000 samples of items, one after another."""
    each = zip(slow_outcome(run, "lookback", n), slow_outcome(run, method, n), strict=True)
    gaps = [100 * (ours - other) for ours, other in each]
    samples = np.random.default_rng(seed).integers(0, len(gaps), (2000, len(gaps)))
    return sum(gaps) / len(gaps), [sum(gaps[i] for i in s) / len(gaps) for s in samples.tolist()]


def slow_row(runs, method, setups):
    """The difference and the ends of its interval, averaged over benchmarks and N."""
    by_name = {run.path.name: run for run in runs}
    found = [
        slow_difference(by_name[BENCHMARKS[name]], method, n, list(BENCHMARKS).index(name))
        for name, n in setups
    ]
    draws = [sum(each) / len(found) for each in zip(*(draws for _, draws in found), strict=True)]
    return sum(value for value, _ in found) / len(found), *np.percentile(draws, [2.5, 97.5])


@pytest.mark.parametrize("method", ["mean_log_prob", "self_certainty", "random"])
def test_differences_are_those_of_a_slow_loop(runs, method):
    rows = [row for row in difference_rows(runs) if row["method"] == method]
    setups = [(name, n) for name in BENCHMARKS for n in (3, 8)]
    assert [(row["benchmark"], row["N"]) for row in rows] == [*setups, ("Average", 0)]
    for row in rows:
        here = setups if row["benchmark"] == "Average" else [(row["benchmark"], row["N"])]
        expected = slow_row(runs, method, here)
        assert (row["difference"], row["low"], row["high"]) == pytest.approx(expected)
        assert (
            row["items"] == {"Scenes Caption": 30, "Scenes VQA": 12, "Average": 0}[row["benchmark"]]
        )


def test_averages_are_the_leads_of_study_main(runs):
    rows = {row["method"]: row for row in difference_rows(runs) if row["benchmark"] == "Average"}
    leads = get_study("main")(runs).rows
    leads = [row for row in leads if (row["benchmark"], row["N"]) == ("Average", 0)]
    assert {row["method"] for row in leads} - set(rows) == {"lookback", "oracle"}
    for lead in leads:
        if lead["method"] in rows:
            row = rows[lead["method"]]
            assert (row["difference"], row["low"], row["high"]) == (
                *(lead["lead"], lead["lead_low"], lead["lead_high"]),
            )


def test_a_scorer_that_a_run_lacks_has_a_dash_there_and_no_average(runs):
    rows = difference_rows(runs)
    assert {r["benchmark"] for r in rows if r["method"] == "vauq"} == {"Scenes Caption"}
    (table,) = difference_tables(rows)
    lines = {line[0]: line[1:] for line in table.rows}
    assert [cell == "-" for cell in lines["VAUQ"]] == [True, True, True, False, False]
    assert table.columns[1:] == [
        ("Average", ""),
        *((name, f"N={n}") for name in BENCHMARKS for n in (3, 8)),
    ]


def test_cells_are_bold_where_the_interval_excludes_0(runs):
    cells = [cell for line in difference_tables(difference_rows(runs))[0].rows for cell in line[1:]]
    known = [cell for cell in cells if cell != "-"]
    for cell in known:
        low, high = map(float, re.findall(r"\[(.*), (.*)\]", cell.text)[0])
        assert cell.mark == ("best" if low > 0 or high < 0 else "")
    assert {cell.mark for cell in known} == {"", "best"}


def test_of_five_items_nothing_is_bold(tmp_path):
    rows = difference_rows(Runs([make_run(tmp_path / "run", items=5, n=8)]))
    (table,) = difference_tables(rows)
    assert {cell.mark for line in table.rows for cell in line[1:]} == {""}
    assert any(row["low"] > 0 for row in rows)
    assert table.columns == [("", "Scorer"), ("Scenes Caption", "N=8")]  # one needs no average


def test_the_page_opens_with_them(runs):
    page = report(runs, {"main": get_study("main")(runs)}, items=1)
    order = [page.index(f'id="{one}"') for one in ("differences", "items", "study-main", "runs")]
    assert order == sorted(order)
    section = page[order[0] : order[1]]
    (table,) = difference_tables(difference_rows(runs))
    number, tail = table.rows[0][1].text.split(" ", 1)
    assert number in section
    assert tail in section
    assert "N = 3, 8: of each item&#39;s candidates the first N." in section


def test_commands_print_them(runs, command, tmp_path, monkeypatch):
    few = {name: get_study(name) for name in ("main", "seeds")}
    monkeypatch.setattr(STUDIES, "all", lambda: few)
    asked = ("study", "all", runs[0].path.parent, "--out", tmp_path / "a", "--items", 1, "--n", 3)
    status, out, _ = command(*asked)
    assert status == 0
    assert out.splitlines()[0] == str(tmp_path / "a" / "report.html")
    expected = difference_rows(Runs(runs, ns=[3]))
    cell = difference_tables(expected)[0].rows[0][1].text
    assert cell.split()[0] in out
    status, out, _ = command(*asked, "--json")
    data = json.loads(out)
    assert data["differences"] == expected
    assert data["report"] == str(tmp_path / "a" / "report.html")
    assert list(data["not_done"]) == ["seeds"]


def test_runs_without_quality_have_none_and_the_page_says_so(tmp_path):
    control = make_run(tmp_path / "none", items=2, n=2, image="none")
    assert difference_rows(Runs([control])) == []
    assert "No differences" in report([control], {}, items=1)


def test_a_scorer_that_fails_costs_the_table_alone(runs, monkeypatch):
    def broken(*_):
        raise ValueError("plugin 'x' failed")

    monkeypatch.setattr("lookback.report.tables.outcome_rows", broken)
    assert difference_rows(runs) == []

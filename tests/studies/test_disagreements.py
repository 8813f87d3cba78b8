"""The sample for raters: what is drawn, what they see, and what they do not see."""

import json

import pytest
from changed_runs import change_rows, set_tokens
from made_runs import make_run

from lookback.annotation.cases import read_cases, read_key
from lookback.runs.layout import RunError
from lookback.studies import StudyError, get_study
from lookback.studies.common.tables import write
from lookback.studies.common.votes import verdict_counts

STUDY = get_study("disagreements")


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "own", items=40, n=6, empty=((3, 2),), failed=(5,))


def slow_pick(run, row, signal):
    best, top = None, None
    for i, c in enumerate(run.candidates(row)):
        values = [float(v) for v in getattr(c, signal)]
        if values and (top is None or sum(values) / len(values) > top):
            best, top = i, sum(values) / len(values)
    return best


def test_all_disagreements_and_their_verdicts(run):
    rows = STUDY([run], {"first": "mean_log_prob", "cases": 10}).rows
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    for i, name in enumerate(run.ids):
        a, b = slow_pick(run, i, "log_prob"), slow_pick(run, i, "self_certainty")
        texts = [c.text for c in run.candidates(i)]
        if texts[a] == texts[b]:
            assert name not in found
            continue
        row, quality = found.pop(name), run.quality()[i]
        verdict = "first" if quality[a] > quality[b] else "second"
        assert row["verdict"] == ("tie" if quality[a] == quality[b] else verdict)
        sides = {row["A1_scorer"]: row["A1"], row["A2_scorer"]: row["A2"]}
        assert sides == {"mean_log_prob": texts[a], "self_certainty": texts[b]}
        assert (row["question"], row["item"]) == (run.questions[i], run.places[i])
    assert not found


def test_two_sets_that_share_nothing(run):
    rows = STUDY([run], {"cases": 20}).rows
    sets = [[row for row in rows if row["set"] == number] for number in (1, 2)]
    assert [len(one) for one in sets] == [10, 10]
    assert [[row["case"] for row in one] for one in sets] == [list(range(1, 11))] * 2
    assert len({row["id"] for one in sets for row in one}) == 20
    assert {row["case"] for row in rows if not row["set"]} == {0}
    sides = [row["A1_scorer"] for one in sets for row in one]
    assert 3 < sides.count("lookback") < 17  # shuffled
    assert [row["item"] for row in sets[0]] != sorted(row["item"] for row in sets[0])
    again = STUDY([run], {"cases": 20}).rows
    assert again == rows
    other = STUDY([run], {"cases": 20, "seed": 1}).rows
    assert [row["id"] for row in other] != [row["id"] for row in rows]


def test_an_odd_number_and_too_few(run):
    rows = STUDY([run], {"cases": 7}).rows
    assert [sum(row["set"] == number for row in rows) for number in (1, 2)] == [4, 3]
    result = STUDY([run], {"cases": 1000})
    drawn = [row for row in result.rows if row["set"]]
    assert len(drawn) == len(result.rows) < 1000
    sizes = [sum(row["set"] == number for row in drawn) for number in (1, 2)]
    assert sizes == [(len(drawn) + 1) // 2, len(drawn) // 2]  # even halves of the few there are
    last = max(row["case"] for row in drawn)
    assert last == sizes[0]
    assert any("fewer than the 1000 asked for" in note for note in result.notes)


def test_the_table_counts_verdicts(run):
    result = STUDY([run], {"cases": 10})
    (table,) = result.tables
    assert [name for _, name in table.columns] == ["Evaluation", "LookBack", "Tie", "SC"]
    for line, rows in zip(
        table.rows, ([r for r in result.rows if r["set"]], result.rows), strict=True
    ):
        counts = [sum(r["verdict"] == v for r in rows) for v in ("first", "tie", "second")]
        assert list(line[1:]) == [f"{c} ({100 * c / len(rows):.1f}%)" for c in counts]
    assert verdict_counts([{"verdict": "first"}] * 13 + [{"verdict": "tie"}] * 37) == [
        *("13 (26.0%)", "37 (74.0%)", "0 (0.0%)")
    ]


def test_the_folder_of_cases(run, tmp_path):
    result = STUDY([run], {"cases": 8})
    assert list(result.files) == ["cases/cases.json", "cases/key.json"]
    write("disagreements", result, tmp_path / "out")
    folder = tmp_path / "out" / "disagreements-cases"
    cases, key = read_cases(folder), read_key(folder)
    drawn = {(row["set"], row["case"]): row for row in result.rows if row["set"]}
    assert [case.place for case in cases.cases] == sorted(drawn) == list(key.cases)
    assert (key.study, key.model, key.benchmark, key.n) == (
        *(cases.study, run.model, "Scenes Caption", 6),
    )
    assert (key.first.name, key.first.title, key.second.title) == ("lookback", "LookBack", "SC")
    for case in cases.cases:
        row, line = drawn[case.place], key.cases[case.place]
        assert (case.question, case.answers) == (row["question"], (row["A1"], row["A2"]))
        assert case.image.startswith("data:image/png;base64,")  # scenes are drawn
        assert (line.id, line.scorers) == (row["id"], (row["A1_scorer"], row["A2_scorer"]))
        assert line.quality == (row["A1_quality"], row["A2_quality"])
        item = run.ids.index(line.id)
        texts = [c.text for c in run.candidates(item)]
        for text, quality in zip(case.answers, line.quality, strict=True):
            assert quality in {run.quality()[item][i] for i, t in enumerate(texts) if t == text}
    for secret in ("ookback", "ookBack", "certainty", "quality", "scorer"):
        assert secret not in result.files["cases/cases.json"]


def test_several_runs_and_missing_images(tmp_path, monkeypatch):
    monkeypatch.delenv("LOOKBACK_DATA", raising=False)
    runs = [make_run(tmp_path / name, name, n=4) for name in ("vqav2", "scenes-pairs")]
    result = STUDY(runs, {"cases": 4})
    assert {name for name in result.files if "vqav2" in name} == {
        *("vqav2-cases/cases.json", "vqav2-cases/key.json")
    }
    seen = json.loads(result.files["vqav2-cases/cases.json"])["cases"]
    assert [case["image"] for case in seen] == [None] * 4
    assert any("4 images are missing: vqav2 is read from files" in note for note in result.notes)
    assert "base64" in result.files["scenes-pairs-cases/cases.json"]
    others = [make_run(tmp_path / f"m{i}", "vqav2", n=4, model=f"a/m{i}") for i in (1, 2)]
    assert "a-m2-vqav2-cases/key.json" in STUDY(others, {"cases": 4}).files


def test_an_item_of_another_benchmark_has_no_image(tmp_path):
    run = change_rows(
        make_run(tmp_path / "own", n=4), item=lambda row: row.update(id=f"x{row['id']}")
    )
    result = STUDY([run], {"cases": 4})
    assert "base64" not in result.files["cases/cases.json"]
    assert any("where the run has x" in note for note in result.notes)


def test_nothing_to_compare(run, tmp_path):
    with pytest.raises(StudyError, match="nothing to compare"):
        STUDY([run], {"first": "lookback", "second": "lookback"})
    with pytest.raises(RunError, match="usc"):
        STUDY([run], {"first": "usc"})
    same = change_rows(make_run(tmp_path / "same", n=3), lambda row: set_tokens(row, [" a"]))
    with pytest.raises(StudyError, match="the same text for every item"):
        STUDY([same])

"""The sample for annotators: what is drawn, what they see, and what they do not see."""

import csv
import io
import re
from html import unescape

import pytest
from changed_runs import change_rows, set_tokens
from made_runs import make_run

from lookback.runs.layout import RunError
from lookback.studies import StudyError, get_study
from lookback.studies.shared.cases import verdict_counts

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


def test_the_pages(run):
    result = STUDY([run], {"cases": 8})
    assert list(result.files) == ["set1.html", "set2.html", "key.csv"]
    key = list(csv.DictReader(io.StringIO(result.files["key.csv"])))
    for number in (1, 2):
        page = result.files[f"set{number}.html"]
        here = [row for row in result.rows if row["set"] == number]
        answer = r'<div class="answer"><b>(A.)</b><p dir="auto">(.*?)</p></div>'
        answers = re.findall(answer, page, re.DOTALL)
        shown = [("A1", row["A1"]) for row in here], [("A2", row["A2"]) for row in here]
        assert [(side, unescape(text)) for side, text in answers[::2]] == shown[0]
        assert [(side, unescape(text)) for side, text in answers[1::2]] == shown[1]
        assert page.count("data:image/png;base64,") == len(here) == 4  # scenes are drawn
        assert page.count('type="radio"') == 3 * len(here)
        assert page.count('value="Tie"') == len(here)
        for secret in ("lookback", "LookBack", "self_certainty", "Self-Certainty", "quality"):
            assert secret not in page.replace("lookback-", "")
        assert "http" not in page  # needs nothing else
        sides = [(row["A1_scorer"], row["A2_scorer"]) for row in here]
        keyed = [row for row in key if row["set"] == str(number)]
        assert [(row["A1_scorer"], row["A2_scorer"]) for row in keyed] == sides
        assert [row["id"] for row in keyed] == [row["id"] for row in here]
        assert [row["case"] for row in keyed] == ["1", "2", "3", "4"]


def test_texts_cannot_break_a_page(tmp_path):
    def evil(row):
        set_tokens(row, [f"</div><script>alert({row['index']})</script>", ' "&amp;'])

    def asked(row):
        row["question"] = "<b>&?"

    run = change_rows(make_run(tmp_path / "own", n=4), evil, asked)
    page = STUDY([run], {"cases": 4}).files["set1.html"]
    assert "<script>alert" not in page
    assert "&lt;/div&gt;&lt;script&gt;alert(" in page
    assert "&#34;&amp;amp;" in page
    assert "&lt;b&gt;&amp;?" in page


def test_several_runs_and_missing_images(tmp_path, monkeypatch):
    monkeypatch.delenv("LOOKBACK_DATA", raising=False)
    runs = [make_run(tmp_path / name, name, n=4) for name in ("vqav2", "scenes-pairs")]
    result = STUDY(runs, {"cases": 4})
    assert {name for name in result.files if "vqav2" in name} == {
        *("vqav2-set1.html", "vqav2-set2.html", "vqav2-key.csv")
    }
    assert "There is no image here" in result.files["vqav2-set1.html"]
    assert any("4 images are missing: vqav2 is read from files" in note for note in result.notes)
    assert "base64" in result.files["scenes-pairs-set1.html"]
    others = [make_run(tmp_path / f"m{i}", "vqav2", n=4, model=f"a/m{i}") for i in (1, 2)]
    assert "a-m2-vqav2-key.csv" in STUDY(others, {"cases": 4}).files


def test_an_item_of_another_benchmark_has_no_image(tmp_path):
    run = change_rows(
        make_run(tmp_path / "own", n=4), item=lambda row: row.update(id=f"x{row['id']}")
    )
    result = STUDY([run], {"cases": 4})
    assert "base64" not in result.files["set1.html"]
    assert any("where the run has x" in note for note in result.notes)


def test_nothing_to_compare(run, tmp_path):
    with pytest.raises(StudyError, match="nothing to compare"):
        STUDY([run], {"first": "lookback", "second": "lookback"})
    with pytest.raises(RunError, match="usc"):
        STUDY([run], {"first": "usc"})
    same = change_rows(make_run(tmp_path / "same", n=3), lambda row: set_tokens(row, [" a"]))
    with pytest.raises(StudyError, match="the same text for every item"):
        STUDY([same])

"""docs/reproduction.md and the script that makes its tables."""

import re

import pytest
from documents import ROOT, read, table

from lookback.benchmarks.base import get_kind
from lookback.studies import STUDIES
from tools import reproduce

DOC = read(ROOT / "docs" / "reproduction.md")


def test_every_study_has_its_place():
    shown = re.findall(r"<!-- ([a-z-]+) -->\n(.*?)<!-- /\1 -->", DOC, flags=re.DOTALL)
    others = ("search", "trainings")  # of tools/budget.py and tools/trainings.py
    studies = [name for name, _ in shown if name not in others]
    assert studies == [name for name in STUDIES.names() if name != "tokens"]
    assert all("|---|" in table for _, table in shown)
    for figure in re.findall(r"\((reproduction/[a-z-]+\.png)\)", DOC):
        assert (ROOT / "docs" / figure).exists()


def test_a_paragraph_follows_each_table():
    for part in DOC.split("\n## ")[1:]:
        *_, words = re.split(r"<!-- /[a-z-]+ -->|\.png\)", part)
        assert len(words.split()) > 25, part.split("\n")[0]


def test_new_tables_replace_old_ones_and_nothing_else(tmp_path):
    doc = tmp_path / "doc.md"
    doc.write_text("a\n<!-- main -->\nold\n<!-- /main -->\nb\n![](doc/main.png)\n<!-- note -->\n")
    studies = tmp_path / "studies"
    studies.mkdir()
    (studies / "main.md").write_text("new \\1 table\n")
    (studies / "main.png").write_bytes(b"png")
    reproduce.update(doc, studies)
    expected = (
        "a\n<!-- main -->\nnew \\1 table\n<!-- /main -->\nb\n![](doc/main.png)\n<!-- note -->\n"
    )
    assert doc.read_text() == expected
    assert (tmp_path / "doc" / "main.png").read_bytes() == b"png"


def test_tables_that_are_not_named_stay(tmp_path):
    doc, studies = tmp_path / "doc.md", tmp_path / "studies"
    old = "<!-- main -->\nold\n<!-- /main -->\n<!-- search -->\nold\n<!-- /search -->\n"
    doc.write_text(old)
    studies.mkdir()
    for name in ("main", "search"):
        (studies / f"{name}.md").write_text("new\n")
    reproduce.update(doc, studies)  # the studies: search is none
    assert doc.read_text() == old.replace("old", "new", 1)
    reproduce.update(doc, studies, ["search"])
    assert doc.read_text() == old.replace("old", "new")


def test_what_is_run(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(reproduce, "lookback", lambda *arguments: said.append(arguments))
    reproduce.make_runs(tmp_path, 7, 2)
    assert len(said) == 4 * 6  # the tasks: own, two controls, greedy, two more seeds

    texts = [" ".join(arguments) for arguments in said]
    assert sum("--image random" in text for text in texts) == 4
    assert sum("-n 1 --temperature 0" in text for text in texts) == 4
    assert sum("--seed 123" in text and "-n 5" in text for text in texts) == 4
    assert all("--limit 7" in text for text in texts if "--benchmark" in text)
    assert sum("usc@25" in text and "judge@5" in text for text in texts) == 4
    assert sum("--by-layer" in text for text in texts) == 4


def test_what_is_run_with_another_training(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(reproduce, "lookback", lambda *arguments: said.append(" ".join(arguments)))
    reproduce.make_runs(tmp_path, 7, 2, tmp_path / "other")
    assert len(said) == 4 * 2  # own, and log p without the image: all that the main table needs
    assert all(f"--model {tmp_path / 'other'}" in text for text in said)
    assert not any("usc" in text or "judge" in text for text in said)


def test_what_is_said_of_the_trainings_is_their_table():
    leads = table(DOC, "LookBack's lead, mean over benchmarks and N")
    words = DOC.partition("<!-- /trainings -->")[2].partition("\n## ")[0]
    for scorer in ("Random", "CLIPScore", "VAUQ", "SC"):
        cells = [cell for (row, head), cell in leads.items() if row == f"over {scorer}"][1:]
        values = [float(cell.split()[0]) for cell in cells]
        assert len(values) == 3
        assert f"{min(values):.1f} to {max(values):.1f}" in words, scorer


def test_the_model_card_has_its_numbers():
    card = table(read(ROOT / "docs" / "embedded.md"), "In short")
    main, leads = table(DOC, "<!-- main -->"), table(DOC, "LookBack's lead with embedded")
    titles = {
        "random": "Random",
        "oracle": "Oracle",
        "greedy": "Greedy decoding",
        "mean log p": "Mean log p",
        "consensus": "Consensus",
        "self-certainty": "SC",
        "A alone": "Visual lookback",
        "LookBack": "LookBack",
    }
    for (row, column), told in card.items():
        if column == "task" or not told:
            continue
        if row == "LookBack's lead":
            measured = leads[f"over {titles[column]}", "N=25"]
        else:
            measured = main[titles[column], f"{get_kind(row).title} N=25"]
        numbers = [[float(x) for x in re.findall(r"[-+]?[\d.]+", t)] for t in (told, measured)]
        shown = len(numbers[0])
        assert numbers[0] == pytest.approx(numbers[1][:shown], abs=0.051), (row, column)

"""README: short, its numbers those of the pages that it links, its snippets' results right.

That its Python runs and its commands exist is among the tests of all pages (test_documents.py).
"""

import re

import pytest
from documents import ROOT, blocks, read, table
from helpers import make_candidates
from zoo.table import PAGE as MODELS
from zoo.table import replaced

import lookback
from lookback.benchmarks.base import BENCHMARKS
from lookback.registry import load_plugin
from lookback.scores.base import SCORERS
from lookback.studies import STUDIES

README = read(ROOT / "README.md")
REPRODUCTION = read(ROOT / "docs" / "reproduction.md")
SCORERS_PAGE = read(ROOT / "docs" / "scorers.md")


def test_it_is_short():
    assert len(README.splitlines()) <= 180


def lead_over(scorer):
    """LookBack's lead at N = 25 with its interval, from the table of docs/reproduction.md."""
    told = table(REPRODUCTION, "LookBack's lead with embedded")[f"over {scorer}", "N=25"]
    return [float(value) for value in re.findall(r"[+-][\d.]+", told)]


def test_its_leads_are_those_of_the_reproduction():
    told = re.search(
        r"over random selection (\+\d+)\D+N = 25, over\s+self-certainty (\+\d+)", README
    )
    assert [int(value) for value in told.groups()] == [
        round(lead_over(scorer)[0]) for scorer in ("Random", "SC")
    ]
    _, low, high = lead_over("Mean log p")
    assert ("over plain log p within the noise" in README) == (low <= 0 <= high)


def test_what_it_says_of_greedy_decoding_is_measured():
    told = re.search(r"is (\d) points above best of 25\s+on long .* and (\d) below on cap", README)
    row = ("Greedy decoding", "Over best of 25")
    long = table(REPRODUCTION, "on Scenes AMBER with embedded, 110 items")[row]
    short = table(REPRODUCTION, "on Scenes Caption with embedded, 110 items")[row]
    assert [round(float(cell.split()[0])) for cell in (long, short)] == [
        int(told[1]),
        -int(told[2]),
    ]


def test_the_scorer_is_a_plugin_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.setattr(SCORERS, "_entries", dict(SCORERS.all()))
    (block,) = [block for block in blocks(SCORERS_PAGE, "python") if "@lookback.scorer" in block]
    plugin = tmp_path / "my_scorer.py"
    plugin.write_text(block, encoding="utf-8")
    load_plugin(str(plugin))
    best = make_candidates().best("cautious")
    assert best.score == pytest.approx((best.log_prob - best.entropy).mean())


def test_the_bare_formula_is_called_as_the_page_says():
    (block,) = [block for block in blocks(SCORERS_PAGE, "python") if "lookback_score(" in block]
    told = eval(block.split("\n\n")[1], {"lookback": lookback})
    by_hand = 0.0
    weights = [a**1.25 for a in (0.30, 0.02, 0.25)]
    for weight, log_p, log_a in zip(
        weights, (-0.1, -2.0, -0.3), (-1.2039728, -3.9120230, -1.3862944), strict=True
    ):
        by_hand += weight / sum(weights) * (log_p + 0.5 * log_a)
    assert told == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("page", "registry"), [("scorers", SCORERS), ("studies", STUDIES), ("benchmarks", BENCHMARKS)]
)
def test_a_page_names_all_that_there_are(page, registry):
    text = read(ROOT / "docs" / f"{page}.md") + read(ROOT / "docs" / "embedded.md")
    missing = [name for name in registry.builtin if f"`{name}`" not in text and name not in text]
    assert [name for name in missing if name != "own"] == []


def test_there_are_as_many_models_as_it_says():
    rows = re.findall(r"^\| .* `\w+ForConditionalGeneration`", read(MODELS), re.MULTILINE)
    assert "over forty architectures" in README
    assert len(rows) > 40


def test_the_table_of_models_is_the_zoo():
    page = MODELS.read_text(encoding="utf-8")
    assert replaced(page) == page, "write it again: make models-table"

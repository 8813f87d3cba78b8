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
from tools.measured import NAMES, readme_table

README = read(ROOT / "README.md")
REPRODUCTION = read(ROOT / "docs" / "reproduction.md")
SCORERS_PAGE = read(ROOT / "docs" / "scorers.md")


def test_it_is_short():
    assert len(README.splitlines()) <= 140


def test_its_table_is_what_was_measured():
    assert f"<!-- measured -->\n{readme_table()}<!-- /measured -->" in README
    assert {"mean_log_prob", "greedy"} <= NAMES.keys()


def test_its_sentence_on_the_results_is_true_of_its_table():
    """Better than two, not significantly different from two, behind one on captions."""
    cells = table(README, "<!-- measured -->")
    intervals = {
        name: [
            float(number) for number in re.findall(r"[+-][\d.]+", cells[title, "LookBack's lead"])
        ]
        for name, title in NAMES.items()
        if name != "lookback"
    }
    for name in ("random", "self_certainty"):
        assert intervals[name][1] > 0
    for name in ("mean_log_prob", "greedy"):
        _, low, high = intervals[name]
        assert low <= 0 <= high
    assert float(cells[NAMES["consensus"], "captions"]) > float(
        cells[NAMES["lookback"], "captions"]
    )


CHOOSING = read(ROOT / "docs" / "choosing.md")


def test_the_page_on_choosing_says_what_carries_the_gain():
    """Where the evidence is weaker than the headline: the lead over log p, and A_t by itself."""
    words = " ".join(CHOOSING.split())
    lead = table(REPRODUCTION, "LookBack's lead with embedded")["over Mean log p", "Average"]
    value, low, high = (float(number) for number in re.findall(r"[+-][\d.]+", lead))
    assert f"{value:.1f} points [{low:.1f}, {high:.1f}]" in words
    assert low <= 0 <= high
    factors = table(REPRODUCTION, "<!-- decomposition -->")
    drops = [cell for (_, head), cell in factors.items() if head == "random image for A drop"]
    assert len(drops) == 4
    assert all(float(drop.split()[0]) <= 0 for drop in drops)  # a wrong image costs A_t nothing
    main = table(REPRODUCTION, "<!-- main -->")
    alone, random = (
        float(main[method, "Average"].split()[0]) for method in ("Visual lookback", "Random")
    )
    assert alone < random
    assert f"{alone:.1f} against {random:.1f}" in words


def test_the_scorer_is_a_plugin_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.setattr(SCORERS, "entries", dict(SCORERS.all()))
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

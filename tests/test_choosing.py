"""docs/choosing.md and the tool that makes its table."""

import re
from pathlib import Path

import numpy as np
import pytest
from documents import table
from made_runs import change_manifest, make_run

from lookback.studies import Runs, get_study
from lookback.studies.common.selection import bootstrap_means, interval, outcome
from tools import choosing

DOCS = Path(__file__).parents[1] / "docs"
CHOOSING, REPRODUCTION = (
    (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("choosing", "reproduction")
)


def cells(text):
    return [
        [c.strip(" *") for c in line.strip("|").split("|")] for line in text.split("\n") if line
    ]


def block(name, text=REPRODUCTION):
    return re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)[1]


BLOCK = block("choosing", CHOOSING)


def rows():
    head, _, *found = [line for line in cells(BLOCK) if len(line) > 1]
    assert head == list(choosing.COLUMNS)
    return found


def test_the_page_says_what_the_reproduction_says():
    """Both are made of the same runs: a new one without the other is seen."""
    shown = rows()
    taken = {(c[0], c[1]): c for c in cells(block("combine")) if len(c) == 8}
    main = table(REPRODUCTION, "<!-- main -->")
    assert len(shown) == 8
    for task, n, random, *shares, _, _, _, pair in shown:
        title = task.partition(":")[0]
        line = taken[title, n]
        assert random == line[2]
        assert pair == f"{line[6]}: {line[7]}"
        for method, value in zip(
            ("Greedy decoding", "Mean log p", "LookBack"), shares, strict=False
        ):
            measured = float(main[method, f"{title} N={n}"].split()[0])
            assert float(value) == pytest.approx(measured, abs=0.051)


def test_the_sentence_under_the_table_follows_from_it():
    lines = rows()
    lost = [c for c in lines if not c[7].startswith("LookBack") and "LookBack" not in c[8]]
    words = BLOCK.split("\n\n")[1]
    assert f"in {len(lines) - len(lost)} of {len(lines)} rows" in words
    for task, n, *_, highest, _, _ in lost:
        name = highest.rpartition(" ")[0]
        assert f"{task.partition(':')[0]} at N = {n} ({name})" in words
    above = [c for c in lines if float(c[3]) > float(c[5])]
    greedy = words.partition(" greedy ")[2]
    assert greedy.count(" at N = ") == len(above)
    for task, n, *_ in above:
        assert f"{task.partition(':')[0]} at N = {n}" in greedy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("choosing")
    run = make_run(root / "a", items=20, n=6, recorded=("vauq",))
    make_run(root / "a-none", items=20, n=6, image="none", controls=run)
    greedy = make_run(root / "a-greedy", items=20, n=1, seed=5)
    sampling = {"n": 1, "seed": 5, "temperature": 0.0}
    change_manifest(root / "a-greedy", settings=greedy.settings | {"sampling": sampling})
    return root


def test_who_is_highest_and_who_cannot_be_told_from_it(folder):
    from lookback.runs import open_runs

    runs = Runs(open_runs([folder]))
    (found,) = choosing.choices(runs)
    main = [r for r in get_study("main")(runs).rows if r["benchmark"] == "Scenes Caption"]
    rivals = {r["method"]: r["value"] for r in main if np.isfinite(r["value"])}
    del rivals["oracle"], rivals["random"]
    greedy = rivals.pop("greedy")
    assert found.value == pytest.approx(max(rivals.values()))
    assert rivals[found.best] == pytest.approx(found.value)
    run = next(r for r in runs.largest)
    assert found.log_prob == pytest.approx(rivals["mean_log_prob"])
    assert found.greedy == pytest.approx(greedy)
    for method in rivals.keys() - {found.best, "visual_gain"}:
        gap = 100 * (outcome(run, found.best, 6) - outcome(run, method, 6))
        low, high = interval(bootstrap_means(gap))
        assert (method in found.level) == (low <= 1e-9)
        if method == "lookback":
            assert found.behind == pytest.approx((gap.mean(), low, high))


def test_the_block_is_replaced_and_nothing_else(folder, tmp_path):
    doc = tmp_path / "doc.md"
    doc.write_text("a\n<!-- choosing -->\nold\n<!-- /choosing -->\nb\n")
    choosing.write(folder, doc)
    text = doc.read_text()
    assert text.startswith("a\n<!-- choosing -->\n| Task | N |")
    assert text.endswith("<!-- /choosing -->\nb\n")
    assert "\nold\n" not in text
    doc.write_text("nothing")
    with pytest.raises(ValueError, match="has no block"):
        choosing.write(folder, doc)

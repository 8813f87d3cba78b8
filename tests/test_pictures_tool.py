"""The pictures of the docs: what the result shows is what was asked; symbols are typeset."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_asked import make_asked

from lookback.cli.demo import SCORERS, TASK, verdict
from lookback.pages.tokens import color, shades
from tools.measured import fairness
from tools.pictures import lay_out, result_svg

DOCS = Path(__file__).parents[1] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def shown(asked, tried=3):
    root = ElementTree.fromstring(result_svg(asked, ("A cup.", 0.5), tried))
    return root, root.findall(f"{SVG}g")


def test_the_result_shows_the_picks_and_their_scores():
    asked = make_asked()
    root, answers = shown(asked)
    texts = ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]
    for scorer, group in zip(SCORERS, answers, strict=True):
        pick = asked.picks[scorer]
        assert [t.text for t in group.iter(f"{SVG}text")] == [x.strip() for x in pick.tokens]
        fills = [rect.get("fill") for rect in group.iter(f"{SVG}rect")]
        assert fills == [color("A", float(s)) for s in shades(pick.visual_lookback)]
        ours, plain, other = (asked.candidates.scores(name)[pick.index] for name in SCORERS)
        assert max(ours, plain) < 0 < other
        scores = f"LookBack −{-ours:.2f} · mean log p −{-plain:.2f} · self-certainty {other:.2f}"
        assert scores in texts
        assert any(verdict(asked.quality[pick.index]) in text for text in texts)
    assert "What is there?" in texts
    assert any("“A cup.” (partly right, 0.50)" in text for text in texts)
    assert "3 of 6 answers are right" in texts
    assert any("0.25 or more below it (3 asked)" in text for text in texts)
    assert fairness(TASK) in texts
    image = next(root.iter(f"{SVG}image")).get("href")
    assert image.startswith("data:image/png;base64,")


def test_texts_cannot_break_the_picture():
    said = [(' <b>"&\x00\ud800', 1.0)]
    root, answers = shown(make_asked(said, question="a < b & \x1b" * 9))
    assert next(answers[0].iter(f"{SVG}text")).text == '<b>"&\ufffd\ufffd'
    height = float(root.get("viewBox").split()[3])
    assert max(float(node.get("y")) for node in root.iter(f"{SVG}text")) < height - 10


@given(st.lists(st.sampled_from(["a", " bc", " ", "def", " a a", " longer", "\n x"]), min_size=1))
def test_words_do_not_overlap_and_lines_are_not_too_long(tokens):
    ends: dict[int, int] = {}
    begun: dict[int, int] = {}
    for (line, column), token in zip(lay_out(tuple(tokens), 12), tokens, strict=True):
        assert column >= ends.get(line, 0)
        assert line >= max(ends, default=0)
        ends[line] = column + len(token.strip())
        begun[line] = begun.get(line, 0) + (not column or token[:1].isspace())
    assert all(end <= 12 or begun[line] == 1 for line, end in ends.items())


def test_lines_break_between_words():
    tokens = (" The", " um", "brella", ",", " red")
    assert lay_out(tokens, 13) == [(0, 0), (0, 4), (0, 6), (0, 12), (1, 0)]
    assert lay_out(tokens, 12) == [(0, 0), (1, 0), (1, 2), (1, 8), (2, 0)]


@pytest.mark.parametrize("name", ["how-it-works.svg", "result.svg"])
def test_the_shipped_pictures_stand_on_a_card_and_need_nothing(name):
    root = ElementTree.parse(DOCS / name).getroot()
    card = root.find(f"{SVG}rect")
    _, _, width, height = map(float, root.get("viewBox").split())
    assert (float(card.get("width")), float(card.get("height"))) == (width - 2, height - 2)
    rgb = np.array(list(bytes.fromhex(card.get("fill")[1:])))
    assert rgb.min() > 230
    assert "http" not in (DOCS / name).read_text("utf-8").replace("http://www.w3.org/2000/svg", "")


def test_symbols_are_typeset():
    root = ElementTree.parse(DOCS / "how-it-works.svg").getroot()
    text = " ".join("".join(node.itertext()) for node in root.iter(f"{SVG}text"))
    assert not re.search(r"[_^]|\w-\d", text)
    italic = {n.text for n in root.iter(f"{SVG}tspan") if n.get("font-style") == "italic"}
    assert {"A", "p", "u", "q", "t", "S", "N", "α", "λ"} <= italic
    low = [n for n in root.iter(f"{SVG}tspan") if n.text == "t" and float(n.get("dy", 0)) > 0]
    assert len(low) >= 7
    assert all(float(node.get("font-size")) < 16 for node in low)

"""README's picture of a result: one scene, what LookBack and two others pick, shaded.

`make pictures`: asks the embedded model as `make demo` does and takes the item by the same rule. It
is an example; how such items go on the whole stands below it. SVG, on a card of its own, so that it
reads on light and dark pages. Answers have a fixed width per character (`textLength`), so that
shades fit whatever fonts a reader has.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import shorten, wrap
from typing import NamedTuple
from xml.etree import ElementTree

from lookback.benchmarks.base import get_benchmark
from lookback.cli.demo import (
    APART,
    FIRST,
    SCORERS,
    TASK,
    Asked,
    ask,
    ask_greedily,
    find,
    verdict,
)
from lookback.pages import clean, image_uri
from lookback.pages.tokens import color, shades
from lookback.scores.base import get_scorer
from lookback.signals import Candidate
from tools.measured import fairness

WIDTH = 1000
SCENE = 300
LEFT, RIGHT = 32, 368  # of the scene, of the answers
FONT = 23
CHARACTER = 13.8  # pixels per character, 0.6 em
LINE = 38
COLUMNS = int((WIDTH - RIGHT - 56) / CHARACTER)
SANS = "'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"
MONO = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"
INK, MUTED, LINES = "#22252a", "#5f646d", "#d9d5cb"
GOOD, BAD = "#15803d", "#b45309"


class Word(NamedTuple):
    """A token at its place: line and column, in characters."""

    line: int
    column: int
    text: str
    shade: float


def lay_out(tokens: tuple[str, ...], columns: int) -> list[tuple[int, int]]:
    """Line and column of each token, its leading blanks left out.

    Lines break before a blank where the next word would not fit; a word longer than a line does not
    break.
    """
    begins = [i for i, token in enumerate(tokens) if i == 0 or token[:1].isspace()]
    places, line, column = [], 0, 0
    for start, end in pairwise([*begins, len(tokens)]):
        bare = [tokens[start].strip(), *(token.strip() for token in tokens[start + 1 : end])]
        length = sum(map(len, bare))
        if column and column + 1 + length > columns:
            line, column = line + 1, 0
        column += 1 if column else 0
        for text in bare:
            places.append((line, column))
            column += len(text)
    return places


def words_of(candidate: Candidate) -> list[Word]:
    """An answer's tokens with their places, shaded by A_t within the answer."""
    places = lay_out(candidate.tokens, COLUMNS)
    strengths = shades(candidate.visual_lookback).tolist()
    rows = zip(places, candidate.tokens, strengths, strict=True)
    return [Word(*place, text.strip(), shade) for place, text, shade in rows]


def result_svg(asked: Asked, greedy: tuple[str, float], tried: int) -> str:
    """The picture of an item.

    Args:
        asked: the item and its answers.
        greedy: what greedy decoding says, and its quality.
        tried: how many items were asked for it.
    """
    root = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    card = _add(root, "rect", x=1, y=1, rx=16, fill="#fffdf9", stroke=LINES, stroke_width=2)
    bottom = 24
    for scorer in SCORERS:
        bottom = _pick(root, asked, scorer, bottom)
    bottom = _caption(root, list(_captions(greedy, tried)), max(bottom, _scene(root, asked)))
    card.attrib |= {"width": str(WIDTH - 2), "height": str(bottom - 2)}
    root.attrib |= {"viewBox": f"0 0 {WIDTH} {bottom}", "font-family": SANS, "fill": INK}
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _add(
    parent: ElementTree.Element, tag: str, text: str = "", /, **given: object
) -> ElementTree.Element:
    names = {name.replace("_", "-"): str(value) for name, value in given.items()}
    node = ElementTree.SubElement(parent, tag, names)
    node.text = clean(text)
    return node


def _scene(root: ElementTree.Element, asked: Asked) -> int:
    """The picture, the question below it, and how many answers are right; where it ends."""
    assert asked.item.image is not None, f"{asked.item.id} has no image"
    uri, side = image_uri(asked.item.image), {"width": SCENE, "height": SCENE}
    _add(root, "image", x=LEFT, y=32, href=uri, style="image-rendering:pixelated", **side)
    _add(root, "rect", x=LEFT, y=32, fill="none", stroke=LINES, **side)
    question = [(line, {"font_weight": "bold"}) for line in wrap(asked.item.question, 22)]
    lines: list[tuple[str, dict[str, str]]] = [*question, (asked.right, {"fill": MUTED})]
    for number, (line, style) in enumerate(lines):
        _add(root, "text", line, x=LEFT, y=SCENE + 66 + 30 * number, font_size=21, **style)
    return SCENE + 66 + 30 * len(lines)


def _pick(root: ElementTree.Element, asked: Asked, scorer: str, top: int) -> int:
    """A scorer's card; where it ends."""
    candidate = asked.picks[scorer]
    quality = asked.quality[candidate.index]
    words = words_of(candidate)
    height = 118 + LINE * words[-1].line + LINE
    full = get_scorer(scorer).color
    size = {"width": WIDTH - RIGHT - 24, "height": height}
    _add(root, "rect", x=RIGHT, y=top, rx=10, fill="#ffffff", stroke=full, **size)
    left, base = RIGHT + 18, top + 36
    head = _add(root, "text", x=left, y=base, font_size=22, font_weight="bold")
    _add(head, "tspan", f"{SCORERS[scorer]} picks", fill=full)
    _add(head, "tspan", verdict(quality), dx=14, fill=GOOD if quality >= 1 else BAD)
    _draw(root, words, left, base + 44)
    below = {"x": left, "y": top + height - 20, "font_size": 18, "fill": MUTED}
    _add(root, "text", _numbers(asked, candidate), **below)
    return top + height + 18


def _draw(root: ElementTree.Element, words: list[Word], left: float, base: float) -> None:
    """The shaded tokens of an answer."""
    group = _add(root, "g", font_family=MONO, font_size=FONT)
    for word in words:
        if not word.text:
            continue
        x, y = left + word.column * CHARACTER, base + word.line * LINE
        wide = round(len(word.text) * CHARACTER, 1)
        behind = {"width": wide, "height": 30, "rx": 3, "fill": color("A", word.shade)}
        _add(group, "rect", x=round(x, 1), y=y - 23, **behind)
        fitted = {"textLength": wide, "lengthAdjust": "spacingAndGlyphs"}
        _add(group, "text", word.text, x=round(x, 1), y=y, **fitted)


def _numbers(asked: Asked, candidate: Candidate) -> str:
    """All scores of an answer, so that each pick can be compared by each."""
    values = (asked.candidates.scores(scorer)[candidate.index] for scorer in SCORERS)
    told = (f"{SCORERS[s]} {value:.2f}" for s, value in zip(SCORERS, values, strict=True))
    return " · ".join(told).replace(" -", " −")


def _caption(root: ElementTree.Element, lines: Sequence[str], top: int) -> int:
    """Lines below both picks; where they end."""
    for number, line in enumerate(lines):
        _add(root, "text", line, x=LEFT, y=top + 26 + 30 * number, font_size=20, fill=MUTED)
    return top + 26 + 30 * len(lines) + 4


def _captions(greedy: tuple[str, float], tried: int) -> Iterator[str]:
    """What greedy decoding says, what is shaded, and how the item was picked."""
    text, quality = greedy
    once = f"“{shorten(text, 45, placeholder='…')}” ({verdict(quality)[2:]})"
    yield f"Asked once, by greedy decoding, it says {once}."
    yield "Shaded: attention on the image."
    yield f"An example: the first held-out scene, from number {FIRST} on, on which LookBack or"
    yield f"self-certainty picks the best, the other one {APART} or more below it ({tried} asked)."
    yield fairness(TASK)


def main() -> None:
    """Ask until the rule takes an item, draw it."""
    import lookback

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/result.svg"))
    given = parser.parse_args()
    engine, benchmark = lookback.load(quiet=True), get_benchmark(TASK)
    asked, tried = find(lambda place: ask(engine, benchmark, place, 42))
    greedy = ask_greedily(engine, benchmark, asked.item)
    given.out.write_text(result_svg(asked, greedy, tried), encoding="utf-8")


if __name__ == "__main__":
    main()

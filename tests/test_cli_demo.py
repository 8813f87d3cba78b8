"""`lookback demo`: the rule that picks its item, and what it says (its model: test_shipped.py)."""

import io
import re

import numpy as np
import pytest
from made_asked import make_asked
from made_looks import make_look
from PIL import Image
from rich.cells import cell_len
from rich.console import Console
from strict_html import Page

from lookback.benchmarks.base import GENERATED, get_benchmark
from lookback.cli.demo import (
    APART,
    FIRST,
    MOST,
    RULE,
    SCORERS,
    Start,
    ask,
    ask_greedily,
    find,
    show,
    tells_apart,
    verdict,
)
from lookback.cli.terminal import UPPER, can_draw, draw, fit

SPLITTING = 2
"""A seed with which the two scorers pick different answers."""
COLOURS = {"force_terminal": True, "color_system": "truecolor"}


def with_qualities(lookback, self_certainty, best=0.0):
    """Two answers, one the pick of each, of these qualities; `best` is what else there was."""
    asked = make_asked([(" A b.", 0.0), (" A long one.", 0.0)], seed=SPLITTING)
    first, second = (asked.picks[s].index for s in ("lookback", "self_certainty"))
    assert first != second
    quality = [0.0, 0.0]
    quality[first], quality[second] = lookback, self_certainty
    return asked._replace(quality=[*quality, best])


@pytest.mark.parametrize(
    ("one", "other", "taken"),
    [
        (1, 0, True),
        (0, 1, True),
        (1, 1, False),
        (0, 0, False),
        (0.5, 0.75, True),
        (0.75, 0.5, True),
        (0.5, 0.7, False),
    ],
)
def test_the_rule_prefers_nobody(one, other, taken):
    assert tells_apart(with_qualities(one, other)) is taken
    assert not tells_apart(with_qualities(one, other, best=1.1))  # neither picked the best


def test_the_first_item_that_the_rule_takes():
    told = [with_qualities(*pair) for pair in ((1, 1), (0.5, 0.6), (0.5, 1), (1, 0))]
    asked = []

    def answers(place):
        asked.append(place)
        return told[place - FIRST]

    taken, tried = find(answers)
    assert taken is told[2]
    assert tried == 3
    assert asked == [FIRST, FIRST + 1, FIRST + 2]  # no more than needed
    with pytest.raises(
        ValueError,
        match=rf"none of the items {FIRST} to {FIRST + MOST - 1} .* {APART} below: .*--item",
    ):
        find(lambda place: told[0])


def test_picks_are_those_of_the_scorers():
    asked = make_asked()
    assert list(asked.picks) == list(SCORERS)
    for name, pick in asked.picks.items():
        assert pick.index == int(np.nanargmax(asked.candidates.scores(name)))


class Engine:
    """Says the same to everything."""

    greedy = 0

    def sample(self, image, question, n, *, max_new_tokens, seed=None, temperature=1.2):
        if temperature == 0:
            self.greedy += 1
            return make_asked([(" No.", 0.0)] * n).candidates
        self.asked = (question, n, seed)
        return make_asked([(" A sun.", 1.0)] * n, question=question).candidates

    def look(self, image, question, response):
        assert response.text == "A sun."
        return make_look()


@pytest.mark.parametrize("task", GENERATED)
def test_answers_are_compared_with_the_truth(task):
    benchmark, engine = get_benchmark(task), Engine()
    asked = ask(engine, benchmark, 3, 7)
    item = benchmark.items("test")[3]
    assert engine.asked == (item.question, 25, 7)
    assert asked.quality == [benchmark.score(item, "A sun.")] * 25
    assert not engine.greedy  # items that the rule passes over need none
    assert ask_greedily(engine, benchmark, item) == ("No.", benchmark.score(item, "No."))


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--out", "file/below/demo.html"), 1, "file"),
        (("--out", "folder"), 1, "'folder'"),
        (("--item", "1000"), 1, "item 1000 of scenes-vqa: it has the items 0 to 999"),
        (("--item", "-1"), 1, "-1"),
        (("--seed", "-1"), 1, "seed"),
        (("--task", "own"), 2, "scenes-vqa"),
    ],
)
def test_what_is_wrong_is_said_before_the_model_loads(
    command, tmp_path, monkeypatch, arguments, status, named
):
    monkeypatch.setattr(Start, "engine", lambda self: pytest.fail("the model was loaded"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    code, out, err = command("demo", *arguments)
    assert (code, out) == (status, "")
    assert named in err
    assert "bug" not in err


def test_an_item_that_is_named_is_shown_and_written(command, tmp_path, monkeypatch):
    monkeypatch.setattr(Start, "engine", lambda self: Engine())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # else the command would set it for later tests
    page = tmp_path / "new" / "folder" / "demo.html"
    arguments = ("--task", "scenes-caption", "--item", "7", "--out", page)
    code, out, err = command("demo", *arguments)
    assert (code, err) == (0, "")
    assert out.count("A sun.") == 1 + 3  # the ranking has it once, three pick it
    assert "25 ×" in out
    assert RULE not in " ".join(out.split())
    assert out.split()[-1] == str(page)
    question = get_benchmark("scenes-caption").items("test")[7].question
    assert question in Page(page.read_text(encoding="utf-8")).order


def shown(width, asked=None, **settings):
    file = io.TextIOWrapper(io.BytesIO(), encoding=settings.pop("encoding", "utf-8"))
    show(
        Console(file=file, width=width, height=50, **settings),
        asked or make_asked(),
        ("A cup.", 0.5),
    )
    file.flush()
    return file.buffer.getvalue().decode(file.encoding)


@pytest.mark.parametrize("width", [60, 120])
def test_what_a_reader_is_told(width):
    asked, text = make_asked(), shown(width)
    assert max(map(cell_len, text.splitlines())) <= width
    text = " ".join(text.split())
    for name, pick in asked.picks.items():
        assert f"{SCORERS[name]} picks: {verdict(asked.quality[pick.index])} {pick.text}" in text
    assert "nothing picked: ~ partly right, 0.50 A cup." in text
    assert "3 of 6 answers are right" in text
    for candidate in asked.candidates.rank("lookback"):
        if candidate.tokens:
            assert f"{candidate.score:.4f}" in text
    assert text.count(" 1.00 A red cup.") == 1
    assert "2 × ✓ 1.00 A red cup." in text
    assert "(empty)" in text


def test_verdicts_have_words():
    words = [verdict(quality) for quality in (1.0, 0.5, 0.0)]
    assert words == ["✓ right", "~ partly right, 0.50", "✗ wrong"]


@pytest.mark.parametrize(
    "settings",
    [
        {},  # no terminal
        {"force_terminal": True, "color_system": None},
        {"force_terminal": True, "color_system": "standard"},
        {**COLOURS, "no_color": True},
        {**COLOURS, "encoding": "iso8859-15"},
    ],
    ids=["a pipe", "no colours", "8 colours", "NO_COLOR", "no such character"],
)
def test_no_picture_where_it_could_not_be_seen(settings):
    encoding = settings.get("encoding", "utf-8")
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert not can_draw(
        Console(file=file, **{k: v for k, v in settings.items() if k != "encoding"})
    )
    if encoding == "utf-8":
        text = shown(80, **settings)
        assert UPPER not in text
        assert "48;2" not in text


@pytest.mark.parametrize("width", [60, 120])
def test_the_picture_is_drawn_where_it_can_be(width):
    text = shown(width, **COLOURS)
    assert text.count(UPPER) == 40 * 20
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(cell_len, plain.splitlines())) <= width
    assert UPPER not in shown(width, make_asked(image=False), **COLOURS)


def test_a_character_is_two_pixels():
    pixels = np.arange(4 * 3 * 3, dtype=np.uint8).reshape(4, 3, 3)
    lines = draw(Image.fromarray(pixels), 80, 40).split("\n")
    assert [line.plain for line in lines] == [UPPER * 3] * 2
    for y, line in enumerate(lines):
        for x, span in enumerate(line.spans):
            above, below = span.style.color.triplet, span.style.bgcolor.triplet
            assert tuple(above) == tuple(pixels[2 * y, x].tolist())
            assert tuple(below) == tuple(pixels[2 * y + 1, x].tolist())


@pytest.mark.parametrize(
    ("size", "width", "height", "wanted"),
    [
        ((80, 80), 120, 40, (40, 40)),
        ((80, 80), 30, 40, (30, 30)),
        ((80, 80), 120, 10, (20, 20)),
        ((80, 80), 120, -5, (4, 4)),
        ((160, 80), 120, 40, (40, 20)),
        ((10, 10), 120, 40, (10, 10)),
        ((1, 900), 120, 40, (1, 80)),
    ],
)
def test_it_fits(size, width, height, wanted):
    assert fit(size, width, height) == wanted


def test_answers_do_not_command_the_terminal():
    text = shown(120, make_asked([(" \x1b[2J\x07bad [red]x[/red]", 1.0)] * 2))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]x[/red]" in text

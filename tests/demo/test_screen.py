"""The demo in terminals: pictures where there are colours, every number at every width."""

import io
import re

import numpy as np
import pytest
from demo.made import MEASURED, SAID, make_asked
from PIL import Image
from rich.cells import cell_len
from rich.console import Console

from lookback.cli.terminal import UPPER, can_draw, draw, fit
from lookback.demo.asked import RULE
from lookback.demo.screen import how_chosen, show


def shown(width, asked=None, measured=MEASURED, **settings):
    file = io.TextIOWrapper(io.BytesIO(), encoding=settings.pop("encoding", "utf-8"))
    out = Console(file=file, width=width, height=50, **settings)
    show(out, asked or make_asked(), how_chosen(3, measured), measured)
    file.flush()
    return file.buffer.getvalue().decode(file.encoding)


COLOURS = {"force_terminal": True, "color_system": "truecolor"}


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_number_shows_at_every_width(width):
    asked = make_asked()
    lines = shown(width, asked).splitlines()
    assert max(map(cell_len, lines)) <= width
    ranked = asked.candidates.rank("lookback")
    certainty = asked.candidates.scores("self_certainty")
    firsts = [c for c in ranked if c.index != 2 or ranked.index(c) == 0]  # 0 and 2 are equal
    rows = [line for line in lines if re.match(r" *\d+ .*\d\.\d\d ", line)]
    assert len(rows) == len(SAID) - 1 == len(firsts)
    for row, one in zip(rows, firsts, strict=True):
        cells = row.split()
        assert cells[0] == str(ranked.index(one) + 1)
        if not one.tokens:
            assert cells[1:5] == ["–"] * 4
            continue
        numbers = [float(cell) for cell in cells[1:5]]
        means = [one.log_prob.mean(), one.visual_lookback.mean()]
        wanted = [one.score, certainty[one.index], *means]
        np.testing.assert_allclose(numbers, wanted, atol=0.0051)
        assert f"{asked.quality[one.index]:.2f}" in row
        assert one.text.split()[0] in row


@pytest.mark.parametrize("width", [60, 120])
def test_what_a_reader_is_told(width):
    text = " ".join(shown(width).split())
    asked = make_asked()
    names = ("LookBack", "mean log p", "self-certainty", "random")
    for name, pick in zip(names, asked.picks.values(), strict=True):
        verdict = asked.verdict(pick.index)
        assert f"{name} picks: {verdict.mark} {verdict.words}" in text
        assert pick.text in text
    assert f"{asked.greedy_verdict.mark} {asked.greedy_verdict.words} {asked.greedy}" in text
    assert "3 of 6 answers are right" in text
    assert (
        "vqa caption pairs amber LookBack 69.3 ±2.7 70.3 ±2.7 71.3 ±2.7 72.3 ±2.7 mean log p"
        in text
    )
    assert "self-certainty 59.6 ±3.0 59.6 ±3.5 59.6 ±4.0 59.6 ±4.5 random 59.6" in text
    assert "greedy answer 68.0 ±2.8" in text
    assert "250 held-out items" in text
    for lead in ("mean log p +0.2 [-0.3, +0.8]", "greedy answer +0.5 [-1.6, +2.4]"):
        assert lead in text
    assert re.findall(r"lookback demo --task (\S+)", text) == ["scenes-caption"]
    assert "+0.2 [-1.3, +1.6] points" in text
    assert how_chosen(3, MEASURED) in text
    assert "other weights" in " ".join(shown(width, measured="other weights").split())


def test_how_the_item_was_picked_is_the_rule_with_its_counts():
    told = how_chosen(3, MEASURED)
    assert told.startswith(RULE)
    assert re.findall(r"\d+", told.removeprefix(RULE)) == ["3", "88", "250", "67", "21"]
    assert RULE not in how_chosen(None, MEASURED)


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
def test_no_picture_where_it_could_not_be_seen(settings, monkeypatch):
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
    assert "\x1b[38;2;" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(cell_len, plain.splitlines())) <= width
    beside = [line for line in plain.splitlines() if UPPER in line and "picks:" in line]
    assert bool(beside) == (width == 120)
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
    text = shown(120, make_asked([(" \x1b[2J\x07bad [red]x[/red]", 1.0, ())] * 2))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]x[/red]" in text

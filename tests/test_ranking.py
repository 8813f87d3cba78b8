"""Ranked answers at every width: numbers always show, answers wrap, the best stands on top.

What is expected lies in tests/golden, for people to read; `LOOKBACK_GOLDEN=write` writes it again.
"""

import io
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from lookback.cli.ranking import print_ranking
from lookback.signals import Candidate, Signals

GOLDEN = Path(__file__).parent / "golden"
LONG = "The picture shows a kitchen with two red cups on a wooden table, a window behind it"
ANSWERS = {
    "short": ["two red cups", "a cup", "", "cups"],
    "long": [f"{LONG}, {'and a cat that sleeps ' * 4}near a door.", LONG, "x" * 130],
    "cjk": [
        "一张桌子上有两个红色的杯子，旁边有一只猫。" * 4,
        "赤いカップが二つあります",
        "컵 두 개",
    ],
    "emoji": ["two 🍒 and a 👩‍🍳 " * 9, "☕☕", "a ☕ on the 🪑"],
}


def candidates(texts):
    made = []
    for i, text in enumerate(texts):
        tokens = re.findall(r"\s*\S+", text)
        numbers = np.random.default_rng(i).random((4, len(tokens)))
        numbers[0] *= -10
        signals = Signals(np.arange(len(tokens)), tokens, *numbers)
        made.append(Candidate(10 * i, text, signals, "end", -1.5 * i if tokens else np.nan))
    return sorted(made, key=lambda one: -np.inf if one.score is np.nan else one.score, reverse=True)


def pruned(texts):
    """Every second one of the candidates was ended, and ranks last."""
    made = candidates(texts)
    ended = [replace(one, finish="pruned", score=np.nan) for one in made[1::2]]
    return made[::2] + ended


def printed(texts, width, colours=None, make=candidates):
    out = io.StringIO()
    shown = Console(file=out, width=width, color_system=colours, force_terminal=bool(colours))
    print_ranking(shown, make(texts), "lookback")
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("kind", ANSWERS)
def test_as_it_was_read_by_people(kind, width):
    compare(printed(ANSWERS[kind], width), GOLDEN / f"ask-{kind}-{width}.txt")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_pruned_ones_come_last_and_say_so(width):
    texts = [LONG, "two red cups", "a cup on the", "", "a long table with"]
    found = printed(texts, width, make=pruned)
    compare(found, GOLDEN / f"ask-pruned-{width}.txt")
    assert found.count("pruned after") == 2
    assert max(map(cell_len, found.split("\n"))) <= width
    coloured = printed(texts, width, "truecolor", make=pruned)
    dim = [line for line in coloured.split("\n") if "pruned after" in line]
    assert all("\x1b[2m" in line for line in dim)


def compare(found, golden):
    if os.environ.get("LOOKBACK_GOLDEN") == "write":
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 60, 71, 72, 100, 200])
@pytest.mark.parametrize("kind", ANSWERS)
def test_nothing_is_lost_and_nothing_is_too_wide(kind, width):
    found = printed(ANSWERS[kind], width)
    assert max(map(cell_len, found.split("\n"))) <= width
    for rank, one in enumerate(candidates(ANSWERS[kind]), start=1):
        if len(one.signals):
            numbers = one.score, one.log_prob.mean(), one.visual_lookback.mean()
            row = rf"^ *{rank} +{' +'.join(f'{x:.4f}' for x in numbers)} +{len(one.signals)}\b"
            assert re.search(row, found, re.MULTILINE)
    letters = re.sub(r"\s", "", found)
    for text in ANSWERS[kind]:
        if len(text) < 20:
            assert re.sub(r"\s", "", text) in letters
    best = candidates(ANSWERS[kind])[0].text
    assert letters.startswith("bestbylookback:" + re.sub(r"\s", "", best))


def test_the_best_answer_is_shaded_where_there_are_colours():
    plain, shaded = printed(ANSWERS["long"], 80), printed(ANSWERS["long"], 80, "truecolor")
    assert "\x1b[30;48;2;" in shaded  # black on a colour of 24 bits
    assert "shaded by A" in shaded
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shaded).replace(", shaded by A", "")
    assert [line.rstrip() for line in bare.split("\n")] == plain.split("\n")
    assert "48;" not in printed(ANSWERS["long"], 80, "standard")


def test_a_terminal_takes_no_orders_from_an_answer():
    found = printed(["red\x1b[2J\x07 cup", "b"], 80, "truecolor")
    assert "\x1b[2J" not in found
    assert "\x07" not in found

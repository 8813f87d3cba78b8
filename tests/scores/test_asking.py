"""USC and the judge: what they ask, how they read replies, whom they pick."""

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers import make_candidates

from lookback.conversations import Conversation
from lookback.engines import Engine, Identity
from lookback.families import GENERIC
from lookback.scores.judges import judge_choice, judge_prompt, usc_choice, usc_prompt
from lookback.signals import Asked

TEXTS = ["a red cup", "a blue cup", "a green cup", "a cat"]


class Replies(Engine):
    """An engine that answers as a function of the prompt, and remembers what it was asked."""

    name = "replies"
    family = GENERIC
    abilities = frozenset({"generate"})

    def __init__(self, reply):
        self.reply = reply
        self.asked = []

    def identity(self):
        return Identity("replies", "replies", "Replies")

    def generate(self, image, prompts, **settings):
        self.asked += [(image, prompt) for prompt in prompts]
        return [self.reply(prompt) for prompt in prompts]


def asking(reply, texts=TEXTS):
    engine = Replies(reply)
    return replace(
        make_candidates(texts=texts), asked=Asked(engine, Conversation.of("picture", "what?"))
    ), engine


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("The most consistent response is Response 2", 2),
        ("The most consistent response is Response 2.", 2),
        ("the most consistent response is **response 3**", 3),
        ("Response 0 and Response 1 agree, so I select Response 1.", 1),
        ("Response #3", 3),
        ("Response: 1", 1),
        ("Response [2]", 2),
        ("2", 2),
        (" 3.\n", 3),
        ("Response 9", None),  # out of range
        ("Response 9, no: Response 1. Response 44!", 1),
        ("I like 2 of them", None),
        ("There are 3 cups.", None),
        ("Response two", None),
        ("", None),
        ("\n\n", None),
        ("Response -1", None),
    ],
)
def test_usc_replies(reply, choice):
    assert usc_choice(reply, 4) == choice


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("A", 0),
        ("B", 1),
        ("b", 1),
        ("(B)", 1),
        ("**A**", 0),
        ("A.", 0),
        ("B: it names the color", 1),
        ("B\nBecause A is wrong.", 1),
        ("Response B", 1),
        ("Response A is more accurate.", 0),
        ("The answer is B.", 1),
        ("I would choose B", 1),
        ("Response A is better than Response B", None),
        ("A cup is on the table.", None),  # the article
        ("A cup is on the table, so B", 1),
        ("Both are fine", None),
        ("neither", None),
        ("", None),
        ("Apple", None),
        ("A or B", None),
        ("A and B are both fine", None),
        ("A is more accurate.", 0),
        ("B or A", None),
    ],
)
def test_judge_replies(reply, choice):
    assert judge_choice(reply) == choice


def test_prompts_hold_question_and_responses():
    prompt = usc_prompt("What is it?", [" one\n", "two"])
    assert "What is it?" in prompt
    assert "Response 0: one\n" in prompt
    assert "Response 1: two\n" in prompt
    assert "The most consistent response is Response X" in prompt
    prompt = judge_prompt("What {is} it?", "one", "{two}")
    assert "What {is} it?" in prompt  # braces of users' texts are left alone
    assert prompt.index("Response A: one") < prompt.index("Response B: {two}")


def numbered(prompt):
    """The responses of a USC prompt by their number."""
    return {text: int(i) for i, text in re.findall(r"Response (\d+): (.+)", prompt)}


def test_usc_averages_runs_that_differ_in_order():
    cands, engine = asking(lambda p: f"Response {numbered(p)['a green cup']}")
    assert cands.scores("usc").tolist() == [0, 0, 1, 0]
    orders = [tuple(numbered(prompt)) for _, prompt in engine.asked]
    assert len(orders) == 3
    assert len(set(orders)) > 1
    assert all(image == ["picture"] for image, _ in engine.asked)
    # Always the first place: another candidate in every order.
    cands, engine = asking(lambda p: "Response 0")
    scores = cands.scores("usc", m=3)
    first = [TEXTS.index(next(iter(numbered(prompt)))) for _, prompt in engine.asked]
    np.testing.assert_allclose(scores, np.bincount(first, minlength=4) / 3)


def test_usc_falls_back_to_the_first_candidate():
    cands, _ = asking(lambda p: "I cannot choose")
    assert cands.scores("usc", m=5).tolist() == [1, 0, 0, 0]
    with pytest.raises(ValueError, match="m = 0"):
        cands.rank("usc", m=0)


def test_the_judge_plays_n_minus_1_games_and_the_winner_stays():
    favourite = "a green cup"

    def reply(prompt):
        _first, second = re.findall(r"Response [AB]: (.+)", prompt)
        return "B" if second == favourite else "A"

    cands, engine = asking(reply)
    assert cands.best("judge").text == favourite
    assert len(engine.asked) == 3
    games = [tuple(re.findall(r"Response [AB]: (.+)", prompt)) for _, prompt in engine.asked]
    assert games == [(TEXTS[0], TEXTS[1]), (TEXTS[0], TEXTS[2]), (TEXTS[2], TEXTS[3])]
    assert cands.scores("judge").tolist() == [1, 0, 3, 0]


def test_the_judge_keeps_the_winner_if_the_reply_says_nothing():
    cands, _ = asking(lambda p: "who knows")
    assert cands.best("judge").index == 0
    one, engine = asking(lambda p: "A", ["alone"])
    assert one.best("judge").index == 0
    assert not engine.asked


@pytest.mark.parametrize("name", ["usc", "judge"])
def test_the_image_can_be_left_out(name):
    cands, engine = asking(lambda p: "A")
    cands.rank(name, image=False)
    assert {image for image, _ in engine.asked} == {None}


@pytest.mark.parametrize("name", ["usc", "judge", "vauq", "clipscore"])
def test_candidates_from_a_file_cannot_look_again(name):
    with pytest.raises(ValueError, match="neither engine nor image"):
        make_candidates().rank(name)


def test_empty_responses_are_not_shown_and_never_win():
    engine = Replies(lambda p: "I cannot choose")
    cands = replace(
        make_candidates(lengths=(0, 2, 2)), asked=Asked(engine, Conversation.of(None, "what?"))
    )
    scores = cands.scores("usc")
    assert np.isnan(scores[0])
    assert scores[1:].tolist() == [1, 0]
    assert "text 0" not in engine.asked[0][1]

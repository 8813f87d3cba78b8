"""Messy answers: what counts as right, wrong and unclear."""

import pytest

from lookback.scenes.facts import matches, verdict

COLOR = {"kind": "color", "answer": "red", "about": {"category": "cup"}}
COUNT = {"kind": "count", "answer": "2", "about": {"category": "cup"}}
NONE = {"kind": "count", "answer": "0", "about": {"category": "cup"}}
ALL = {"kind": "count", "answer": "4", "about": {"category": None}}
WHERE = {"kind": "where", "answer": "top left", "about": {"category": "cup"}}
MIDDLE = {"kind": "where", "answer": "middle left", "about": {"category": "cup"}}
WHAT = {"kind": "what", "answer": "cup", "about": {"place": "top left"}}
SIZE = {"kind": "size", "answer": "large", "about": {"category": "cup"}}


@pytest.mark.parametrize(
    ("truth", "response"),
    [
        *((COLOR, r) for r in ("red", "Red.", "RED!", "It is red.", "It's red", "The cup is red.")),
        *((COLOR, r) for r in ("a red cup", "red, not blue", "The mug is red.", "Color: red")),
        (COLOR, "The cup is red and the ball is blue."),
        (COLOR, "There is a red cup next to a blue ball."),
        *((COUNT, r) for r in ("2", "two", "Two cups.", "There are two.", "I see 2 cups here")),
        (COUNT, "There are two cups: a red cup and a blue cup."),
        (COUNT, "There are two cups and one key."),
        *((NONE, r) for r in ("0", "None.", "no cups", "There are no cups.", "I cannot see a cup")),
        *((ALL, r) for r in ("four", "There are 4 things.", "Four objects: two cups, two keys.")),
        *((WHERE, r) for r in ("top left", "In the top left corner.", "upper left")),
        *(
            (WHERE, r)
            for r in ("The cup is at the top left of the picture", "it's at the top left")
        ),
        (WHERE, "The cup is at the top left and the key is at the center."),
        *((MIDDLE, r) for r in ("left", "On the left.", "middle left", "on the left side")),
        *((WHAT, r) for r in ("cup", "A cup.", "a mug", "There is a red cup.", "It is a cup.")),
        (WHAT, "A cup is at the top left, and a key is at the center."),
        (WHAT, "The thing at the top left is a cup."),
        *((SIZE, r) for r in ("large", "It is big.", "The cup looks large.")),
    ],
)
def test_right(truth, response):
    assert matches(response, truth)


@pytest.mark.parametrize(
    ("truth", "response"),
    [
        *((COLOR, r) for r in ("", "blue", "red or blue", "not red", "It is not red.", "redish")),
        *((COLOR, r) for r in ("The ball is red.", "The cup is red and blue.", "Yes.", "a cup")),
        *((COUNT, r) for r in ("", "three", "two or three", "22", "cups", "two balls", "no")),
        *((NONE, r) for r in ("one", "a cup", "There is no ball.")),
        *((ALL, r) for r in ("five", "two cups and two keys", "four cups")),
        *((WHERE, r) for r in ("top", "left", "top left or top right", "top right", "")),
        *((WHERE, r) for r in ("left of the house", "not at the top left", "The key: top left")),
        *((WHAT, r) for r in ("", "a key", "a cup or a key", "no cup", "A cup is at the center.")),
        *((SIZE, r) for r in ("small", "small or large", "medium")),
    ],
)
def test_wrong(truth, response):
    assert not matches(response, truth)


IS_RED = {"kind": "is_color", "claim": {"category": "cup", "color": "red"}}
EXISTS = {"kind": "exists", "claim": {"category": "cup"}}
RED_EXISTS = {"kind": "exists", "claim": {"category": "cup", "color": "red"}}
IS_AT = {"kind": "is_at", "claim": {"category": "cup", "place": "top left"}}
FOUR = {"kind": "is_count", "claim": {"category": None, "count": 4}}


@pytest.mark.parametrize(
    ("truth", "response", "expected"),
    [
        *((IS_RED, r, True) for r in ("yes", "Yes.", "YES!", "Yes, it is.", "Yes, it is red.")),
        *((IS_RED, r, True) for r in ("The cup is red.", "It is red.", "The answer is yes.")),
        *((IS_RED, r, False) for r in ("no", "No.", "Nope", "No, it is blue.", "The cup is blue.")),
        *((IS_RED, r, False) for r in ("The cup is not red.", "It isn't red.", "No, not red.")),
        *((IS_RED, r, None) for r in ("", "Maybe.", "Yes and no.", "Yes or no", "No. Yes.")),
        *(
            (IS_RED, r, None)
            for r in ("Yes, it is blue.", "No, the cup is red.", "The ball is red.")
        ),
        *((IS_RED, r, None) for r in ("I am not sure.", "I cannot tell.", "There is a cup.")),
        (IS_RED, "No, there is no cup.", False),
        (IS_RED, "The cup is red. The cup is blue.", None),
        *((EXISTS, r, True) for r in ("Yes, there is a cup.", "There is a red mug.", "a cup")),
        *((EXISTS, r, False) for r in ("There is no cup.", "No cup here.", "I don't see a cup.")),
        (EXISTS, "No, but there is a ball.", False),
        (EXISTS, "The cup is not in the picture.", False),
        *((EXISTS, r, None) for r in ("There is a ball.", "Yes, there is no cup.", "Hello.")),
        (RED_EXISTS, "Yes, there is a red cup and a blue cup.", True),
        (RED_EXISTS, "No, there is a blue cup.", False),
        (RED_EXISTS, "There is no red cup.", False),
        (RED_EXISTS, "There is a cup.", None),
        (IS_AT, "The cup is in the top left corner.", True),
        (IS_AT, "No, it is at the center.", False),
        (IS_AT, "The cup is not at the top left.", False),
        (IS_AT, "Yes, it is at the center.", None),
        (FOUR, "Yes, there are four things.", True),
        (FOUR, "There are 3 things.", False),
        (FOUR, "There are four cups.", None),
    ],
)
def test_yes_no_and_unclear(truth, response, expected):
    assert verdict(response, truth) is expected

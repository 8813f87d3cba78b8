"""The parser, on sentences whose meaning is written beside them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookback.scenes.facts import told_facts
from lookback.scenes.parse import LEXICON, parse
from lookback.scenes.world import CATEGORIES

CASES = {
    "A small red cup.": "cup; red cup; small cup",
    "There are two big red apples and an old key.": "apple; red apple; large apple; key",
    "The cup is red and the ball is blue.": "cup; red cup; ball; blue ball",
    "The cup is red and small.": "cup; red cup; small cup",
    "The cup looks big.": "cup; large cup",
    "The color of the cup is red.": "cup; red cup",
    "A cup that is red.": "cup; red cup",
    "The cup has a red color.": "cup; red cup",
    "A mug, two ships and some parasols.": "cup; boat; umbrella",
    "A crescent moon over a sailing boat.": "moon; boat; moon above boat",
    "A red-colored cup.": "cup; red cup",
    # places
    "A cup at the top left and a key in the middle.": "cup; cup @ top left; key; key @ center",
    "At the top left, there is a cup.": "cup; cup @ top left",
    "In the bottom right corner is a red cup.": "cup; red cup; cup @ bottom right",
    "The cup is in the upper right.": "cup; cup @ top right",
    "A cup can be seen at the middle left of the picture.": "cup; cup @ middle left",
    "On the left of the picture is a cup.": "cup; cup @ middle left",
    "The cup on the right side is red.": "cup; red cup; cup @ middle right",
    "The thing at the top center is a red cup.": "cup; red cup; cup @ top center",
    "There is a cup. It is at the bottom center.": "cup; cup @ bottom center",
    "There's a cup, and at the center there's a key.": "cup; key; key @ center",
    # relations
    "The cup is left of the house.": "cup; house; cup left of house",
    "To the left of the house, there is a red car.": "house; car; red car; car left of house",
    "Right of the house is a car.": "house; car; house left of car",
    "A key below the red cup.": "key; cup; red cup; cup above key",
    "The cup next to the ball is red.": "cup; red cup; ball; ball next to cup",
    "The ball is beside the cup.": "cup; ball; ball next to cup",
    # what is denied is not told
    "There is no cup.": "",
    "There is a cup but no red ball.": "cup",
    "I cannot see a cup. There is a key.": "key",
    "The picture does not show a cup.": "",
    "The cup isn't red.": "cup",
    "The cup is not at the top left, it is at the center.": "cup; cup @ center",
    "The cup is not red but blue.": "cup; blue cup",
    "The cup is not left of the house.": "cup; house",
    "No, the cup is blue.": "cup; blue cup",
    "The cup is not in the picture.": "",
    # nothing to tell
    "": "",
    "Lorem ipsum dolor.": "",
    "There are four things in the picture.": "",
    "Red.": "",
}


def written(fact):
    kind, category, *value = fact
    if kind == "object":
        return category
    if kind in ("color", "size"):
        return f"{value[0]} {category}"
    if kind == "place":
        return f"{category} @ {value[0]}"
    return f"{category} {kind} {value[0]}"


@pytest.mark.parametrize("text", CASES)
def test_facts_of_a_sentence(text):
    expected = {fact for fact in CASES[text].split("; ") if fact}
    assert {written(fact) for fact in told_facts(parse(text))} == expected


@pytest.mark.parametrize(
    ("text", "count", "exact"),
    [
        ("a cup", 1, False),
        ("one cup", 1, True),
        ("3 cups", 3, True),
        ("no cups", 0, True),
        ("the cup", None, False),
        ("cups", None, False),
        ("a single cup", 1, True),
    ],
)
def test_counts(text, count, exact):
    (mention,) = parse(text).mentions
    assert (mention.category, mention.count, mention.exact) == ("cup", count, exact)


def test_what_is_denied_is_kept_apart():
    (cup,) = parse("The cup is not red.").mentions
    assert (cup.said, cup.denied, cup.negated) == ({}, {"color": ["red"]}, False)
    (relation,) = parse("The cup is not above the key.").relations
    assert relation.denied


def test_bare_answers_speak_of_something_unnamed():
    (bare,) = parse("Red or blue.").mentions
    assert (bare.category, bare.said) == (None, {"color": ["red", "blue"]})
    (bare,) = parse("In the top left corner").mentions
    assert bare.said == {"place": ["top left"]}
    assert [m.count for m in parse("Two or three.").mentions] == [2, 3]


@pytest.mark.parametrize("name", CATEGORIES)
def test_every_noun_plural_and_synonym_is_known(name):
    category = CATEGORIES[name]
    for noun in (name, category.plural, *category.synonyms):
        assert parse(f"There is a {noun}.").categories() == {name}
        assert parse(f"THERE ARE THREE {noun.upper()}!").categories() == {name}


@given(st.lists(st.sampled_from([*LEXICON, "zebra", "don't", "'s"]), max_size=25), st.text())
def test_no_text_breaks_the_parser(words, noise):
    """Whatever stands there, only what is named is found, and the same in capitals."""
    for text in (" ".join(words), noise):
        found = parse(text)
        assert found.categories() <= set(CATEGORIES)
        assert all(m.category is None or m.category in CATEGORIES for m in found.mentions)
    text = " ".join(words)
    assert parse(text.upper()).categories() == parse(text).categories()
    assert parse("zebra don't 's " * len(words)).mentions == []

"""The table of COCO's objects, and the rules that find them in a text."""

import pytest
from shared_data import json_lines, shared

from lookback.benchmarks.coco_objects import (
    CATEGORIES,
    CATEGORY_OF,
    PAIRS,
    located,
    read_synonyms,
)
from lookback.benchmarks.english import Readings

# What stands in the original file but matches no text: see `coco_objects`. The last three are
# leftovers of its singularizer, and a name of three words where only two are ever joined.
NEVER_MATCH = {" cheesecake", " motor bike", "iPhone", "knive", "phon", "stove top oven"}


lemmas = Readings(lambda words: [word.lemma for word in words])


def mentioned(lemmas, category_of=CATEGORY_OF):
    return [category for category, _, _ in located(lemmas, category_of)]


def objects(text, category_of=CATEGORY_OF):
    return mentioned(lemmas(text.lower()), category_of)


def test_the_table_has_80_categories_which_name_themselves():
    assert len(CATEGORIES) == 80
    assert set(CATEGORY_OF.values()) == set(CATEGORIES)
    assert all(CATEGORY_OF[category] == category for category in CATEGORIES)
    assert all(" " not in word or word in PAIRS for word in CATEGORY_OF)


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_category_is_found_by_its_name(category):
    assert objects(f"There is a {category} in the picture.") == [category]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # Plurals and synonyms, every mention in the order of the text
        ("Two women, three men and a puppy.", ["person", "person", "dog"]),
        ("Knives, scissors and wine glasses.", ["knife", "scissors", "wine glass"]),
        ("A taxi passes a lorry and a taxi.", ["car", "truck", "car"]),
        # Pairs
        ("He eats a hot dog.", ["hot dog"]),
        ("Hot dogs on the grill.", ["hot dog"]),
        ("A hot, tired dog.", ["dog"]),
        ("A teddy bear beside a bear.", ["teddy bear", "bear"]),
        ("Potted plants near a street light.", ["potted plant", "traffic light"]),
        ("The dining table has a laptop computer.", ["dining table", "laptop"]),
        ("He holds a tennis racket and a mobile phone.", ["tennis racket", "cell phone"]),
        ("A man wearing a bow tie.", ["person", "tie"]),
        ("A sports ball lies there.", ["sports ball"]),
        # Young animals, and vehicles for passengers, are not people
        ("A baby elephant and an adult zebra.", ["elephant", "zebra"]),
        ("A baby holds a cub.", ["person"]),
        ("A baby cub.", []),
        ("A passenger train and a passenger jet.", ["train", "airplane"]),
        ("A passenger waits.", ["person"]),
        # Toilet seats are no chairs
        ("A white toilet seat.", ["toilet"]),
        ("The toilet has its seat up.", ["toilet"]),
        ("A seat by the window.", ["chair"]),
        ("The toilet stands near a chair.", ["toilet", "chair"]),
        # Pairs of no category
        ("A train on the train tracks.", ["train"]),
        ("The player slides into home plate.", ["person"]),
        # Verbs and adjectives count as their lemmas do
        ("They are seated.", ["chair"]),
        ("An orange sign.", ["orange"]),
        # Hyphens join
        ("A man-made lake.", []),
        # What never matches in the public code
        ("A cheesecake.", []),
        ("An iPhone.", []),
        ("A motor bike.", []),
        # Not in the vocabulary
        ("A pedestrian with a hat.", []),
        ("", []),
    ],
)
def test_objects_by_hand(text, found):
    assert objects(text) == found


def test_wine_glas_is_a_wine_glass():
    assert mentioned(["wine", "glas"]) == ["wine glass"]


def test_pairs_are_joined_from_the_left():
    assert mentioned(["stop", "light", "bow", "tie", "bow"]) == ["traffic light", "tie", "tie"]
    assert mentioned(["baby", "bear", "cub"]) == ["bear"]


def test_our_table_agrees_with_the_original_file_on_real_captions():
    folder = shared("chair")
    original = read_synonyms(folder / "synonyms.txt")
    assert {word for word in original if word not in CATEGORY_OF} == NEVER_MATCH
    assert all(original[word] == category for word, category in CATEGORY_OF.items())
    texts = [row["caption"] for path in sorted(folder.glob("*.jsonl")) for row in json_lines(path)]
    assert len(texts) == 1500
    lemmas.prepare(text.lower() for text in texts)
    assert all(objects(text) == objects(text, original) for text in texts)


def test_an_original_file_is_read_as_the_public_code_reads_it(tmp_path):
    path = tmp_path / "synonyms.txt"
    path.write_text("cake,  cheesecake, pie \n\nperson, man, iPhone\n")
    assert read_synonyms(path) == {
        "cake": "cake",
        " cheesecake": "cake",
        "pie": "cake",
        "person": "person",
        "man": "person",
        "iPhone": "person",
    }
    assert objects("A man with pie, cheesecake and an iPhone.", read_synonyms(path)) == [
        "person",
        "cake",
    ]


def test_a_file_of_another_form_is_refused(tmp_path):
    path = tmp_path / "synonyms.txt"
    path.write_text("person, man\nhat; cap\n")
    with pytest.raises(ValueError, match="line 2: 'hat; cap' is not one of COCO's 80 categories"):
        read_synonyms(path)

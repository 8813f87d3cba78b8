"""Which tokens spell a word: sub-words, marks, scripts without blanks, characters over tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookback.looks.words import find_phrase, find_words


def found(tokens):
    return [(word.text, word.tokens.start, word.tokens.stop) for word in find_words(tokens)]


def content(*tokens):
    return [word.text for word in find_words(tokens) if word.content]


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([" A", " red", " cup", "."], [("A", 0, 1), ("red", 1, 2), ("cup", 2, 3)]),
        (["The", " t", "a", "b", "le", "."], [("The", 0, 1), ("table", 1, 5)]),
        (["two\n", "dogs"], [("two", 0, 1), ("dogs", 1, 2)]),
        (["a b", " c"], [("a", 0, 1), ("b", 0, 1), ("c", 1, 2)]),  # one token, two words
        (["it", "'", "s", " black", "-", "and-white"], [("it's", 0, 3), ("black-and-white", 3, 6)]),
        (["'a'", " -", " b"], [("a", 0, 1), ("b", 2, 3)]),
        (["3", ".", "5 m, 1,000."], [("3.5", 0, 3), ("m", 2, 3), ("1,000", 2, 3)]),
        (["na", "i", "\u0308", "ve"], [("nai\u0308ve", 0, 4)]),  # an accent as a mark of its own
        (["हिन्", "दी", " में"], [("हिन्दी", 0, 2), ("में", 2, 3)]),
        ([" ...", "!", " \U0001f600"], []),
        (["", "", "\u2603", " snow"], [("snow", 3, 4)]),
        (["\u2615\ufe0f", " tea"], [("tea", 1, 2)]),
        ([""], []),
    ],
)
def test_words(tokens, words):
    assert found(tokens) == words


def test_without_blanks_a_token_is_a_word():
    """A character may be spread over tokens, which stand with the last of them."""
    assert found(["一个", "", "", "红", "色的", "杯子。"]) == [
        ("一个", 0, 1),
        ("红", 1, 4),
        ("色的", 4, 5),
        ("杯子", 5, 6),
    ]
    assert found(["赤い", "cup", "です"]) == [("赤い", 0, 1), ("cup", 1, 2), ("です", 2, 3)]


@pytest.mark.parametrize(
    ("phrase", "tokens"),
    [
        ("red cup", slice(1, 4)),
        ("RED  Cup", slice(1, 4)),
        (" cup", slice(2, 4)),
        ("a", slice(0, 1)),
        ("cup.", slice(2, 5)),
        ("red", slice(1, 2)),
    ],
)
def test_a_phrase(phrase, tokens):
    assert find_phrase([" A", " red", " c", "up", ".", " Red", " cups"], phrase) == tokens


@pytest.mark.parametrize("phrase", ["cu", "ed cup", "up", "blue", "", "  ", "red cup s", "c.p"])
def test_what_is_not_there_is_said_with_what_is(phrase):
    with pytest.raises(ValueError, match=r"is not in the response; its words are: A, red, cup$"):
        find_phrase([" A", " red", " c", "up", "."], phrase)


def test_many_words_are_not_all_listed():
    tokens = [f" w{i}" for i in range(50)]
    with pytest.raises(ValueError, match=r"w39 and 10 more$"):
        find_phrase(tokens, "x")


def test_phrases_in_other_scripts():
    tokens = ["一个", "", "红", "色的", "杯", "子\U0001f600", " caf", "e\u0301s"]
    assert find_phrase(tokens, "红色") == slice(1, 4)
    assert find_phrase(tokens, "杯子") == slice(4, 6)
    assert find_phrase(tokens, "\U0001f600") == slice(5, 6)
    assert find_phrase(tokens, "caf\u00e9s") == slice(6, 8)  # composed, as it was not written
    with pytest.raises(ValueError, match="not in the response"):
        find_phrase(tokens, "caf\u00e9")


def test_content():
    assert content("The", " red", " cup", " is", " on", " a", " table") == ["red", "cup", "table"]
    assert content("It's", " isn’t", " there", ", no", " two") == ["no", "two"]
    assert content("一个") == ["一个"]


@given(st.lists(st.text(max_size=4), max_size=12))
def test_any_text_has_words_that_can_be_found_again(tokens):
    written = "".join(tokens)
    end = 0
    for word in find_words(tokens):
        spelled = "".join(tokens[word.tokens])
        assert word.text in spelled
        end = written.index(word.text, end) + len(word.text)  # in order, and apart
        first = find_phrase(tokens, word.text)
        assert word.text.casefold() in "".join(tokens[first]).casefold()

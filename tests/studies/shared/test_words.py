"""Words from sub-tokens, against a reference that goes character by character."""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookback.studies import StudyError
from lookback.studies.common.words import sample_responses, token_ranges, word_means


def owners(tokens):
    """The tokens of each character of what was written; an empty token joins the next token."""
    found, waiting = [], []
    for i, token in enumerate(tokens):
        waiting.append(i)
        found += [set(waiting)] * len(token)
        if token:
            waiting = []
    return found


def reference(tokens, text, start, end):
    """The tokens of a word, by trying every place where the text may stand."""
    written = "".join(tokens)
    for shift in range(len(written) - len(text) + 1):
        if all(written[shift + i] == text[i] for i in range(len(text))):
            return sorted(set().union(*owners(tokens)[shift + start : shift + end]))
    raise AssertionError("not there")


def ranges(responses, texts, spans):
    tokens = pa.array(responses, pa.list_(pa.string()))
    return token_ranges(tokens, texts, np.array(spans).reshape(-1, 3)).tolist()


def words_of(texts):
    return [(i, *m.span()) for i, text in enumerate(texts) for m in re.finditer(r"\S+", text)]


cut = st.lists(st.text(st.sampled_from("ab é🙂ß\n."), max_size=4), max_size=8)


@given(st.lists(cut, min_size=1, max_size=4))
def test_any_cut_of_any_text(responses):
    texts = ["".join(tokens).strip() for tokens in responses]
    spans = words_of(texts)
    first = np.cumsum([0, *map(len, responses)])
    for (i, start, end), (a, b) in zip(spans, ranges(responses, texts, spans), strict=True):
        wanted = reference(responses[i], texts[i], start, end)
        assert list(range(a, b)) == [first[i] + t for t in wanted]


def test_by_hand():
    responses = [
        [" A", " tr", "ee", "-", "house", "."],
        [],
        ["", " na", "", "", "ï", "ve", " 🙂", "", ""],  # ï came from three tokens
        ["x", "y z"],  # a token that reaches over two words
    ]
    texts = ["A tree-house.", "", "naïve 🙂", "xy z"]
    spans = [(0, 0, 1), (0, 2, 12), (0, 12, 13), (2, 0, 5), (2, 6, 7), (3, 0, 2), (3, 3, 4)]
    assert ranges(responses, texts, spans) == [
        [0, 1],
        [1, 5],
        [5, 6],
        [6, 12],  # with the empty first token, since its character follows
        [12, 13],  # without the two empty ones at the end, which show no character
        [15, 17],
        [16, 17],
    ]


def test_a_text_in_other_characters():
    """A tokenizer that folds blanks and letters: what still matches is found."""
    tokens = [" two", " fi", "ne", " cats"]
    text = "two  ﬁne cats"
    spans = [(0, 0, 3), (0, 5, 8), (0, 9, 13)]
    assert ranges([tokens], [text], spans) == [[0, 1], [2, 3], [3, 4]]  # of "ﬁne" only "ne"


def test_a_word_that_was_not_written():
    found = np.array(ranges([[" a", " b"], []], ["a z", "q"], [(0, 2, 3), (0, 0, 1), (1, 0, 1)]))
    assert found[0, 0] == found[0, 1]
    assert found[2, 0] == found[2, 1]
    means = word_means(np.array([3.0, 4.0]), found)
    assert means[1] == 3
    assert np.isnan(means[[0, 2]]).all()


def test_no_words_and_no_tokens():
    assert ranges([["a"]], ["a"], []) == []
    assert ranges([[]], ["q"], [(0, 0, 1)]) == [[0, 0]]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.data())
def test_means_of_words(values, data):
    spans = []
    for _ in range(5):
        a = data.draw(st.integers(0, len(values) - 1))
        spans.append((a, data.draw(st.integers(a + 1, len(values)))))
    wanted = [sum(values[a:b]) / (b - a) for a, b in spans]
    np.testing.assert_allclose(word_means(np.array(values), np.array(spans)), wanted, atol=1e-9)


def test_drawing():
    which = np.array([3, 1, 9, 7])
    assert sample_responses(which, 4).tolist() == [1, 3, 7, 9]
    two = sample_responses(which, 2).tolist()
    assert two == sample_responses(which, 2).tolist() == sorted(two)
    assert len(set(two)) == 2
    assert set(two) < set(which.tolist())
    many = sample_responses(np.arange(1000), 100)
    assert len(set(many.tolist())) == 100
    assert many.min() < 100
    assert many.max() > 900  # from all over, not the first
    for nothing in (sample_responses, lambda a, b: sample_responses(which, 0)):
        with pytest.raises(StudyError, match="no responses"):
            nothing(np.array([], dtype=int), 5)

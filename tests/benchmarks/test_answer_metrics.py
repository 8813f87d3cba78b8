"""Metrics by name: values worked out by hand, and what is said of a user's own that fails."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

import lookback
from lookback.benchmarks.metrics import METRICS, MetricError


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(METRICS, "entries", dict(METRICS.all()))


def value(name, response, answers, question=""):
    return METRICS.get(name)(response, answers, question)


@pytest.mark.parametrize(
    ("name", "response", "answers", "expected"),
    [
        ("exact", "The Cup.", ["a cup"], 1),
        ("exact", "a red cup", ["cup"], 0),
        ("exact", "dog", ["cat", "dog"], 1),
        ("exact", "3.5", ["35"], 0),
        ("exact", "", ["cup"], 0),
        ("contains", "There is a red cup!", ["Red Cup"], 1),
        ("contains", "There is a cupboard.", ["cup"], 0),
        ("contains", "a cup that is red", ["red cup"], 0),
        ("contains", "two dogs", ["cat", "dogs"], 1),
        ("vqa", "red", ["red"], 1),
        ("vqa", "red", ["red", "blue"], 1 / 2),
        ("vqa", "red", ["red", "blue", "green"], 1 / 3),
        ("vqa", "red", ["red", "red", "green", "blue"], 2 / 3),
        ("vqa", "red", ["red"] * 4 + ["blue"], 1),
        ("vqa", "Two", ["two"], 1),
        ("vqa", "2", ["Two", "Two"], 1),
        ("vqa", "It is red.", ["red"] * 10, 1),
        ("token_f1", "the cat sat", ["a cat sat"], 1),
        ("token_f1", "cat sat on mat", ["cat sat"], 2 * (2 / 4) * 1 / (2 / 4 + 1)),
        ("token_f1", "cat cat cat", ["cat dog"], 2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2)),
        ("token_f1", "cat", ["dog", "a cat!"], 1),
        ("token_f1", "fish", ["dog", "cat"], 0),
        ("token_f1", "", ["dog"], 0),
        ("token_f1", "the", ["a"], 1),  # as SQuAD's: both are empty
        ("choice", "B", ["B"], 1),
        ("choice", "(B)", ["b"], 1),
        ("choice", "The answer is B", ["B"], 1),
        ("choice", "Option B) blue", ["(B)"], 1),
        ("choice", "C", ["B", "blue"], 0),
        ("choice", "Blue.", ["B", "blue"], 1),
        ("choice", "The answer is blue", ["B. blue"], 1),
        ("choice", "(B) blue", ["blue"], 1),
        ("choice", "C) blue", ["B", "blue"], 0),  # the letter decides
        ("choice", "A dog", ["A"], 0),  # the article
        ("choice", "A dog", ["C", "a dog"], 1),
        ("choice", "Vitamin C", ["B", "vitamin C"], 1),
        ("choice", "A or B", ["A"], 0),
        ("choice", "", ["A"], 0),
    ],
)
def test_values(name, response, answers, expected):
    assert value(name, response, answers) == pytest.approx(expected)


def test_vqa_reads_a_number_where_one_is_asked_for():
    assert value("vqa", "There are two dogs.", ["2"], "How many dogs are there?") == 1
    assert value("vqa", "There are two dogs.", ["2"], "What is there?") == 0


def test_token_f1_is_that_of_a_slow_count():
    words = ("red", "red", "cup", "dog")
    texts = [" ".join(chosen) for n in (1, 2, 3) for chosen in product(words, repeat=n)]
    for said, right in zip(texts, reversed(texts), strict=True):
        left = right.split()
        common = 0
        for word in said.split():
            if word in left:
                left.remove(word)
                common += 1
        expected = 2 * common / (len(said.split()) + len(right.split()))
        assert value("token_f1", said, [right]) == pytest.approx(expected)
    assert len(Counter(texts)) > 30


def test_one_of_a_users_own():
    @lookback.metric("half")
    def half(response, answers):
        """Half of everything."""
        return 0.5

    @lookback.metric("asked", needs_question=True)
    def asked(response, answers, question):
        return question == "what?"

    @lookback.metric("numpy")
    def of_numpy(response, answers):
        return np.bool_(response in answers)

    assert METRICS.get("half").about == "Half of everything."
    assert value("half", "x", ["y"]) == 0.5
    assert (value("asked", "x", ["y"], "what?"), value("asked", "x", ["y"])) == (1, 0)
    assert value("numpy", "x", ["x"]) == 1


@pytest.mark.parametrize("bad", [1.5, -0.1, math.nan, "1", None, [1]])
def test_what_is_no_number_from_0_to_1_is_one_line_that_names_the_metric(bad):
    lookback.metric("bad")(lambda response, answers: bad)
    with pytest.raises(MetricError, match=r"^metric 'bad' gave .*: it must give a number from 0"):
        value("bad", "x", ["y"])


def test_a_metric_that_fails_is_named():
    @lookback.metric("broken")
    def broken(response, answers):
        return answers[9]

    with pytest.raises(MetricError, match=r"^metric 'broken' failed: IndexError"):
        value("broken", "x", ["y"])


def test_a_metric_that_ends_the_process_is_named():
    @lookback.metric("ending")
    def ending(response, answers):
        raise SystemExit(0)

    with pytest.raises(MetricError, match=r"^metric 'ending' failed: SystemExit"):
        value("ending", "x", ["y"])


def test_names():
    with pytest.raises(ValueError, match="no metric named 'beauty'; there are: exact, contains, "):
        METRICS.get("beauty")
    with pytest.raises(ValueError, match="already a metric named 'exact'"):
        lookback.metric("exact")(lambda response, answers: 1)

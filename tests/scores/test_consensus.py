"""Consensus: the mean word-F1 with the others, against counting by hand; and the laws it obeys."""

import numpy as np
import pytest
from helpers import make_candidates
from hypothesis import given
from hypothesis import strategies as st

from lookback.benchmarks.metrics import METRICS
from lookback.scores.base import get_scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.texts import mean_agreement, pairwise_f1, rank_shares, word_f1, words_of

TEXTS = st.text(alphabet="ab cat.the ", max_size=12)
LISTS = st.lists(TEXTS, min_size=1, max_size=7)


def f1_by_hand(first, second):
    """Words crossed out one by one."""
    a, b = list(words_of(first)), list(words_of(second))
    if not a or not b:
        return float(a == b)
    left, common = list(b), 0
    for word in a:
        if word in left:
            left.remove(word)
            common += 1
    if not common:
        return 0.0
    precision, recall = common / len(a), common / len(b)
    return 2 * precision * recall / (precision + recall)


def slow(texts, weights=None):
    weights = [1.0] * len(texts) if weights is None else weights
    found = []
    for i, text in enumerate(texts):
        others = [j for j in range(len(texts)) if j != i]
        total = sum(weights[j] for j in others)
        agreed = sum(weights[j] * f1_by_hand(text, texts[j]) for j in others)
        found.append(agreed / total if others else 1.0)
    return found


def candidates(texts):
    return make_candidates(texts=list(texts))


def test_by_hand():
    """cup / red cup: 2 * 1 / 3; two red cups, one said twice."""
    texts = ["a cup", "The red cup.", "red red cup"]
    assert words_of("The red cup.") == ("red", "cup")
    np.testing.assert_allclose(
        mean_agreement(tuple(texts)),
        [(2 / 3 + 2 / 4) / 2, (2 / 3 + 4 / 5) / 2, (2 / 4 + 4 / 5) / 2],
    )


@given(LISTS)
def test_it_is_the_slow_way(texts):
    np.testing.assert_allclose(mean_agreement(tuple(texts)), slow(texts), atol=1e-12)
    weights = np.random.default_rng(len(texts)).uniform(0.1, 1, len(texts))
    np.testing.assert_allclose(
        mean_agreement(tuple(texts), weights), slow(texts, weights), atol=1e-12
    )


@given(LISTS)
def test_pairs_are_the_metric_of_answers(texts):
    token_f1 = METRICS.get("token_f1")
    expected = [[token_f1(a, [b]) for b in texts] for a in texts]
    np.testing.assert_allclose(pairwise_f1([words_of(t) for t in texts]), expected, atol=1e-12)
    assert word_f1(words_of(texts[0]), words_of(texts[-1])) == pytest.approx(expected[0][-1])


@given(LISTS, st.randoms())
def test_the_order_of_candidates_does_not_matter(texts, random):
    order = list(range(len(texts)))
    random.shuffle(order)
    shuffled = mean_agreement(tuple(texts[i] for i in order))
    # Exactly: rounding must not decide between candidates that say the same.
    np.testing.assert_array_equal(shuffled, mean_agreement(tuple(texts))[order])


@given(LISTS, TEXTS)
def test_a_duplicate_never_lowers_and_raises_what_was_not_agreed_on(texts, text):
    before = mean_agreement((*texts, text))[-1]
    after = mean_agreement((*texts, text, text))[-1]
    assert after >= before - 1e-12
    assert after > before or before > 1 - 1e-9


@given(TEXTS, st.integers(1, 6))
def test_identical_candidates_agree_wholly(text, n):
    np.testing.assert_array_equal(mean_agreement((text,) * n), 1.0)


def test_texts_of_the_same_words_are_worth_the_same():
    scores = candidates(["A red cup.", "dog", "red cup", "two dogs", "the cup, red"]).scores(
        "consensus"
    )
    assert scores[0] == scores[2] == scores[4] == scores.max()


def test_a_text_without_words_agrees_with_nothing_but_its_like():
    np.testing.assert_allclose(mean_agreement(("", "cup", "...")), [0.5, 0, 0.5])


def test_each_question_has_its_own_others():
    first, second = candidates(["a cup", "cup", "dog"]), candidates(["dog", "dog"])
    batch = SignalBatch.of(
        [c.signals for c in (*first, *second)],
        [c.text for c in (*first, *second)],
        [3, 2],
    )
    found = get_scorer("consensus").of_batch(batch, {}, {})
    np.testing.assert_allclose(found, [0.5, 0.5, 0, 1, 1])


@pytest.mark.parametrize("weights", ["lookback", "self_certainty", "mean_log_prob"])
def test_others_count_by_their_rank(weights):
    cands = candidates(["a cup", "red cup", "dog", "red dog", "cup"])
    places = cands.scores(weights).argsort().argsort()  # no ties here
    expected = slow([c.text for c in cands], (places + 1) / 5)
    np.testing.assert_allclose(cands.scores("consensus", weights=weights), expected)
    assert not np.allclose(expected, cands.scores("consensus"))


def test_equal_ranks_are_shared():
    np.testing.assert_allclose(
        rank_shares(np.array([3.0, 1, 3, 2])), [3.5 / 4, 1 / 4, 3.5 / 4, 0.5]
    )


def test_beta_adds_log_p():
    cands = candidates(["a cup", "red cup", "dog"])
    expected = cands.scores("consensus") + 0.3 * cands.scores("mean_log_prob")
    np.testing.assert_allclose(cands.scores("consensus", beta=0.3), expected)


def test_weights_that_are_none_are_named():
    with pytest.raises(ValueError, match="weights = 'votes': must be None or one of lookback,"):
        candidates(["a", "b"]).scores("consensus", weights="votes")


@given(TEXTS, TEXTS)
def test_of_two_candidates_neither_agrees_more(first, second):
    a, b = mean_agreement((first, second))
    assert a == b

"""Scorers that compare candidates: votes, chance, and the truth."""

from collections import Counter

import numpy as np
import pytest
from helpers import make_candidates

from lookback.scores.texts import normalised, same_answers

TEXTS = ["A cat.", "a dog", "Dog!", "the cat", "a bird", "cat"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The cup.", "cup"),
        ("  a\tRED   cup!\n", "red cup"),
        ("an Apple, a pear", "apple pear"),
        ("3.5 m", "3.5 m"),
        ("1,000.", "1,000"),
        ("ﬁve", "five"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("another", "another"),
        ("?!", "?!"),
        ("", ""),
        ("it's", "it s"),
    ],
)
def test_normalised_answers(text, answer):
    assert normalised(text) == answer


def test_equal_answers_share_a_number():
    assert same_answers(TEXTS) == [0, 1, 1, 0, 2, 0]


def test_majority_counts_equal_answers_and_breaks_ties_by_lookback():
    cands = make_candidates(texts=TEXTS)
    scores = cands.scores("majority")
    assert np.floor(scores).tolist() == [3, 2, 2, 3, 1, 3]
    cats = [0, 3, 5]
    by_lookback = max(cats, key=lambda i: cands.scores("lookback")[i])
    assert cands.best("majority").index == by_lookback
    assert cands.best("majority", alpha=0, lam=0).index == max(
        cats, key=lambda i: cands.scores("mean_log_prob")[i]
    )


def test_majority_of_answers_that_all_differ_is_lookback():
    cands = make_candidates()
    order = [c.index for c in cands.rank("lookback")]
    assert [c.index for c in cands.rank("majority")] == order


@pytest.mark.parametrize("p", [0, 0.5, 1, 2])
def test_borda_votes_by_hand(p):
    cands = make_candidates(texts=TEXTS)
    certainty = cands.scores("self_certainty")
    ranks = {i: r for r, i in enumerate(sorted(range(6), key=lambda i: -certainty[i]), 1)}
    votes = Counter()
    for i, answer in enumerate(same_answers(TEXTS)):
        votes[answer] += (6 - ranks[i] + 1) ** p
    expected = [votes[answer] for answer in same_answers(TEXTS)]
    np.testing.assert_allclose(cands.scores("self_certainty_borda", p=p), expected)


def test_borda_without_weights_is_the_majority():
    scores = make_candidates(texts=TEXTS).scores("self_certainty_borda", p=0)
    assert scores.tolist() == [3, 2, 2, 3, 1, 3]


def test_random_is_fixed_by_the_seed_and_differs_between_questions():
    first, second = make_candidates(texts=TEXTS), make_candidates(texts=TEXTS[::-1])
    assert first.scores("random", seed=1).tolist() == first.scores("random", seed=1).tolist()
    assert first.scores("random", seed=1).tolist() != first.scores("random", seed=2).tolist()
    assert first.scores("random").tolist() != second.scores("random").tolist()


def test_random_picks_all_alike():
    cands = make_candidates(texts=["a", "b", "c", "d"])
    picks = Counter(cands.best("random", seed=s).index for s in range(2000))
    assert all(abs(picks[i] - 500) < 100 for i in range(4))


def test_the_oracle_takes_the_best_and_needs_the_truth():
    cands = make_candidates(lengths=(3, 0, 5))
    assert cands.best("oracle", quality=[0.2, 1.0, 0.7]).index == 2  # an empty one never wins
    assert cands.best("oracle", quality=[0.5, 0.5, 0.5]).index == 0
    with pytest.raises(TypeError, match=r"'oracle' needs the truth: give quality="):
        cands.rank("oracle")
    with pytest.raises(ValueError, match="quality has 1 values for 3"):
        cands.rank("oracle", quality=[1.0])

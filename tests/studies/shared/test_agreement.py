"""Coefficients of agreement: published worked examples, slow loops over pairs, and laws."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest

from lookback.studies.common.selection import item_counts
from lookback.studies.common.votes import (
    alpha_interval,
    fleiss_kappa,
    kappa_interval,
    krippendorff_alpha,
    sign_test,
)

# Fleiss (1971), Table 1: thirty patients, six diagnoses each: depression, personality disorder,
# schizophrenia, neurosis, other.
DIAGNOSES = """
444444 222555 233335 555555 222444 113333 333355 113334 114444 555555
144444 124444 222333 144444 224445 333335 111455 111112 224444 133555
555555 244444 224555 114444 144445 222224 111155 224444 133333 555555
"""
# The example of Wikipedia's article on Fleiss' kappa: fourteen raters, ten subjects.
WIKIPEDIA = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip
# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", C: four observers, 12 units.
OBSERVERS = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
COUNTS = arrays(np.float64, st.tuples(st.integers(2, 8), st.just(3)), elements=st.integers(0, 4))


def counted(units, categories):
    """(units, categories) of strings of digits."""
    return np.array([[unit.count(c) for c in categories] for unit in units], dtype=float)


def slow_kappa(counts):
    """Pair by pair: how often two votes on a case agree, and how often two votes at random."""
    cases = [[c for c, n in enumerate(line) for _ in range(int(n))] for line in counts.tolist()]
    same = [np.mean([a == b for a, b in permutations(case, 2)]) for case in cases]
    votes = [vote for case in cases for vote in case]
    chance = np.mean([a == b for a in votes for b in votes])
    return (np.mean(same) - chance) / (1 - chance)


def slow_alpha(counts):
    """1 - D_o / D_e over the matrix of coincidences."""
    size = counts.shape[1]
    matrix = np.zeros((size, size))
    for line in counts.tolist():
        case = [c for c, n in enumerate(line) for _ in range(int(n))]
        for a, b in permutations(case, 2):
            matrix[a, b] += 1 / (len(case) - 1)
    values, total = matrix.sum(axis=0), matrix.sum()
    apart = ~np.eye(size, dtype=bool)
    expected = np.outer(values, values)[apart].sum() / (total - 1)
    return 1 - matrix[apart].sum() / expected


@pytest.mark.parametrize(("counts", "published"), [
    (counted(DIAGNOSES.split(), "12345"), 0.430),
    (np.array(WIKIPEDIA, dtype=float), 0.210),
])  # fmt: skip
def test_kappas_published_examples(counts, published):
    assert float(fleiss_kappa(counts)) == pytest.approx(published, abs=5e-4)
    assert slow_kappa(counts) == pytest.approx(published, abs=5e-4)


def test_kappa_of_each_diagnosis_as_published():
    counts = counted(DIAGNOSES.split(), "12345")
    shares = counts.mean(axis=0) / 6
    np.testing.assert_allclose(shares, [0.144, 0.144, 0.167, 0.306, 0.239], atol=6e-4)
    for category, published in enumerate((0.245, 0.245, 0.520, 0.471, 0.566)):
        one = np.stack([counts[:, category], 6 - counts[:, category]], axis=1)
        assert float(fleiss_kappa(one)) == pytest.approx(published, abs=5e-4)


def test_alphas_published_example_with_missing_votes():
    counts = counted(["".join(unit) for unit in zip(*OBSERVERS, strict=True)], "12345")
    assert (counts.shape, counts.sum()) == ((12, 5), 41)
    assert slow_alpha(counts) == pytest.approx(0.743, abs=5e-4)
    assert float(krippendorff_alpha(counts)) == pytest.approx(0.743, abs=5e-4)


@given(COUNTS)
def test_alpha_is_that_of_slow_pairs(counts):
    paired = counts[counts.sum(axis=1) >= 2]
    assume((paired.sum(axis=0) > 0).sum() > 1)
    assert float(krippendorff_alpha(counts)) == pytest.approx(slow_alpha(counts))


@given(st.integers(2, 6).flatmap(lambda m: st.lists(st.lists(
    st.integers(0, 2), min_size=m, max_size=m), min_size=2, max_size=8)))  # fmt: skip
def test_kappa_is_that_of_slow_pairs_and_alpha_follows_from_it(cases):
    votes = np.array([np.bincount(case, minlength=3) for case in cases], dtype=float)
    assume((votes.sum(axis=0) > 0).sum() > 1)
    kappa, total = float(fleiss_kappa(votes)), votes.sum()
    assert kappa == pytest.approx(slow_kappa(votes))
    # With no vote missing, alpha is kappa but for the chance to draw the same vote twice.
    alpha = 1 - (1 - kappa) * (total - 1) / total
    assert float(krippendorff_alpha(votes)) == pytest.approx(alpha)


@given(COUNTS)
def test_laws_of_alpha(counts):
    alpha = float(krippendorff_alpha(counts))
    single = np.vstack([counts, [1, 0, 0], [0, 0, 0]])  # they have no second vote to agree with
    np.testing.assert_allclose(krippendorff_alpha(single), alpha)
    np.testing.assert_allclose(krippendorff_alpha(counts[::-1, [2, 0, 1]]), alpha)
    assert np.isnan(alpha) or alpha <= 1


def test_perfect_agreement_and_none():
    perfect = np.array([[3, 0, 0], [0, 3, 0], [0, 0, 3], [3, 0, 0]], dtype=float)
    assert float(fleiss_kappa(perfect)) == float(krippendorff_alpha(perfect)) == 1
    assert kappa_interval(perfect)[0] == alpha_interval(perfect)[0] == 1
    missing = perfect - [[1, 0, 0], [0, 2, 0], [0, 0, 0], [0, 0, 0]]
    assert float(krippendorff_alpha(missing)) == 1
    with pytest.raises(ValueError, match="from 1 to 3 votes"):
        fleiss_kappa(missing)
    apart = np.array([[1, 0, 1]] * 5, dtype=float)
    assert float(fleiss_kappa(apart)) == pytest.approx(-1)
    for nothing in (perfect[:1], np.eye(3), np.zeros((2, 3))):  # one kind; one vote each; none
        assert np.isnan(fleiss_kappa(nothing))
        assert np.isnan(krippendorff_alpha(nothing))
    assert np.isnan(alpha_interval(np.eye(3))).all()


def test_an_interval_is_of_samples_of_cases():
    counts = np.array(WIKIPEDIA, dtype=float)
    draws = item_counts(10)
    kappas, alphas = fleiss_kappa(counts, draws), krippendorff_alpha(counts, draws)
    for number, draw in enumerate(draws[:50].astype(int)):
        sample = np.repeat(counts, draw, axis=0)
        assert kappas[number] == pytest.approx(slow_kappa(sample))
        assert alphas[number] == pytest.approx(slow_alpha(sample))
    low, high = kappa_interval(counts)
    assert (np.mean(kappas < low), np.mean(kappas > high)) == pytest.approx((0.025, 0.025))
    assert low < 0.210 < high
    low, high = alpha_interval(counts)
    assert (np.mean(alphas < low), np.mean(alphas > high)) == pytest.approx((0.025, 0.025))


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_sign_test_is_scipys(first, second):
    expected = binomtest(first, first + second).pvalue if first + second else 1.0
    assert sign_test(first, second) == pytest.approx(expected)

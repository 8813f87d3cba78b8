"""Equations 3 to 8, against the laws the paper proves and against a slow, literal reading."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lookback.scores.formula import (
    A_FLOOR,
    ALPHAS,
    LAMBDAS,
    lookback_score,
    lookback_scores,
    relevance,
    token_scores,
)

alphas = st.floats(0, 10)
lams = st.floats(0, 5)


@st.composite
def responses(draw, max_tokens=12):
    t = draw(st.integers(1, max_tokens))
    log_prob = draw(arrays(float, t, elements=st.floats(-20, 0)))
    a = draw(arrays(float, t, elements=st.floats(1e-6, 1)))
    return log_prob, a


def slow_score(log_prob, a, alpha, lam):
    """Eq. 8 as printed, token by token."""
    weights = [a_t**lam for a_t in a]
    return sum(
        w * (lp + alpha * math.log(a_t)) / sum(weights)
        for w, lp, a_t in zip(weights, log_prob, a, strict=True)
    )


def test_a_worked_example():
    # Two tokens: p = (1/2, 1/4), A = (1/10, 2/5), alpha = 2, lambda = 1: q = (1/5, 4/5).
    log_prob, a = np.log([0.5, 0.25]), [0.1, 0.4]
    np.testing.assert_allclose(relevance(a, 1), [0.2, 0.8])
    expected = [math.log(0.5 * 0.01), math.log(0.25 * 0.16)]
    np.testing.assert_allclose(token_scores(log_prob, a, 2), expected)
    score = lookback_score(log_prob, a, 2, 1)
    assert score == pytest.approx(0.2 * expected[0] + 0.8 * expected[1])


@given(responses(), alphas, lams)
def test_equals_the_printed_formula(response, alpha, lam):
    assert lookback_score(*response, alpha, lam) == pytest.approx(
        slow_score(*response, alpha, lam), rel=1e-9, abs=1e-9
    )


@given(responses())
def test_zero_alpha_and_lambda_is_the_mean_log_probability(response):
    log_prob, a = response
    assert lookback_score(log_prob, a, 0, 0) == pytest.approx(log_prob.mean(), abs=1e-12)


@given(responses(), lams)
def test_relevance_is_a_distribution(response, lam):
    q = relevance(response[1], lam)
    assert (q >= 0).all()
    assert q.sum() == pytest.approx(1)


@given(responses(), lams, st.integers(0, 2**32 - 1))
def test_relevance_maximises_equation_6(response, lam, seed):
    """Proposition 1: no other point of the simplex does better on λ E_q[log A] + H(q)."""
    a = response[1]

    def objective(q):
        entropy = -np.sum(q * np.log(np.where(q > 0, q, 1)), axis=-1)
        return lam * (q @ np.log(a)) + entropy

    others = np.random.default_rng(seed).dirichlet(np.ones(len(a)), size=200)
    best = relevance(a, lam)
    near = 0.99 * best + 0.01 * others
    assert objective(best) >= objective(others).max() - 1e-9
    assert objective(best) >= objective(near).max() - 1e-9


@given(responses(), alphas, lams)
def test_exp_of_the_score_is_a_weighted_geometric_mean(response, alpha, lam):
    """Corollary 1."""
    log_prob, a = response
    product = np.prod((np.exp(log_prob) * a**alpha) ** relevance(a, lam))
    assert math.exp(lookback_score(log_prob, a, alpha, lam)) == pytest.approx(product, rel=1e-6)


@given(responses(), alphas, lams, st.randoms())
def test_the_order_of_tokens_does_not_matter(response, alpha, lam, random):
    order = list(range(len(response[0])))
    random.shuffle(order)
    shuffled = [x[order] for x in response]
    assert lookback_score(*shuffled, alpha, lam) == pytest.approx(
        lookback_score(*response, alpha, lam)
    )


@given(responses(), alphas)
def test_a_large_lambda_takes_the_token_with_the_largest_a(response, alpha):
    log_prob, a = response
    a = a.copy()
    top = len(a) // 2
    a[top] = min(1.0, a.max() * 1.2 + 1e-3)
    a[np.arange(len(a)) != top] *= 0.8
    score = lookback_score(log_prob, a, alpha, lam=2000)
    assert score == pytest.approx(token_scores(log_prob, a, alpha)[top], rel=1e-6, abs=1e-9)


def test_attention_of_zero_stays_finite_and_is_floored():
    assert lookback_score([-1.0], [0.0], 7, 1.5) == pytest.approx(-1 + 7 * math.log(A_FLOOR))
    assert np.isfinite(lookback_score([-1.0, -2.0], [0.0, 0.5], 8, 3))
    np.testing.assert_allclose(relevance([0.0, 0.0], 3), [0.5, 0.5])


@given(st.lists(responses(), min_size=1, max_size=6))
def test_the_ragged_form_equals_one_at_a_time(batch):
    log_prob, a = (np.concatenate(x) for x in zip(*batch, strict=True))
    lengths = [len(x[0]) for x in batch]
    scores = lookback_scores(log_prob, a, lengths, [0.0, 0.5, 7.0], [0.0, 1.25])
    assert scores.shape == (len(batch), 3, 2)
    for i, response in enumerate(batch):
        for j, alpha in enumerate([0.0, 0.5, 7.0]):
            for k, lam in enumerate([0.0, 1.25]):
                one = lookback_score(*response, alpha, lam)
                assert scores[i, j, k] == pytest.approx(one, rel=1e-9, abs=1e-9)


def test_scalars_add_no_axis():
    assert lookback_scores([-1, -2], [0.1, 0.2], [1, 1], 0.5, 1.25).shape == (2,)
    assert lookback_scores([-1, -2], [0.1, 0.2], [1, 1], [0.5], 1.25).shape == (2, 1)


def test_the_papers_search_space_has_14_times_12_points():
    assert (len(ALPHAS), len(LAMBDAS)) == (14, 12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], 0, 0), "empty"),
        (([-1.0, math.nan], [0.1, 0.1], 0, 0), r"log_prob\[1\] = nan"),
        (([-1.0, -1.0], [0.1, math.nan], 0, 0), r"a\[1\] = nan"),
        (([-1.0, -1.0], [0.1], 0, 0), "log_prob has 2 tokens and a has 1"),
        (([-1.0, -1.0], [0.1, 1.5], 0, 0), r"a\[1\] = 1.5"),
        (([-1.0], [-0.1], 0, 0), r"a\[0\] = -0.1"),
        (([0.5], [0.1], 0, 0), r"log_prob\[0\] = 0.5"),
        (([-math.inf], [0.1], 0, 0), r"log_prob\[0\] = -inf"),
        (([-1.0], [0.1], -1, 0), "alpha = -1"),
        (([-1.0], [0.1], 0, math.nan), "lam = nan"),
        (([[-1.0]], [0.1], 0, 0), "one-dimensional"),
        ((["-1.0"], [0.1], 0, 0), "log_prob: .*got <U4"),
        (([False], [0.1], 0, 0), "log_prob: .*got bool"),
        (([None], [0.1], 0, 0), "log_prob: .*got object"),
        (([-1.0], [True], 0, 0), "a: .*got bool"),
        (([-1.0], np.ma.array([0.1], mask=[True]), 0, 0), "a: .*got masked"),
        (([-1.0], [0.1], True, 0), "alpha = True"),
        (([-1.0], [0.1], "1", 0), "alpha = '1'"),
        (([-1.0], [0.1], None, 0), "alpha = None"),
        (([-1.0], [0.1], np.float64("nan"), 0), "alpha = nan:"),
        (([-1.0], [0.1], 0, np.float32("inf")), "lam = inf:"),
        (([-1.0], [0.1], 0, [0.5]), r"lam .*shape \(1,\)"),
    ],
)
def test_errors_name_the_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        lookback_score(*arguments)


@pytest.mark.parametrize("name", ["alpha", "lam"])
@pytest.mark.parametrize("value", [True, "1", None, [0.5, True], 1j, [0.5, np.nan], -1])
def test_what_is_no_coefficient_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        lookback_scores([-1.0], [0.1], [1], **({"alpha": 1, "lam": 1} | {name: value}))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [([2, 0], "response 1 has 0 tokens"), ([1], "add up to 1"), ([], "non-empty")],
)
def test_bad_lengths_are_named(lengths, message):
    with pytest.raises(ValueError, match=message):
        lookback_scores([-1.0, -1.0], [0.1, 0.1], lengths, 0, 0)

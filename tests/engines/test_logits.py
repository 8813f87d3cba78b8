"""Token statistics and sampling, against definitions and against transformers' own processors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from lookback.engines.common import logits as module
from lookback.engines.common.logits import check_stats, draw, next_token_probs, streams, token_stats


def test_statistics_equal_their_definitions(monkeypatch):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 100)  # several pieces
    logits = torch.randn(7, 40, generator=torch.Generator().manual_seed(0)) * 3
    ids = torch.arange(7) * 5
    stats = token_stats(logits, ids)
    for r in range(7):
        z = logits[r].double().tolist()
        p = [math.exp(x) / sum(math.exp(y) for y in z) for x in z]
        divergence = sum((1 / 40) * math.log((1 / 40) / x) for x in p)  # KL(U || p)
        assert stats.log_prob[r] == pytest.approx(math.log(p[ids[r]]), abs=1e-5)
        assert stats.self_certainty[r] == pytest.approx(divergence, abs=1e-5)
        assert stats.entropy[r] == pytest.approx(-sum(x * math.log(x) for x in p), abs=1e-5)


def test_self_certainty_is_zero_for_the_uniform_distribution():
    stats = token_stats(torch.zeros(1, 50), torch.tensor([3]))
    assert stats.self_certainty[0] == pytest.approx(0, abs=1e-6)
    assert stats.entropy[0] == pytest.approx(math.log(50), abs=1e-5)


def test_a_certain_token_has_no_doubt():
    """log p = 0 is a signal like any other; above it there is none."""
    stats = token_stats(torch.tensor([[0.0, 500.0]]), torch.tensor([1]))
    assert (stats.log_prob.item(), stats.entropy.item()) == (0, 0)
    check_stats(*stats)
    for log_prob in (0.5, math.nan):
        with pytest.raises(FloatingPointError, match="not finite"):
            check_stats(torch.tensor([log_prob]), *stats[1:])


def test_logits_near_the_lowest_number_rule_out_too():
    """Some models subtract from it, or scale it."""
    low = torch.finfo(torch.float32).min * 0.9
    stats = token_stats(torch.tensor([[1.0, 2.0, low]]), torch.tensor([0]))
    rest = token_stats(torch.tensor([[1.0, 2.0]]), torch.tensor([0]))
    torch.testing.assert_close(torch.stack(stats), torch.stack(rest))


def test_logits_that_are_not_finite_are_an_error():
    with pytest.raises(FloatingPointError, match="not finite"):
        check_stats(*token_stats(torch.tensor([[0.0, math.nan]]), torch.tensor([0])))


def library_probs(logits, temperature, top_p, top_k):
    scores = TemperatureLogitsWarper(temperature)(None, logits.clone())
    if top_k is not None:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    return scores.softmax(-1)


@given(
    st.integers(0, 10**6),
    st.sampled_from([0.3, 0.7, 1.0, 1.2, 3.0]),
    st.sampled_from([0.05, 0.5, 0.9, 0.99, 1.0]),
    st.sampled_from([None, 1, 7, 500]),
    st.booleans(),
)
def test_sampled_distribution_equals_the_librarys(seed, temperature, top_p, top_k, ties):
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(seed)) * 2
    if ties:  # as bfloat16 logits have them
        logits = (logits * 2).round() / 2
    ours = next_token_probs(logits, temperature, top_p, top_k)
    theirs = library_probs(logits, temperature, top_p, top_k)
    if ties:  # which of several equal tokens stays is open: compare how much, not whose
        ours, theirs = ours.sort(-1).values, theirs.sort(-1).values
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("top_p", [1e-9, 1e-6])
def test_the_smallest_nucleus_is_the_likeliest_token(top_p):
    """In float32 all tokens together may hold no more than 1 - top_p."""
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    assert next_token_probs(logits, 1.0, top_p).tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_top_k_keeps_so_many(top_k):
    probs = next_token_probs(torch.tensor([[0.5, 2.0, 1.0]]), 1.0, 1.0, top_k)
    assert (probs > 0).sum() == top_k


def test_of_equal_tokens_at_the_edge_the_highest_ids_stay():
    probs = next_token_probs(torch.zeros(1, 4), 1.0, 0.5)
    assert probs.tolist() == [[0, 0, 0.5, 0.5]]
    assert probs.sum() == 1


def test_temperature_zero_is_greedy():
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    assert next_token_probs(logits, 0.0).tolist() == [[0, 1, 0]]


def test_draws_follow_the_distribution():
    """100,000 draws from a nucleus: every frequency within five standard errors."""
    logits = torch.randn(1, 20, generator=torch.Generator().manual_seed(5))
    probs = next_token_probs(logits, 1.2, 0.9)[0]
    n = 100_000
    uniform = torch.from_numpy(streams(7, 1, n)[0]).float()
    counts = torch.bincount(draw(probs.expand(n, -1), uniform), minlength=20) / n
    error = (probs * (1 - probs) / n).sqrt()
    assert ((counts - probs).abs() <= 5 * error + 1e-12).all()
    assert (counts[probs == 0] == 0).all()


def test_draw_never_picks_what_has_no_probability():
    probs = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]] * 3)
    assert draw(probs, torch.tensor([0.0, 0.5, 1.0])).tolist() == [1, 3, 3]


def test_a_number_next_to_one_draws_the_last_token_that_can_be():
    probs = torch.tensor([[0.3, 0.3, 0.4, 0.0]])
    below_one = torch.tensor([1.0]).nextafter(torch.zeros(1))
    for scale in (1.0, 1e-3, 3e-7):  # a sum that is rounded down
        assert draw(probs * scale, below_one).tolist() == [2]


def test_what_is_not_a_number_draws_no_index_beyond_the_vocabulary():
    token = draw(torch.full((2, 5), torch.nan), torch.tensor([0.1, 0.9]))
    assert ((token >= 0) & (token < 5)).all()


def test_what_is_drawn_stays_the_same_from_release_to_release():
    """Runs are drawn again by their seeds: another stream would be another run."""
    first = [[0.8201981478608876, 0.18924562408645496], [0.443746921343274, 0.8163920951010332]]
    np.testing.assert_allclose(streams(42, 2, 2), first, atol=1e-12)
    large = [[0.8363184701690051, 0.13901633971290828]]
    np.testing.assert_allclose(streams(2**63 + 1, 1, 2), large, atol=1e-12)


def test_streams_depend_on_seed_and_index_alone():
    few, many = streams(42, 5, 10), streams(42, 25, 30)
    np.testing.assert_array_equal(few, many[:5, :10])
    assert not np.array_equal(streams(43, 5, 10), few)
    assert len(np.unique(many)) == many.size
    with pytest.raises(ValueError, match="seed = -1"):
        streams(-1, 1, 1)


@pytest.mark.parametrize("seed", [0, 41, 2**32 - 2, 2**53, 2**63 - 2, 2**63, 2**64 - 4])
def test_neighbouring_seeds_share_no_row(seed):
    """Not even at another index: candidate i of one seed is no candidate of another."""
    rows = np.concatenate([streams(seed + i, 6, 5) for i in range(4)])
    assert len(np.unique(rows)) == rows.size


def test_seed_and_index_are_not_interchangeable():
    grid = np.concatenate([streams(seed, 8, 3) for seed in range(8)])
    assert len(np.unique(grid)) == grid.size


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lowest", [True, False])
def test_tokens_ruled_out_do_not_count(dtype, lowest):
    """Signals are those of the distribution over the tokens that are left."""
    low = torch.finfo(dtype).min if lowest else -math.inf
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
    full = logits.clone()
    full[0, [5, 7]] = low  # one row of several: the others keep their whole vocabulary
    stats = token_stats(full, torch.tensor([9, 9, 5]))
    left = [i for i in range(40) if i not in (5, 7)]
    alone = token_stats(logits[:1, left], torch.tensor([left.index(9)]))
    rest = token_stats(logits[1:], torch.tensor([9, 5]))
    for found, first, others in zip(stats, alone, rest, strict=True):
        torch.testing.assert_close(found, torch.cat([first, others]))
    assert token_stats(full, torch.tensor([5, 9, 9])).log_prob[0] == -math.inf

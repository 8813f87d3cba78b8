"""Scores from the tokens' signals alone: the paper's, and the plain ones it is compared with."""

from __future__ import annotations

import numpy as np

from lookback.families import GENERIC
from lookback.scores.base import scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import Array, check_coefficient, lookback_scores


def check_coefficients(alpha: float, lam: float) -> None:
    """Raise ValueError unless LookBack's alpha and lambda are finite numbers of at least 0."""
    check_coefficient("alpha", alpha)
    check_coefficient("lam", lam)


@scorer("lookback", title="LookBack", color="#c2410c", paper=6, validate=check_coefficients)
def lookback(batch: SignalBatch, alpha: float = GENERIC.alpha, lam: float = GENERIC.lam) -> Array:
    """LookBack (Eq. 8): log p and A_t, weighted by A_t."""
    return lookback_scores(batch.log_prob, batch.visual_lookback, batch.lengths, alpha, lam)


@scorer("visual_lookback", title="Visual lookback", color="#f59e0b")
def visual_lookback(batch: SignalBatch) -> Array:
    """Visual lookback alone: mean A_t."""
    return batch.mean(batch.visual_lookback)


@scorer("mean_log_prob", title="Mean log p", color="#0f766e")
def mean_log_prob(batch: SignalBatch) -> Array:
    """Mean log p_t: LookBack at alpha = lam = 0."""
    return batch.mean(batch.log_prob)


@scorer("sum_log_prob", title="Sum log p")
def sum_log_prob(batch: SignalBatch) -> Array:
    """Log-probability of the whole; favours the short."""
    return batch.sum(batch.log_prob)


@scorer("perplexity", title="Perplexity", lower_is_better=True, same_as="mean_log_prob")
def perplexity(batch: SignalBatch) -> Array:
    """Perplexity, negated: ranks as mean_log_prob."""
    return np.exp(-batch.mean(batch.log_prob))


@scorer("self_certainty", title="SC", color="#2563eb", paper=2)
def self_certainty(batch: SignalBatch) -> Array:
    """Self-Certainty: mean KL(U || p_t)."""
    return batch.mean(batch.self_certainty)


@scorer("entropy", title="Entropy", lower_is_better=True)
def entropy(batch: SignalBatch) -> Array:
    """Mean token entropy, negated."""
    return batch.mean(batch.entropy)

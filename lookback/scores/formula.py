"""The paper's equations 3 to 8 as pure functions on arrays. No models, no I/O, no torch.

One response is two arrays of length T: `log_prob` (log p_t) and `a` (visual lookback A_t, Eq. 3).
Many responses are a ragged batch: the tokens of all responses one after another, and `lengths`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

A_FLOOR = 1e-10
"""log A_t needs A_t > 0. A share of attention of exactly 0 (no image, or a window that slid past
it) is taken as this value, far below anything a softmax over a real context gives."""

# The paper's search space (appendix "Hyperparameter Selection Protocol"): 14 x 12 pairs.
ALPHAS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
LAMBDAS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0)


def relevance(a: ArrayLike, lam: float) -> Array:
    """Return the visual relevance distribution q(t) ∝ A_t^λ (Eq. 7).

    Args:
        a: visual lookback A_t of one response, each in [0, 1].
        lam: λ ≥ 0. 0 gives the uniform distribution, a large value the largest A_t alone.
    """
    log_a = np.log(_lookback(a))
    weight = np.exp(check_coefficient("lam", lam) * (log_a - log_a.max()))
    return np.asarray(weight / weight.sum())


def token_scores(log_prob: ArrayLike, a: ArrayLike, alpha: float) -> Array:
    """Return the lookback-calibrated token scores u_t = log p_t + α log A_t (Eq. 4)."""
    log_prob, a = _pair(log_prob, a)
    return np.asarray(log_prob + check_coefficient("alpha", alpha) * np.log(a))


def lookback_score(log_prob: ArrayLike, a: ArrayLike, alpha: float, lam: float) -> float:
    """Return the score of one response, S = Σ_t q(t) u_t (Eq. 8). Higher is better.

    Raises:
        ValueError: an empty response, lengths that differ, NaN, log p_t > 0, A_t outside [0, 1].
    """
    return float(relevance(a, lam) @ token_scores(log_prob, a, alpha))


def lookback_scores(
    log_prob: ArrayLike, a: ArrayLike, lengths: ArrayLike, alpha: ArrayLike, lam: ArrayLike
) -> Array:
    """Return the scores (Eq. 8) of many ragged responses, for many (α, λ) at once.

    S is linear in α once the three sums Σ A^λ, Σ A^λ log p and Σ A^λ log A are known, so one pass
    over the tokens for each λ serves every α.

    Args:
        log_prob: log p_t of all responses, concatenated.
        a: A_t of all responses, concatenated.
        lengths: the number of tokens of each response, each at least 1.
        alpha: one α, or several.
        lam: one λ, or several.

    Returns:
        Scores of shape (R,) + shape(alpha) + shape(lam): scalars add no axis.
    """
    log_prob, a = _pair(log_prob, a)
    starts = ragged_starts(lengths, len(a))
    alphas, lams = _coefficients("alpha", alpha), _coefficients("lam", lam)
    log_a = np.log(a)
    # A^λ relative to the response's largest A: the same ratios, and no underflow at a large λ.
    peak = np.maximum.reduceat(log_a, starts)
    shifted = log_a - np.repeat(peak, np.diff(np.append(starts, len(a))))

    scores = np.empty((len(starts), alphas.size, lams.size))
    for j, value in enumerate(lams.flat):
        weight = np.exp(value * shifted)
        total = np.add.reduceat(weight, starts)
        mean_log_prob = np.add.reduceat(weight * log_prob, starts) / total
        mean_log_a = np.add.reduceat(weight * log_a, starts) / total
        scores[:, :, j] = mean_log_prob[:, None] + mean_log_a[:, None] * alphas.ravel()
    return scores.reshape(len(starts), *alphas.shape, *lams.shape)


def ragged_starts(lengths: ArrayLike, total: int) -> NDArray[np.intp]:
    """Return where each response begins in the concatenated arrays.

    Raises:
        ValueError: a response is empty, or the lengths do not add up to `total` tokens.
    """
    counts = np.asarray(lengths)
    if counts.ndim != 1 or counts.size == 0 or counts.dtype.kind not in "iu":
        raise ValueError(f"lengths must be a non-empty list of whole numbers, got {lengths!r}")
    if (counts < 1).any():
        i = int(np.argmax(counts < 1))
        raise ValueError(f"response {i} has {counts[i]} tokens: an empty response has no score")
    if counts.sum() != total:
        raise ValueError(f"lengths add up to {counts.sum()}, but there are {total} tokens")
    return np.asarray(np.cumsum(counts) - counts, dtype=np.intp)


def _pair(log_prob: ArrayLike, a: ArrayLike) -> tuple[Array, Array]:
    p = _vector("log_prob", log_prob)
    if (p > 0).any():
        t = int(np.argmax(p > 0))
        raise ValueError(f"log_prob[{t}] = {p[t]:g}: a log-probability is at most 0")
    q = _lookback(a)
    if len(p) != len(q):
        raise ValueError(f"log_prob has {len(p)} tokens and a has {len(q)}: one value per token")
    return p, q


def _lookback(a: ArrayLike) -> Array:
    values = _vector("a", a)
    outside = (values < 0) | (values > 1)
    if outside.any():
        t = int(np.argmax(outside))
        raise ValueError(f"a[{t}] = {values[t]:g}: a share of attention lies in [0, 1]")
    return np.maximum(values, A_FLOOR)


def _vector(name: str, values: ArrayLike) -> Array:
    array = _numbers(name, values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty: an empty response has no score")
    if not np.isfinite(array).all():
        t = int(np.argmax(~np.isfinite(array)))
        raise ValueError(f"{name}[{t}] = {array[t]}: not a finite number")
    return array


def check_coefficient(name: str, value: ArrayLike) -> float:
    """Return α or λ as a float; raise ValueError unless it is a finite number of at least 0."""
    number = _coefficients(name, value)
    if number.ndim:
        raise ValueError(f"{name} must be one number, got shape {number.shape}")
    return float(number)


def _coefficients(name: str, values: ArrayLike) -> Array:
    numbers = _numbers(name, values)
    for number in numbers.flat:
        if not (np.isfinite(number) and number >= 0):
            raise ValueError(f"{name} = {number:g}: must be a finite number of at least 0")
    return numbers


def _numbers(name: str, values: ArrayLike) -> Array:
    """Return numbers as float64; raise ValueError for texts, booleans and masked values."""
    array = np.asarray(values)
    kind = "" if array.dtype.kind in "iuf" else str(array.dtype)
    if isinstance(values, Sequence) and any(isinstance(value, bool) for value in values):
        kind = "bool"  # among other numbers NumPy takes it for 0 or 1
    if np.ma.is_masked(values):
        kind = "masked"
    if kind:
        shown = f" = {values!r:.60}" if array.ndim == 0 else ""
        raise ValueError(f"{name}{shown}: must be numbers, got {kind}")
    return np.asarray(array, dtype=np.float64)


def concatenate(arrays: Sequence[ArrayLike]) -> tuple[Array, NDArray[np.intp]]:
    """Return per-response arrays as one ragged batch: concatenated values, and lengths."""
    parts = [np.asarray(x, dtype=np.float64) for x in arrays]
    return np.concatenate(parts), np.array([len(x) for x in parts], dtype=np.intp)

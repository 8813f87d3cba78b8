"""From raw logits to the signals of a token, and to the next token: pure functions of tensors."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

ROWS_AT_ONCE = 2**21
"""Logits worked on at a time: small enough to stay in cache between the passes over them."""


class TokenStats(NamedTuple):
    """Signals read from the distribution of each of R tokens, float32."""

    log_prob: Tensor
    self_certainty: Tensor
    entropy: Tensor


def cheap_to_read(tensor: Tensor) -> bool:
    """Whether reading its values costs nothing; on a GPU, pending work must end first.

    Where it costs, no branch here depends on values: everything is computed for every case.
    """
    return tensor.device.type == "cpu"


def token_stats(logits: Tensor, token_ids: Tensor) -> TokenStats:
    """Return the signals of R tokens from their predicting rows' raw logits (R, V).

    log p is of the full softmax in float32: no temperature, no filter. Self-certainty is
    KL(U || p) = -(1/V) Σ_j log p(j) - log V, with V the size of the logits' last axis.

    A model may rule tokens out by a logit of -inf, or the lowest number there is (Chameleon its
    image tokens). Such a token has log p = -inf and adds nothing to the entropy; against it
    KL(U || p) would be infinite, so V counts, and U spreads over, the tokens that are left.

    Logits that are not finite otherwise give signals that `check_stats` refuses.
    """
    rows, vocab = logits.shape
    stats = torch.empty(3, rows, dtype=torch.float32, device=logits.device)
    step = max(1, ROWS_AT_ONCE // vocab)
    for start in range(0, rows, step):
        piece = slice(start, start + step)
        stats[:, piece] = _stats(logits[piece], token_ids[piece])
    return TokenStats(*stats)


def _stats(logits: Tensor, token_ids: Tensor) -> Tensor:
    if not cheap_to_read(logits) or bool(logits.amin() <= _lowest(logits.dtype)):
        return _stats_of_the_rest(logits, token_ids)
    log_p = logits.float().log_softmax(-1)
    token = log_p.gather(-1, token_ids[:, None])[:, 0]
    entropy = -(log_p.exp() * log_p).sum(-1)
    return torch.stack([token, -log_p.mean(-1) - math.log(logits.shape[-1]), entropy])


def check_stats(log_prob: Tensor, self_certainty: Tensor, entropy: Tensor) -> None:
    """Raise FloatingPointError if the logits behind these signals were not finite."""
    spread = torch.stack([self_certainty, entropy])
    if not (spread.isfinite().all() & (log_prob <= 0).all()):
        raise FloatingPointError(
            "the model's logits are not finite: try another dtype (float32 or bfloat16)"
        )


def _lowest(dtype: torch.dtype) -> float:
    """Return the logit that rules its token out, as all lower ones do."""
    return torch.finfo(dtype).min / 2


def _stats_of_the_rest(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Return the same signals, (3, R), where tokens are ruled out."""
    out = logits <= _lowest(logits.dtype)
    left = (~out).sum(-1)
    log_p = logits.float().masked_fill(out, -torch.inf).log_softmax(-1)
    token = log_p.gather(-1, token_ids[:, None])[:, 0]
    log_p = log_p.masked_fill(out, 0.0)
    entropy = -(log_p.exp() * log_p).sum(-1)  # the tokens ruled out add 1 * 0
    return torch.stack([token, -log_p.sum(-1) / left - left.log(), entropy])


def likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ids of the likeliest tokens of each row (R, V), in order, and their log p as in
    `token_stats`: both (R, count)."""
    ruled_out = logits <= _lowest(logits.dtype)
    log_p = logits.float().masked_fill(ruled_out, -torch.inf).log_softmax(-1)
    found = log_p.topk(count)
    return found.indices, found.values


def next_token_probs(
    logits: Tensor, temperature: float, top_p: float = 1.0, top_k: int | None = None
) -> Tensor:
    """Return the distribution to sample: temperature, then top-k, then top-p, (N, V), float32.

    Equal to transformers' own processors; which of several tokens with the very same logit stays
    when not all fit into the nucleus is open there, and fixed here. A temperature of 0 puts
    everything on the most likely token.
    """
    scores = logits.float()
    if temperature == 0:
        return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).float()
    scores = scores / temperature
    if top_k is not None and top_k < scores.shape[-1]:
        edge = scores.topk(top_k).values[:, -1:]
        scores = scores.masked_fill(scores < edge, -torch.inf)
    probs = scores.softmax(-1)
    return nucleus(probs, top_p) if top_p < 1.0 else probs


def nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Keep the likeliest tokens of (N, V) until they hold `top_p` together; renormalise."""
    ascending = _sorted(probs)
    # A token stays if it and all less likely ones together hold more than 1 - top_p.
    dropped = (ascending.cumsum(-1) <= 1.0 - top_p).sum(-1, keepdim=True)
    dropped = dropped.clamp_(max=probs.shape[-1] - 1)
    edge = ascending.gather(-1, dropped)
    kept = probs.where(probs >= edge, 0.0)
    cut = (ascending.gather(-1, (dropped - 1).clamp_(min=0)) == edge).logical_and_(dropped > 0)
    if not cheap_to_read(probs) or bool(cut.any()):
        # Tokens exactly as likely as the edge were dropped: let it be those with the lowest ids.
        surplus = (kept > 0).sum(-1, keepdim=True) - (probs.shape[-1] - dropped)
        at_edge = probs == edge
        kept = kept.masked_fill(at_edge & (at_edge.cumsum(-1) <= surplus), 0.0)
    return kept / kept.sum(-1, keepdim=True)


def _sorted(values: Tensor) -> Tensor:
    # NumPy sorts on vector units, five times faster here than torch on CPU.
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return values.sort(-1).values


def draw(probs: Tensor, uniform: Tensor) -> Tensor:
    """Draw one token a row by inverting its distribution function at `uniform` (N,), in [0, 1).

    Tokens stand in the order of their ids, so rounding in the last bits moves the result only
    where `uniform` falls on an edge.
    """
    cdf = probs.cumsum(-1)
    end = cdf[:, -1:]
    # A product rounded up to the very end would fall off it.
    point = torch.minimum(uniform[:, None] * end, end.nextafter(end.new_zeros(())))
    token = torch.searchsorted(cdf, point, right=True)[:, 0]
    return token.clamp_(max=probs.shape[-1] - 1)  # of what is not a number, any: never out of range


def streams(
    seed: int, n: int, length: int, first: int = 0
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return uniform numbers (n, length): row i is a stream fixed by (seed, first + i)."""
    if seed < 0:
        raise ValueError(f"seed = {seed}: must not be negative")
    # As whole numbers: a list with one from 2**63 on would become floats, and seeds would meet.
    keys = [np.array([seed, i], dtype=np.uint64) for i in range(first, first + n)]
    rows = [np.random.Generator(np.random.Philox(key=key)).random(length) for key in keys]
    return np.stack(rows)

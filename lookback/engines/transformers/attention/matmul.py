"""Attention in plain matrix products: what works on every device, and what the kernels must equal.

Sums are kept in float32, whatever the model's data type is.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor

from lookback.engines.common.compat import wide_product_on_cuda

MATH_SCORES = 2**24
"""How many scores are held at a time (64 MiB in float32)."""


@cache
def has_wide_product(device: str, dtype: torch.dtype) -> bool:
    """Whether matrices of this type can be multiplied into float32 without a copy of them."""
    if device != "cuda":
        return False
    generator = torch.Generator().manual_seed(0)
    one, other = (
        torch.randn(2, 8, 16, generator=generator).to(torch.device(device), dtype) for _ in "ab"
    )
    try:
        found = wide_product_on_cuda(one, other.mT)
    except (RuntimeError, NotImplementedError, TypeError):
        return False  # an older torch: the copy it is
    off = float((found - one.float() @ other.float().mT).abs().max())
    right = off <= tolerance_of_sums(dtype)
    if not right:
        warnings.warn(
            f"products of {dtype} in float32 are off by {off:.1g} on this device: LookBack copies "
            "what it multiplies, which is slower",
            RuntimeWarning,
            stacklevel=2,
        )
    return right


def tolerance_of_sums(dtype: torch.dtype) -> float:
    """What sums that are kept in float32 may differ by, of numbers of a data type up to about 10.

    In half precision a kernel may round on the way; that of CPUs is within 1e-4.
    """
    return 1e-5 if torch.finfo(dtype).bits >= 32 else 1e-3


def wide_product(one: Tensor, other: Tensor) -> Tensor:
    """one @ other, (B, H, R, D) by (B, H, D, K), in float32: nothing is rounded on the way.

    The product of two tensors of bfloat16 would be rounded to bfloat16 before it could be read.
    """
    if one.dtype == torch.float32:
        return one @ other
    if has_wide_product(one.device.type, one.dtype):
        wide = wide_product_on_cuda(one.flatten(0, 1), other.flatten(0, 1))
        return wide.unflatten(0, one.shape[:2])
    return one.float() @ other.float()


def group(x: Tensor, kv_heads: int) -> Tensor:
    """(B, H, R, ...) to (B, H_kv, g * R, ...).

    Query heads that share a key head become further rows of it: no key is repeated.
    """
    return x.unflatten(1, (kv_heads, -1)).flatten(2, 3)


def ungroup(x: Tensor, rows: int) -> Tensor:
    """(B, H_kv, g * R, ...) back to (B, H, R, ...)."""
    return x.unflatten(2, (-1, rows)).flatten(1, 2)


def scores_of(query: Tensor, key: Tensor, scale: float, softcap: float | None = None) -> Tensor:
    """The scores (B, H, R, K) of query (B, H, R, D) and key (B, H_kv, K, D), in float32."""
    scores = wide_product(group(query, key.shape[1]), key.mT) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return ungroup(scores, query.shape[2])


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None = None,
    causal: bool = False,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Rows (B, H, R, D) and their log-sum-exp (B, H, R), as `attention.attend` explains them."""
    batch, heads, rows, _ = query.shape
    keys = key.shape[2]
    if causal:
        mask = torch.ones(rows, keys, dtype=torch.bool, device=query.device).tril()[None, None]
    step = max(1, MATH_SCORES // (batch * heads * keys))
    parts = []
    for part in (slice(start, start + step) for start in range(0, rows, step)):
        scores = scores_of(query[:, :, part], key, scale, softcap)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, :, part], -torch.inf)
        parts.append(_rows(scores, value))
    if len(parts) == 1:
        return parts[0]
    out, lse = (torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))
    return out, lse


def _rows(scores: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of values by their scores; one without any key is not a number."""
    weights = scores.softmax(-1).to(value.dtype)
    out = wide_product(group(weights, value.shape[1]), value)
    return ungroup(out, scores.shape[2]), scores.logsumexp(-1)

"""Attention over part of the keys, and joining the parts: pure functions of tensors.

Softmax attention over a set of keys can be computed part by part: each part gives its output and
the log-sum-exp of its scores, from which follow the parts' shares of the whole.
With the vision tokens as a part of their own, that share *is* the attention they receive: the
visual lookback costs no more than splitting one kernel call in two, and no map is ever built.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lookback.engines.transformers.attention.kernels import (
    Kernel,
    additive,
    has_wide_product,
    plain_attention,
    scores_of,
    trusted,
)


class Part(NamedTuple):
    """Attention over some of the keys: `out` (B, H, R, D) and `lse` (B, H, R), in float32."""

    out: Tensor
    lse: Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    causal: bool = False,
    softcap: float | None = None,
) -> Part:
    """Attend with query (B, H, R, D) to key and value (B, H_kv, K, D), H a multiple of H_kv.

    Args:
        query: the queries; heads h*g .. h*g + g - 1 share the key head h, g = H / H_kv.
        key: the keys; there may be none.
        value: the values.
        scale: factor on the scores.
        mask: boolean, (B or 1, 1, R, K), True where a query may look; a row may be all False.
        causal: row r sees keys 0..r; needs R = K and no mask.
        softcap: scores s become softcap * tanh(s / softcap).
    """
    if not key.shape[2]:  # a fused kernel divides by the number of keys: it would kill Python
        nothing = query.new_zeros((*query.shape[:-1], value.shape[-1]), dtype=torch.float32)
        return Part(nothing, nothing.new_full(query.shape[:-1], -torch.inf))
    kernel = None if softcap is not None else _kernel(query, key, value, mask is not None, causal)
    if kernel is None:
        out, lse = plain_attention(query, key, value, scale, mask, causal, softcap)
    else:
        bias = None if mask is None else additive(mask)
        out, lse = kernel(query, key, value, scale, bias, causal)
    part = Part(out.float(), lse.float())  # of float64 too
    if mask is not None:  # a row that sees none of these keys has no share in the whole
        blind = ~mask.any(-1)
        part = Part(
            part.out.masked_fill(blind[..., None], 0.0), part.lse.masked_fill(blind, -torch.inf)
        )
    return part


def _kernel(query: Tensor, key: Tensor, value: Tensor, masked: bool, causal: bool) -> Kernel | None:
    if value.shape[-1] != key.shape[-1]:
        return None
    groups = query.shape[1] // key.shape[1]
    for kernel in trusted(query.device.type, query.dtype, query.shape[-1]):
        if kernel.takes(groups, masked, causal):
            return kernel
    return None


def blend(one: Part, other: Part, *, blind: bool = True) -> tuple[Tensor, Tensor]:
    """Return rows over the keys of both parts, (B, H, R, D), and the share of `one`, (B, H, R).

    `blind`: whether there may be rows that see neither, whose share is 0.
    """
    # exp(a - log(exp a + exp b)) is the sigmoid of a - b.
    share = torch.sigmoid(one.lse - other.lse)
    if blind:
        share = share.nan_to_num_(0.0)
    return torch.lerp(other.out, one.out, share[..., None]), share


def join(one: Part, other: Part, *, blind: bool = True) -> tuple[Part, Tensor]:
    """Return the same as a part that can be joined with others."""
    out, share = blend(one, other, blind=blind)
    return Part(out, torch.logaddexp(one.lse, other.lse)), share


def share_of_last_row(
    query: Tensor,
    key: Tensor,
    source: Tensor,
    *,
    scale: float,
    softcap: float | None,
    bias: Tensor | None,
) -> Tensor:
    """Return the share of attention that the last row pays to the source keys, (B, H).

    Args:
        query: (B, H, R, D).
        key: (B, H_kv, K, D).
        source: (B, K), True for the keys that count.
        scale: factor on the scores.
        softcap: scores s become softcap * tanh(s / softcap).
        bias: (B or 1, H or 1, K), added to the scores: -inf where the row may not look.
    """
    row = query[:, :, -1:]
    if row.dtype != torch.float32 and not has_wide_product(row.device.type, row.dtype):
        # Products in half precision would be rounded before they can be read, and a copy of all
        # keys in float32 is too much for every token: two log-sum-exps give the same.
        kernel = None if softcap is not None else _kernel(row, key, key, True, False)
        if kernel is not None:
            return _share_by_lse(kernel, row, key, source, scale, bias)
    scores = scores_of(row, key, scale, softcap)[:, :, 0]
    if bias is not None:
        scores = scores + bias
    return (scores.softmax(-1) * source[:, None]).sum(-1)


def _share_by_lse(
    kernel: Kernel, row: Tensor, key: Tensor, source: Tensor, scale: float, bias: Tensor | None
) -> Tensor:
    to_source = additive(source)[:, None]  # (B, 1, K)
    if bias is not None:
        to_source = to_source + bias
        bias = bias[:, :, None]
    _, whole = kernel(row, key, key, scale, bias)
    _, part = kernel(row, key, key, scale, to_source[:, :, None])
    share = (part - whole)[..., 0].exp()
    return share.masked_fill((to_source == -torch.inf).all(-1), 0.0)  # it sees nothing of it

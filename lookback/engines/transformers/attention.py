"""Attention over part of the keys, and joining the parts. Pure functions of tensors.

Softmax attention over a set of keys can be computed part by part: each part gives its output and
the log-sum-exp of its scores, from which follow the parts' shares of the whole.
With the vision tokens as a part of their own, that share *is* the attention they receive: the
visual lookback costs no more than splitting one kernel call in two, and no map is ever built.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lookback.engines.transformers.compat import flash_attention_with_lse

MATH_SCORES = 2**24
"""How many scores the plain path holds at a time (64 MiB in float32)."""


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
    """Attention of query (B, H, R, D) over key and value (B, H_kv, K, D), H a multiple of H_kv.

    Args:
        query: the queries; heads h*g .. h*g + g - 1 share the key head h, g = H / H_kv.
        key: the keys; there may be none.
        value: the values.
        scale: factor on the scores.
        mask: boolean, (B or 1, 1, R, K), True where a query may look; a row may be all False.
        causal: row r sees keys 0..r; needs R = K and no mask.
        softcap: scores s become softcap * tanh(s / softcap).
    """
    if not key.shape[2]:  # the fused kernel divides by the number of keys: it would kill Python
        return _nothing(query, value)
    if query.device.type == "cpu" and softcap is None and key.shape[-1] == value.shape[-1]:
        part = _fused(query, key, value, scale, mask, causal)
    else:
        part = _plain(query, key, value, scale, mask, causal, softcap)
    if mask is not None:  # a row that sees none of these keys has no share in the whole
        blind = ~mask.any(-1)
        part = Part(
            part.out.masked_fill(blind[..., None], 0.0), part.lse.masked_fill(blind, -torch.inf)
        )
    return part


def join(one: Part, other: Part) -> tuple[Part, Tensor]:
    """Attention over the keys of both parts, and the share of it that `one` has, (B, H, R)."""
    # exp(a - log(exp a + exp b)) is the sigmoid of a - b; a row blind to both parts has no share.
    share = torch.sigmoid(one.lse - other.lse).nan_to_num_(0.0)
    out = torch.lerp(other.out, one.out, share[..., None])
    return Part(out, torch.logaddexp(one.lse, other.lse)), share


def _nothing(query: Tensor, value: Tensor) -> Part:
    """Attention over no keys at all: it has no share in any whole."""
    shape = query.shape[:-1]
    out = query.new_zeros((*shape, value.shape[-1]), dtype=torch.float32)
    return Part(out, out.new_full(shape, -torch.inf))


def _fused(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, causal: bool
) -> Part:
    bias = None
    if mask is not None:
        bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill_(~mask, -torch.inf)
    out, lse = flash_attention_with_lse(query, key, value, causal=causal, bias=bias, scale=scale)
    return Part(out.float(), lse)


def _plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None,
    causal: bool,
    softcap: float | None,
) -> Part:
    batch, heads, rows, _ = query.shape
    keys = key.shape[2]
    if causal:
        mask = torch.ones(rows, keys, dtype=torch.bool, device=query.device).tril()[None, None]
    step = max(1, MATH_SCORES // (batch * heads * keys))
    pieces = [slice(start, start + step) for start in range(0, rows, step)]
    parts = [
        _piece(query[:, :, p], key, value, scale, None if mask is None else mask[:, :, p], softcap)
        for p in pieces
    ]
    if len(parts) == 1:
        return parts[0]
    return Part(*(torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True)))


def _piece(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None,
    softcap: float | None,
) -> Part:
    """`_plain` of rows that fit into memory, in as few operations as it takes."""
    kv_heads, rows = key.shape[1], query.shape[2]
    # Query heads that share a key head are further rows: no key is repeated.
    q = query.unflatten(1, (kv_heads, -1)).flatten(2, 3)  # (B, H_kv, g * r, D)
    scores = (q @ key.transpose(-1, -2)).float() * scale  # (B, H_kv, g * r, K)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        hidden = ~mask[:, :, None].expand(-1, -1, q.shape[2] // rows, -1, -1).flatten(2, 3)
        scores = scores.masked_fill(hidden, -torch.inf)
    # Rows without any key give NaN here; `attend` blanks them.
    out = (scores.softmax(-1).to(value.dtype) @ value).float()
    lse = scores.logsumexp(-1)
    out = out.unflatten(2, (-1, rows)).flatten(1, 2)
    return Part(out, lse.unflatten(2, (-1, rows)).flatten(1, 2))

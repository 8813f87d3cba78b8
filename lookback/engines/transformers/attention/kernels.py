"""Attention with the log-sum-exp of each row: plain matrix products, and fused kernels.

Plain products work on every device, with sums in float32 whatever the model's data type is.
`scaled_dot_product_attention` hides the log-sum-exp; the operators behind it do not. They differ in
what they take (masks, grouped heads, data types) and are not public. So each is described by data,
and tried on random tensors against plain products when a device, a data type and a head size are
first met: while a model is loaded. One that is off is not used, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from lookback.engines.common.compat import (
    flash_attention_on_cpu,
    flash_attention_on_cuda,
    memory_efficient_attention,
    wide_product_on_cuda,
)

MATH_SCORES = 2**24
"""Attention scores held at a time (64 MiB in float32)."""


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
        product = wide_product_on_cuda(one, other.mT)
    except (RuntimeError, NotImplementedError, TypeError):
        return False  # an older torch: the copy it is
    off = float((product - one.float() @ other.float().mT).abs().max())
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
    """Return the allowed difference of float32 sums, of numbers of a data type up to about 10.

    In half precision a kernel may round on the way; that of CPUs is within 1e-4.
    """
    return 1e-5 if torch.finfo(dtype).bits >= 32 else 1e-3


def wide_product(one: Tensor, other: Tensor) -> Tensor:
    """Return one @ other, (B, H, R, D) by (B, H, D, K), in float32.

    The product of two tensors of bfloat16 would be rounded to bfloat16 before it could be read.
    """
    if one.dtype == torch.float32:
        return one @ other
    if has_wide_product(one.device.type, one.dtype):
        wide = wide_product_on_cuda(one.flatten(0, 1), other.flatten(0, 1))
        return wide.unflatten(0, one.shape[:2])
    return one.float() @ other.float()


def group(x: Tensor, kv_heads: int) -> Tensor:
    """Reshape (B, H, R, ...) to (B, H_kv, g * R, ...).

    Query heads that share a key head become further rows of it: no key is repeated.
    """
    return x.unflatten(1, (kv_heads, -1)).flatten(2, 3)


def ungroup(x: Tensor, rows: int) -> Tensor:
    """Reshape (B, H_kv, g * R, ...) back to (B, H, R, ...)."""
    return x.unflatten(2, (-1, rows)).flatten(1, 2)


def scores_of(query: Tensor, key: Tensor, scale: float, softcap: float | None = None) -> Tensor:
    """Return the scores (B, H, R, K) of query (B, H, R, D), key (B, H_kv, K, D), in float32."""
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
    """Return rows (B, H, R, D) and their log-sum-exp (B, H, R); arguments as `partial.attend`."""
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
        # A row without any key is not a number.
        weights = scores.softmax(-1).to(value.dtype)
        rows_out = ungroup(wide_product(group(weights, value.shape[1]), value), scores.shape[2])
        parts.append((rows_out, scores.logsumexp(-1)))
    if len(parts) == 1:
        return parts[0]
    out, lse = (torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))
    return out, lse


_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Kernel:
    """A fused kernel: out (B, H, R, D) and lse (B, H, R) in float32.

    Attributes:
        name: for messages.
        device: the kind of device it runs on.
        run: (query, key, value, bias, causal, scale) to out and lse.
        masks: whether it takes a bias.
        groups: whether query heads may share a key head.
        multiple: head sizes must be a multiple of this.
        largest: the largest head size.
    """

    name: str
    device: str
    run: Callable[[Tensor, Tensor, Tensor, Tensor | None, bool, float], tuple[Tensor, Tensor]]
    dtypes: tuple[torch.dtype, ...]
    masks: bool = True
    groups: bool = True
    multiple: int = 1
    largest: int = 2**31

    def takes(self, groups: int, masked: bool, causal: bool) -> bool:
        """Whether it takes this, with `groups` query heads per key head.

        Where they may not share one, they can be further rows of it, unless it is causal.
        """
        return (self.masks or not masked) and (self.groups or groups == 1 or not causal)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        bias: Tensor | None = None,
        causal: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return rows and their log-sum-exp; `bias`, (B or 1, H or 1, R, K), is added to scores."""
        heads, rows = query.shape[1:3]
        if bias is not None:
            bias = bias.to(query.dtype)
        if self.groups or heads == key.shape[1]:
            return self.run(query, key, value, bias, causal, scale)
        if bias is not None:
            bias = group(bias.expand(-1, heads, -1, -1), key.shape[1])
        out, lse = self.run(group(query, key.shape[1]), key, value, bias, causal, scale)
        return ungroup(out, rows), ungroup(lse, rows)


KERNELS = (
    Kernel(
        "flash attention of CPUs",
        "cpu",
        flash_attention_on_cpu,
        (torch.float64, torch.float32, *_HALF),
    ),
    Kernel(
        "flash attention",
        "cuda",
        flash_attention_on_cuda,
        _HALF,
        masks=False,
        multiple=8,
        largest=256,
    ),
    Kernel(
        "memory-efficient attention",
        "cuda",
        memory_efficient_attention,
        (torch.float32, *_HALF),
        groups=False,
        multiple=8,
    ),
)
"""In the order in which they are preferred."""


@cache
def trusted(device: str, dtype: torch.dtype, dim: int) -> tuple[Kernel, ...]:
    """Return the kernels that gave what plain products give, on this kind of device."""
    return tuple(
        kernel
        for kernel in KERNELS
        if kernel.device == device
        and dtype in kernel.dtypes
        and dim % kernel.multiple == 0
        and dim <= kernel.largest
        and _agrees(kernel, dtype, dim)
    )


def _agrees(kernel: Kernel, dtype: torch.dtype, dim: int) -> bool:
    try:
        differences = [_differences(kernel, dtype, dim, *case) for case in _cases(kernel)]
    except (RuntimeError, NotImplementedError, TypeError) as error:
        reason = f"fails ({str(error).splitlines()[0]})"
    else:
        # Rows are rounded to the data type; log-sum-exps, which A_t depends on, are not.
        most = max(16 * torch.finfo(dtype).eps, 1e-5), tolerance_of_sums(dtype)
        wrong = [off for off in differences if not (off[0] <= most[0] and off[1] <= most[1])]
        if not wrong:
            return True
        reason = "is off by {:.1g} in its rows and {:.1g} in their log-sum-exp".format(*wrong[0])
    warnings.warn(
        f"{kernel.name} in {dtype} with heads of {dim} {reason}: LookBack does without it, which "
        "is slower",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def _cases(kernel: Kernel) -> list[tuple[int, int, int, bool, bool]]:
    """Return (heads, rows, keys, causal, masked) of each trial."""
    cases = [(4, 1, 37, False, False), (4, 40, 300, False, False)]
    cases.append((4 if kernel.groups else 2, 33, 33, True, False))
    if kernel.masks:
        cases += [(4, 1, 37, False, True), (4, 40, 300, False, True)]
    return cases


def _differences(
    kernel: Kernel,
    dtype: torch.dtype,
    dim: int,
    heads: int,
    rows: int,
    keys: int,
    causal: bool,
    masked: bool,
) -> tuple[float, float]:
    """Return how far the kernel is from plain products, in its rows and their log-sum-exp."""
    generator = torch.Generator().manual_seed(rows)  # not the global stream
    device = torch.device(kernel.device)
    query, key, value = (
        torch.randn(3, count, size, dim, generator=generator).to(device, dtype)
        for count, size in ((heads, rows), (2, keys), (2, keys))
    )
    mask = None
    if masked:
        mask = torch.rand(3, 1, rows, keys, generator=generator) < 0.7
        mask[..., 0] = True
        mask = mask.to(device)
    bias = None if mask is None else additive(mask)
    out, lse = kernel(query, key, value, dim**-0.5, bias, causal)
    expected = plain_attention(query, key, value, dim**-0.5, mask, causal)
    rows_off, lse_off = (
        float((one.double() - other.double()).abs().max())
        for one, other in zip((out, lse), expected, strict=True)
    )
    return rows_off, lse_off


def additive(mask: Tensor) -> Tensor:
    """Return a boolean mask (True where a query may look) as numbers to add to the scores."""
    zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    return zeros.masked_fill_(~mask, -torch.inf)

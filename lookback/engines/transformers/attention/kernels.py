"""Fused kernels that return the log-sum-exp of their rows, and which of them can be trusted here.

`scaled_dot_product_attention` hides the log-sum-exp, the operators behind it do not. They differ in
what they take (masks, grouped heads, data types), and they are not public. So each is data, and
each is tried on random tensors against plain matrix products when a device, a data type and a head
size are first met: while a model is loaded. One that errs is left out, with a warning.
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
)
from lookback.engines.transformers.attention.matmul import (
    group,
    plain_attention,
    tolerance_of_sums,
    ungroup,
)

_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Kernel:
    """A fused kernel: out (B, H, R, D) and lse (B, H, R) in float32.

    Attributes:
        name: for messages.
        device: the kind of device it runs on.
        run: (query, key, value, bias, causal, scale) to out and lse.
        dtypes: what it takes.
        masks: whether it takes a bias.
        groups: whether query heads may share a key head.
        multiple: head sizes must be a multiple of this.
        largest: and no larger than this.
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
        """Whether it can attend so, with so many query heads to a key head.

        Where they may not share one, they can be further rows of it, unless rows have an order.
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
        """Rows and their log-sum-exp; `bias`, (B or 1, H or 1, R, K), is added to the scores."""
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
    """The kernels that gave what plain products give, on this kind of device."""
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
        found = [_differences(kernel, dtype, dim, *case) for case in _cases(kernel)]
    except (RuntimeError, NotImplementedError, TypeError) as error:
        reason = f"fails ({str(error).splitlines()[0]})"
    else:
        # Rows are rounded to the data type; log-sum-exps, on which A_t hangs, are not.
        most = max(16 * torch.finfo(dtype).eps, 1e-5), tolerance_of_sums(dtype)
        wrong = [one for one in found if not (one[0] <= most[0] and one[1] <= most[1])]
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
    """Heads, rows, keys, causal or not, masked or not: one token, several, many."""
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
    """How far the kernel is from plain products, in its rows and in their log-sum-exp."""
    generator = torch.Generator().manual_seed(rows)  # nobody else's stream
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
    """A boolean mask (True where a query may look) as numbers to add to the scores."""
    zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    return zeros.masked_fill_(~mask, -torch.inf)

"""Attention on single source tokens: weights, importance, and hiding some (knockout)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lookback.engines import UnsupportedModelError
from lookback.engines.transformers.attention.kernels import MATH_SCORES, additive, scores_of
from lookback.engines.transformers.attention.tap import Call, LastRow
from lookback.engines.transformers.decoding.prefix import Prefix, SharedPrefix, fold, unfold


def deal(call: Call, rows: slice, keys: Tensor, mass: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the attention of rows of a layer on each of some keys, summed over heads: (n, R, V).

    Args:
        call: the layer's call, of n continuations.
        rows: which of its rows.
        keys: (H_kv, V, D), the same for all continuations.
        mass: (n, H, R), the share of attention that these rows pay to all of the keys together.
        bias: (n or 1, H or 1, R or 1, V), added to the scores: -inf where a row may not look.
    """
    scale, softcap, _ = call.settings()
    query = call.query[:, :, rows]
    n, heads, count, _ = query.shape
    groups = (len(keys), -1)
    received = query.new_empty(n, count, keys.shape[1], dtype=torch.float32)
    step = max(1, MATH_SCORES // (n * heads * keys.shape[1]))
    for part in (slice(start, start + step) for start in range(0, count, step)):
        some = query[:, :, part]
        scores = scores_of(fold(some, len(keys)), keys[None], scale, softcap)
        scores = unfold(scores, some.shape[2], heads)  # (n, H_kv, g, r, V)
        if bias is not None:
            here = bias if bias.shape[2] == 1 else bias[:, :, part]
            scores = scores + (here[:, None] if here.shape[1] == 1 else here.unflatten(1, groups))
        # A row that sees none of the keys has no softmax; its mass is 0.
        weights = scores.softmax(-1).nan_to_num_(0.0)
        weights *= mass[:, :, part].unflatten(1, groups)[..., None]
        received[:, part] = weights.sum((1, 2))
    return received


class HeadMean:
    """The mean of rows over all heads of some layers (end exclusive), layer after layer."""

    def __init__(self, layers: tuple[int, int]) -> None:
        self.chosen = range(*layers)
        self._sum: Tensor | None = None
        self._heads = 0

    def add(self, rows: Tensor, heads: int) -> None:
        """Add one layer's rows (R, V), summed over so many heads."""
        self._sum = rows if self._sum is None else self._sum.add_(rows.to(self._sum.device))
        self._heads += heads

    def take(self) -> Tensor:
        """Return the mean (R, V), and start again."""
        if self._sum is None:
            raise ValueError(f"no layer of {self.chosen} was read")
        mean = self._sum / self._heads
        self._sum, self._heads = None, 0
        return mean


class LastRowWeights(LastRow):
    """Reads a prompt's last row, which predicts the first token, source token by source token.

    Args:
        source: (1, P), the source's positions.
        layers: the attention layers to read, end exclusive.
    """

    def __init__(self, source: Tensor, layers: tuple[int, int]) -> None:
        super().__init__(source, keys=source.shape[1], by_layer=True)
        self.rows = HeadMean(layers)

    def observe(self, call: Call, source: Tensor, bias: Tensor | None, share: Tensor) -> None:
        # The layer's share (1, H), dealt out over its source tokens.
        if self.layers_read not in self.rows.chosen or not source.any():
            return
        columns = source[0].nonzero()[:, 0]
        keys = call.key[0].index_select(1, columns)
        if bias is not None:
            bias = bias.index_select(-1, columns)[:, :, None]
        last = slice(call.query.shape[2] - 1, None)
        dealt = deal(call, last, keys, share[..., None], bias)
        self.rows.add(dealt[0], call.query.shape[1])


class RowWeights(SharedPrefix):
    """Reads every row of one continuation, source token by source token.

    `layers`: the attention layers to read, end exclusive.
    """

    watches = True

    def __init__(self, prefix: Prefix, layers: tuple[int, int]) -> None:
        super().__init__(prefix)
        self.rows = HeadMean(layers)

    def observe(self, call: Call, source_keys: Tensor, mass: Tensor) -> None:
        if self.layers_read in self.rows.chosen:
            bias = source_bias(self.prefix, call.mask)
            dealt = deal(call, slice(None), source_keys, mass, bias)
            self.rows.add(dealt[0], call.query.shape[1])


def source_bias(prefix: Prefix, mask: Tensor | None) -> Tensor | None:
    """Return the prefix's source columns of a mask (n or 1, 1, R, K), additive."""
    if mask is None:
        return None
    return additive(mask.index_select(-1, prefix.order[: prefix.source].to(mask.device)))


class Importance(SharedPrefix):
    """Adds up the attention that each source token receives from the rows of each continuation.

    Args:
        prefix: the prompt.
        n: how many continuations.
        layers: the attention layers to read, end exclusive.

    Attributes:
        received: (n, source), summed over the layers, heads and rows read so far.
        valid: (n, R), the rows of the next pass that count (others are padding); set before it.
    """

    watches = True

    def __init__(self, prefix: Prefix, n: int, layers: tuple[int, int]) -> None:
        super().__init__(prefix)
        self.chosen = range(*layers)
        device = prefix.logits.device
        self.received = torch.zeros(n, prefix.source, dtype=torch.float32, device=device)
        self.valid = torch.zeros(n, 0, dtype=torch.bool, device=device)

    def observe(self, call: Call, source_keys: Tensor, mass: Tensor) -> None:
        if self.layers_read not in self.chosen:
            return
        n, heads, rows, _ = call.query.shape
        bias = source_bias(self.prefix, call.mask)
        step = max(1, MATH_SCORES // (heads * rows * self.prefix.source))
        for part in (slice(i, i + step) for i in range(0, n, step)):
            some = replace(call, query=call.query[part])
            hidden = bias if bias is None or len(bias) == 1 else bias[part]
            weights = deal(some, slice(None), source_keys, mass[part], hidden)  # (s, R, source)
            counts = self.valid[part, :, None].to(weights.device)
            received = weights.masked_fill(~counts, 0.0).sum(1)
            self.received[part] += received.to(self.received.device)


class HiddenKeys(LastRow):
    """Reads a prompt's last row while some of its tokens are hidden from all rows.

    Args:
        source: (1, P), the source's positions.
        hidden: (P,), the hidden positions: hidden from their own rows, too.
    """

    def __init__(self, source: Tensor, hidden: Tensor) -> None:
        super().__init__(source, keys=source.shape[1], by_layer=True)
        self.hidden = hidden

    def mask(self, base: Callable[..., Any], **kwargs: Any) -> Any:
        # The model's own mask, made with these tokens as padding.
        seen, given = ~self.hidden[None], kwargs.get("attention_mask")
        if given is not None:
            seen = seen.to(given.device) & given.bool()
        batch = kwargs["batch_size"]
        shown = seen.expand(batch, -1).to(kwargs.get("device", seen.device))
        return base(**kwargs | {"attention_mask": shown, "allow_is_causal_skip": False})

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        if not self._hides(call.mask):
            raise UnsupportedModelError(
                f"{call.layer} attends with a mask of its own making, which shows tokens that were "
                "to be hidden: ask for rows='response'"
            )
        return super().attend(call)

    def _hides(self, mask: Tensor | None) -> bool:
        """Whether this mask hides them from all other rows.

        Every row is checked: they may be outside the window of the last one alone.
        """
        if mask is None:
            return False
        hidden = self.hidden.to(mask.device)
        rows = mask if mask.ndim == 2 else mask[:, :, ~hidden[-mask.shape[2] :]]
        keys = rows[..., hidden]
        shown = keys > torch.finfo(keys.dtype).min / 2 if keys.is_floating_point() else keys.bool()
        return not bool(shown.any())

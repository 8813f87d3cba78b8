"""At which source tokens a row looks: its share of attention on the source, dealt out to them.

The tap tells how much of a row's attention the source has. Within the source it is dealt out as the
softmax of the row's scores there, which only needs the source's own keys. So what the tokens get
always adds up to what was recorded, whatever rounding a kernel does, and no map of a whole context
is ever built. Rows are reduced over their heads layer by layer: what stays is (rows, source).
"""

from __future__ import annotations

import torch
from torch import Tensor

from lookback.engines.transformers.kernels import additive
from lookback.engines.transformers.prefix import Prefix, SharedPrefix, fold, unfold
from lookback.engines.transformers.products import MATH_SCORES, scores_of
from lookback.engines.transformers.tap import Call, LastRow


def deal(call: Call, rows: slice, keys: Tensor, mass: Tensor, bias: Tensor | None = None) -> Tensor:
    """The attention of some rows of a layer on each of some keys, summed over heads: (n, R, V).

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
    found = query.new_empty(n, count, keys.shape[1], dtype=torch.float32)
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
        found[:, part] = weights.sum((1, 2))
    return found


class HeadMean:
    """The mean of rows over all heads of some layers, layer after layer.

    Args:
        layers: the attention layers that count, end exclusive.
    """

    def __init__(self, layers: tuple[int, int]) -> None:
        self.chosen = range(*layers)
        self._sum: Tensor | None = None
        self._heads = 0

    def add(self, rows: Tensor, heads: int) -> None:
        """Take one layer's rows (R, V), summed over so many heads."""
        self._sum = rows if self._sum is None else self._sum.add_(rows.to(self._sum.device))
        self._heads += heads

    def take(self) -> Tensor:
        """The mean (R, V); then all begins anew."""
        if self._sum is None:
            raise ValueError(f"no layer of {self.chosen} was read")
        found = self._sum / self._heads
        self._sum, self._heads = None, 0
        return found


class LastRowWeights(LastRow):
    """Reads a prompt's last row, which predicts the first token, source token by source token.

    Args:
        source: (1, P), the source's positions.
        layers: the attention layers to read, end exclusive.

    Attributes:
        rows: what was read.
    """

    def __init__(self, source: Tensor, layers: tuple[int, int]) -> None:
        super().__init__(source, keys=source.shape[1], by_layer=True)
        self.rows = HeadMean(layers)

    def observe(self, call: Call, source: Tensor, bias: Tensor | None, share: Tensor) -> None:
        """Deal out one layer's share (1, H)."""
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

    Args:
        prefix: the prompt.
        layers: the attention layers to read, end exclusive.

    Attributes:
        rows: what was read of the pass that just ended.
    """

    watches = True

    def __init__(self, prefix: Prefix, layers: tuple[int, int]) -> None:
        super().__init__(prefix)
        self.rows = HeadMean(layers)

    def observe(self, call: Call, source_keys: Tensor, mass: Tensor) -> None:
        """Deal out one layer's mass."""
        if self.layers_read in self.rows.chosen:
            bias = source_bias(self.prefix, call.mask)
            dealt = deal(call, slice(None), source_keys, mass, bias)
            self.rows.add(dealt[0], call.query.shape[1])


def source_bias(prefix: Prefix, mask: Tensor | None) -> Tensor | None:
    """What hides the prefix's source from rows: of a mask (n or 1, 1, R, K), additive."""
    if mask is None:
        return None
    return additive(mask.index_select(-1, prefix.order[: prefix.source].to(mask.device)))

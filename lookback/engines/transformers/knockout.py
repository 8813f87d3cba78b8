"""Which source tokens a response looks at most: attention a key receives, summed as it is computed.

The tap's per-row share says how much a row looks at the picture; this says at which part. Weights
are rebuilt from the layer's keys and the rows' log-sum-exps, reduced at once, and never kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lookback.engines.transformers.prefix import Prefix, SharedPrefix, fold, unfold
from lookback.engines.transformers.products import MATH_SCORES, scores_of
from lookback.engines.transformers.tap import Call


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
        self.received = torch.zeros(n, prefix.source, device=device)
        self.valid = torch.zeros(n, 0, dtype=torch.bool, device=device)

    def observe(self, call: Call, source_keys: Tensor, lse: Tensor) -> None:
        """Sum one layer's attention weights over its heads and the valid rows."""
        if self.layers_read not in self.chosen:
            return
        scale, softcap, _ = call.settings()
        kv_heads, source, _ = source_keys.shape
        n, heads, rows, _ = call.query.shape
        order = self.prefix.order[:source]
        step = max(1, MATH_SCORES // (heads * rows * source))
        for part in (slice(i, i + step) for i in range(0, n, step)):
            scores = scores_of(fold(call.query[part], kv_heads), source_keys[None], scale, softcap)
            scores = unfold(scores, rows, heads)  # (s, H_kv, g, R, source)
            weights = (scores - lse[part, ..., None]).exp()
            counts = self.valid[part, :, None].to(weights.device)
            if call.mask is not None:
                mask = call.mask.expand(n, -1, -1, -1)[part, 0]
                counts = counts & mask.index_select(-1, order.to(mask.device))
            # Hidden keys may have any score: they are dropped, not multiplied by zero.
            weights = weights.masked_fill(~counts[:, None, None], 0.0)
            self.received[part] += weights.sum((1, 2, 3)).to(self.received.device)

"""Which source tokens a response looks at most: attention a key receives, summed as it is computed.

The tap's per-row share says how much a row looks at the picture; this says at which part. Weights
are dealt out from that share (`weights.deal`), summed at once, and never kept.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lookback.engines.transformers.prefix import Prefix, SharedPrefix
from lookback.engines.transformers.products import MATH_SCORES
from lookback.engines.transformers.tap import Call
from lookback.engines.transformers.weights import deal, source_bias


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
        """Sum one layer's attention weights over its heads and the valid rows."""
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

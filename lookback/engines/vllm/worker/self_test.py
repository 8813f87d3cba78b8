"""Compare the tap with a plain computation, in the worker.

While a request is alone in the engine, each layer's queries and keys are kept, and the attention of
the rows asked about is computed from them with nothing but a softmax.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from lookback.engines.vllm.worker.tap import Tap

TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}
"""Of a layer's attention on the source, in [0, 1]; half precision rounds each head's."""


class SelfTest:
    """Sees what a tap sees; `results` has (layer, tap, plain) for each row and layer."""

    def __init__(self, tap: Tap) -> None:
        self.tap = tap
        self.results: list[tuple[int, float, float]] = []
        self._keys: dict[int, Tensor] = {}
        self._source = torch.empty(0, dtype=torch.bool)

    def __call__(self, number: int, layer: Any, query: Tensor, key: Tensor, shares: Tensor) -> None:
        """Compute the same for one layer of a step.

        Args:
            number: of the layer.
            layer: its attention.
            query: (rows, heads, D).
            key: (tokens, key heads, D).
            shares: (rows, heads), what the tap read.
        """
        step = self.tap.step
        assert step is not None
        if number == 0:
            self._source = torch.cat([self._source, step.source])
        before = self._keys.get(number)
        keys = key.float() if before is None else torch.cat([before, key.float()])
        self._keys[number] = keys
        weights = attention(query.float(), keys, layer.impl)
        mass = weights[..., self._source.to(weights.device)].sum(-1)  # (heads, rows)
        plain, tapped = mass.mean(0), shares.float().mean(1)
        pairs = zip(tapped.tolist(), plain.tolist(), strict=True)
        self.results += [(number, one, other) for one, other in pairs]


def attention(query: Tensor, keys: Tensor, impl: Any) -> Tensor:
    """Return attention weights of a text's last rows, (heads, rows, tokens), by their definition.

    Args:
        query: (rows, heads, D).
        keys: of the whole text, (tokens, key heads, D).
        impl: has scale, soft cap, window, sinks and slopes.
    """
    rows, heads, _ = query.shape
    tokens = len(keys)
    keys = keys.repeat_interleave(heads // keys.shape[1], dim=1)
    logits = torch.einsum("rhd,thd->hrt", query, keys) * impl.scale
    cap = impl.logits_soft_cap
    if cap:
        logits = cap * torch.tanh(logits / cap)
    at = torch.arange(tokens - rows, tokens, device=keys.device)[:, None]
    distance = at - torch.arange(tokens, device=keys.device)
    if impl.alibi_slopes is not None:
        logits = logits - impl.alibi_slopes.to(keys.device)[:, None, None] * distance
    hidden = distance < 0
    window = _window(impl.sliding_window)
    if window is not None:
        hidden = hidden | (distance >= window)
    logits = logits.masked_fill(hidden, -math.inf)
    if impl.sinks is None:
        plain: Tensor = logits.softmax(-1)
        return plain
    sinks = impl.sinks.to(logits).view(heads, 1, 1).expand(heads, rows, 1)
    weights: Tensor = torch.cat([logits, sinks], -1).softmax(-1)[..., :-1]
    return weights


def _window(window: Any) -> int | None:
    """Return how many tokens a row sees, itself included; backends write it in two ways."""
    if window is None:
        return None
    if isinstance(window, int):
        return window if window > 0 else None
    return int(window[0]) + 1 if window[0] >= 0 else None

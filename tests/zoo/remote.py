"""An attention as remote code writes it: by hand, past every interface of transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class RemoteAttention(nn.Module):
    """Takes the projections of a Llama attention and computes the rest itself.

    It asks no attention interface, so neither `attn_implementation` nor a registered function has
    any effect, and it returns no weights.
    """

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.layer_idx, self.head_dim = attention.layer_idx, attention.head_dim
        self.q_proj, self.k_proj = attention.q_proj, attention.k_proj
        self.v_proj, self.o_proj = attention.v_proj, attention.o_proj

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Causal attention over the cache and the new tokens."""
        cos, sin = (part.unsqueeze(1) for part in position_embeddings)
        query, key, value = (
            project(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = (part * cos + _rotate_half(part) * sin for part in (query, key))
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        groups = query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
        new, total = query.shape[2], key.shape[2]
        seen = torch.ones(new, total, dtype=torch.bool).tril(total - new)
        if attention_mask is not None:
            seen = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
        scores = query @ key.transpose(2, 3) * self.head_dim**-0.5
        weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1)
        mixed = (weights @ value).transpose(1, 2).flatten(2)
        return self.o_proj(mixed), None


def _rotate_half(states: Tensor) -> Tensor:
    """Rotates the two halves of each head, as rotary positions want."""
    first, second = states.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)

"""Which optimizer a weight gets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

DECAY = 0.01


def make_optimizers(
    groups: Sequence[tuple[nn.Module, float]], muon: float
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of linear layers, AdamW for everything else, queries and keys too.

    Muon learns as much from a third fewer pictures. Given the queries and keys as well, it makes
    all heads look at the picture all the time: A_t is then high and tells little (measured after
    500 steps: nouns and numbers 0.35 standard deviations above the mean in place of 0.65).

    Args:
        groups: modules, each with its share of the learning rate, which is kept as `share`.
        muon: how many times that of AdamW the learning rate of Muon is.
    """
    matrices, rest = [], []
    for module, share in groups:
        own = {
            id(part.weight)
            for name, part in module.named_modules()
            if isinstance(part, nn.Linear) and not name.endswith(("q_proj", "k_proj"))
        }
        parameters = list(module.parameters())
        matrices.append((share * muon, [p for p in parameters if id(p) in own]))
        rest.append((share, [p for p in parameters if id(p) not in own]))
    return [
        torch.optim.Muon(_named(matrices), weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(_named(rest), betas=(0.9, 0.98), weight_decay=DECAY),
    ]


def _named(groups: list[tuple[float, list[nn.Parameter]]]) -> list[dict[str, object]]:
    return [{"params": parameters, "share": share} for share, parameters in groups]

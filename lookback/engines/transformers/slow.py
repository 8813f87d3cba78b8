"""The slow way: signals from the maps and logits of the model's own, step-by-step generation.

Nothing of LookBack's own computation is in it, so it can be held against it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookback.engines.transformers.compat import attention_name, set_attention_name, uncompiled
from lookback.engines.transformers.support import decoder_configs
from lookback.signals import BY_LAYER, SIGNALS


def slow_signals(
    model: Any, inputs: dict[str, Any], sources: torch.Tensor, responses: Sequence[Sequence[int]]
) -> list[dict[str, NDArray[Any]]]:
    """The signals of responses, one per prompt, each made to be written by `model.generate`.

    And A_t by layer.

    Args:
        model: the model.
        inputs: of B prompts, as a processor made them.
        sources: (B, P), which tokens of each prompt are the source.
        responses: B lists of token ids.

    Raises:
        FloatingPointError: its own logits are not numbers.
        RuntimeError: its generate writes something else.
    """
    length = max(len(ids) for ids in responses)
    if not length:
        return [_nothing() for _ in responses]
    forced = [[*ids, *[7] * (length - len(ids))] for ids in responses]
    prompt = inputs["input_ids"].shape[1]
    config = copy.deepcopy(model.generation_config)
    config.eos_token_id = None
    with torch.no_grad(), uncompiled(model), _eager(model):
        out = model.generate(
            **inputs,
            generation_config=config,
            prefix_allowed_tokens_fn=lambda row, ids: [forced[row][len(ids) - prompt]],
            max_new_tokens=length,
            do_sample=False,
            output_attentions=True,
            output_logits=True,
            return_dict_in_generate=True,
        )
    if any(step.isnan().any() for step in out.logits):
        # Eager attention of padded prompts, for one, in float64: its softmax is in float32.
        raise FloatingPointError("its own eager attention gives logits that are not numbers")
    if out.sequences[:, prompt:].tolist() != forced:
        raise RuntimeError("its generate() does not write the tokens that it is made to write")
    found = []
    for row, ids in enumerate(responses):
        if not len(ids):
            found.append(_nothing())
            continue
        shares = [
            _shares([m if m is None else m[row] for m in maps], sources[row], prompt + t)
            for t, maps in enumerate(out.attentions[: len(ids)])
        ]
        looked = {
            "visual_lookback": np.array([float(torch.cat(step).mean()) for step in shares]),
            BY_LAYER: np.array([[float(layer.mean()) for layer in step] for step in shares]),
        }
        logits = torch.stack([step[row] for step in out.logits[: len(ids)]])
        found.append(_from_logits(logits, ids) | looked)
    return found


def _nothing() -> dict[str, NDArray[Any]]:
    """The signals of an empty response."""
    return {name: np.empty(0) for name in SIGNALS}


def _from_logits(logits: torch.Tensor, ids: Sequence[int]) -> dict[str, NDArray[Any]]:
    """log p, self-certainty and entropy of each token, from (T, V), in float64."""
    log_p = logits.double().cpu().log_softmax(-1)
    return {
        "log_prob": log_p.gather(-1, torch.tensor(list(ids))[:, None])[:, 0].numpy(),
        "self_certainty": (-log_p.mean(-1) - float(np.log(log_p.shape[-1]))).numpy(),
        "entropy": -(log_p.exp() * log_p).sum(-1).numpy(),
    }


def _shares(maps: Sequence[Any], source: torch.Tensor, positions: int) -> list[torch.Tensor]:
    """The heads' shares (H,) of one step in each layer, from its map (H, R, K), the last row."""
    shares = []
    for attention in maps:
        if attention is None:  # a layer that does not attend
            continue
        row = attention[:, -1].double().cpu()  # (H, K)
        columns = torch.zeros(positions, dtype=torch.bool)
        columns[: len(source)] = source.cpu()
        # A layer with a window holds the newest keys alone.
        shares.append(row[:, columns[positions - row.shape[1] :]].sum(-1))
    return shares


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """The decoder with eager attention, which returns its maps."""
    configs = decoder_configs(model)
    before = [attention_name(config) for config in configs]
    for config in configs:
        set_attention_name(config, "eager")
    try:
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            set_attention_name(config, name)

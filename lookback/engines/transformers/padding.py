"""A prompt without its padding: what is not there cannot be looked at, and shifts no position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def without_padding(inputs: Mapping[str, Any], source: Tensor) -> tuple[dict[str, Any], Tensor]:
    """One prompt's inputs, and the mask of its source (P,), less the padding at either end.

    Causal decoders see the rest as if the padding had never been there: generation counts their
    positions without it.

    Raises:
        ValueError: the attention mask does more than pad, or pads source tokens.
    """
    ids: Tensor = inputs["input_ids"]
    mask = inputs.get("attention_mask")
    if mask is None:
        return dict(inputs), source
    if mask.shape != ids.shape:
        raise ValueError(
            f"attention_mask has the shape {tuple(mask.shape)}, the prompt's tokens "
            f"{tuple(ids.shape)}: only a mask of padding is understood"
        )
    seen = mask[0].bool()
    if seen.all():
        return dict(inputs), source
    places = seen.nonzero()[:, 0]
    if not len(places):
        raise ValueError("attention_mask hides the whole prompt: nothing is asked")
    first, last = int(places[0]), int(places[-1]) + 1
    if last - first != len(places):
        raise ValueError(
            "attention_mask hides tokens inside the prompt: leave them out, only padding before "
            "and after it is understood"
        )
    if source.to(seen.device)[~seen].any():
        raise ValueError("attention_mask hides source tokens: they are padding or source, not both")
    kept = slice(first, last)
    return {name: _cut(name, value, ids, kept) for name, value in inputs.items()}, source[kept]


def _cut(name: str, value: Any, ids: Tensor, kept: slice) -> Any:
    """What belongs to the tokens one by one loses those of the padding."""
    if not isinstance(value, Tensor):
        return value
    if value.shape == ids.shape or (name == "position_ids" and value.shape[-1] == ids.shape[1]):
        return value[..., kept]
    return value

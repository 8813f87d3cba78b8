"""What is asked of a model once, when it is taken in: can it be read, where, and which is it?"""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from lookback.engines import UnsupportedModelError
from lookback.families import image_token_id

WHOLE = 64 * 2**20  # weight files up to this size are hashed whole, larger ones by name and size


def text_config(model: PreTrainedModel) -> PretrainedConfig:
    """The config of the model's text decoder."""
    return model.config.get_text_config(decoder=True)


def decoder_configs(model: PreTrainedModel) -> list[PretrainedConfig]:
    """Every config object that the decoder's modules read (a model may hold several copies)."""
    text = text_config(model)
    found: dict[int, PretrainedConfig] = {id(text): text}
    for module in model.modules():
        config = getattr(module, "config", None)
        if type(config) is type(text):
            found[id(config)] = config
    return list(found.values())


def attention_layers(model: PreTrainedModel) -> int:
    """In how many layers the decoder attends.

    Layers of linear attention or convolution do not; hybrid ones do both.
    """
    config = text_config(model)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return int(config.num_hidden_layers)
    return sum(
        kind.startswith("hybrid") or (kind.endswith("attention") and kind != "linear_attention")
        for kind in kinds
    )


def rope_switches(model: PreTrainedModel) -> list[int]:
    """Lengths beyond which the decoder turns *all* positions in another way (longrope).

    Keys that were cached before such a length do not fit to queries after it.
    """
    parameters = getattr(text_config(model), "rope_parameters", None) or {}
    sets = [parameters, *parameters.values()]  # one for all layers, or one for each kind
    return [
        int(one["original_max_position_embeddings"])
        for one in sets
        if isinstance(one, dict)
        and one.get("rope_type") == "longrope"
        and one.get("original_max_position_embeddings")
    ]


def check_supported(model: Any) -> int:
    """The id of the model's image token, if the model can be tapped.

    Raises:
        TypeError: this is no transformers model.
        UnsupportedModelError: its image does not enter the decoder's own context, or it cannot
            be sent on after a prompt.
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"expected a transformers model, got {type(model).__name__}")
    name, text = type(model).__name__, text_config(model)
    if model.config.is_encoder_decoder or text.is_encoder_decoder:
        raise UnsupportedModelError(
            f"{name} is an encoder-decoder: its decoder sees the image through cross-attention only"
        )
    if getattr(text, "cross_attention_layers", None):
        raise UnsupportedModelError(
            f"{name} sees the image through cross-attention layers, not as tokens of the decoder's "
            "context: it has no visual lookback in the sense of Eq. 3"
        )
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        raise UnsupportedModelError(
            f"{name} takes no past_key_values: a response cannot go on after its prompt, only the "
            "language model inside can"
        )
    try:
        return image_token_id(model.config)
    except ValueError as error:
        raise UnsupportedModelError(f"{name}: {error}") from None


def end_token_ids(model: PreTrainedModel, eos: Any = None) -> list[int]:
    """The ids that end a turn: given, or of the generation config, or of the text config.

    Raises:
        ValueError: they are no whole numbers.
    """
    return first_end_tokens(
        eos, model.generation_config.eos_token_id, text_config(model).eos_token_id
    )


def first_end_tokens(*places: Any) -> list[int]:
    """The ids that end a turn, of the first place that has any.

    Raises:
        ValueError: they are no whole numbers.
    """
    return next((_whole_numbers(ids) for ids in places if ids is not None), [])


def _whole_numbers(ids: Any) -> list[int]:
    try:
        found = torch.as_tensor(ids).reshape(-1)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = torch.zeros(1)
    if found.numel() and found.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"the model's eos_token_id is {ids!r:.60}: a whole number or a list of them is needed, "
            "see its generation_config.json"
        )
    return [int(one) for one in found]


def fingerprint(folder: Path) -> str | None:
    """Of a model's files, the same for the same weights; None if it is in no folder."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("config.json")])
    if not files or not folder.is_dir():
        return None
    found = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        found.update(f"{file.name} {size}\n".encode())
        if size <= WHOLE:
            found.update(file.read_bytes())
    return found.hexdigest()[:16]

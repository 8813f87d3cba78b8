"""What is asked of a model once, when it is taken in: can it be read, where, and which is it?"""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel

from lookback.engines import UnsupportedModelError
from lookback.engines.transformers.compat import attention_name, weight_without_numbers
from lookback.families import image_token_id

WHOLE = 64 * 2**20  # weight files up to this size are hashed whole, of larger ones blocks
BLOCKS, BLOCK = 64, 2**18  # so many of so many bytes, evenly spread from the first byte to the last


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


def check_attention(name: str | None) -> None:
    """Raise UnsupportedModelError if the attention function of that name cannot be read."""
    if name == "flex_attention":
        raise UnsupportedModelError(
            "attn_implementation = 'flex_attention' cannot be read, as its masks are compiled "
            "blocks: load the model with attn='sdpa', or call model.set_attn_implementation('sdpa')"
        )


def check_evaluating(model: PreTrainedModel) -> None:
    """Raise ValueError if the model, or a part of it, is in training mode: dropout changes it."""
    for name, module in model.named_modules():
        if module.training:
            part = f" ({name})" if name else ""
            raise ValueError(f"the model{part} is in training mode: call model.eval() first")


def check_supported(model: Any) -> int:
    """The id of the model's image token, if the model can be tapped.

    Raises:
        TypeError: this is no transformers model.
        UnsupportedModelError: its image does not enter the decoder's own context, it cannot be
            sent on after a prompt, or it has no weights.
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
    if not isinstance(model, GenerationMixin):
        raise UnsupportedModelError(
            f"{name} does not write one token after another by transformers' own generate (it is "
            "no GenerationMixin): no row of its attention predicts a token from those before it"
        )
    check_attention(attention_name(text))
    weight = weight_without_numbers(model)
    if weight is not None:
        raise UnsupportedModelError(
            f"{name} has no numbers in {weight}: it is on the meta device; load its weights first, "
            "with from_pretrained or load_state_dict(..., assign=True)"
        )
    try:
        return image_token_id(model.config)
    except ValueError as error:
        raise UnsupportedModelError(f"{name}: {error}") from None


def end_token_ids(model: PreTrainedModel) -> list[int]:
    """The ids that end a turn: of the generation config, or of the text config.

    Raises:
        ValueError: they are no whole numbers.
    """
    return first_end_tokens(model.generation_config.eos_token_id, text_config(model).eos_token_id)


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
    """Of a model's files, the same for the same weights; None if it is in no folder.

    Of large files only some blocks are read, which training changes; other bytes do not count.
    """
    weights = [*folder.glob("*.safetensors")] or [*folder.glob("pytorch_model*.bin")]
    files = sorted([*weights, *folder.glob("config.json")])
    if not files or not folder.is_dir():
        return None
    found = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        found.update(f"{file.name} {size}\n".encode())
        if size <= WHOLE:
            found.update(file.read_bytes())
            continue
        with file.open("rb") as opened:
            for i in range(BLOCKS):
                opened.seek(i * (size - BLOCK) // (BLOCKS - 1))
                found.update(opened.read(BLOCK))
    return found.hexdigest()[:16]

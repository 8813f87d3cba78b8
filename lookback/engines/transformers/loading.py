"""Load a model by name: its device and data type, and the embedded model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForImageTextToText,
    GenerationConfig,
    PreTrainedModel,
)

from lookback.embedded import LVLM
from lookback.engines import UnsupportedModelError
from lookback.engines.common.model_files import LOADING, explaining, find_folder, hub_options
from lookback.errors import first_line

STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")
"""Values of device_map that are not devices."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""Data types of weights; smaller ones need a quantization_config."""


def load_model(
    name: str,
    *,
    device: Any = None,
    device_map: Any = None,
    dtype: Any = None,
    quantization_config: Any = None,
    **options: Any,
) -> PreTrainedModel:
    """Return the model of a folder or hub id, on its device.

    Args:
        name: a folder or hub id.
        device: by default a GPU if there is one.
        device_map: instead of a device, as from_pretrained takes it.
        dtype: of the weights; by default the checkpoint's own on a GPU, float32 on a CPU.
        quantization_config: as from_pretrained takes it. Such weights are made on their device, as
            most of them cannot be moved.
        options: further ones of from_pretrained.

    Raises:
        OSError: there is no such folder or hub id.
        UnsupportedModelError: it is no model for images and text.
        ValueError: device and device_map are both given, one of the settings is unknown, or a file
            is damaged.
    """
    if device is not None and device_map is not None:
        raise ValueError(f"device = {device!r} and device_map = {device_map!r}: give one of them")
    target = _target(device, device_map)
    if device_map is None and quantization_config is None:
        check_usable(target)  # before minutes of loading
    if quantization_config is not None:
        options["quantization_config"] = quantization_config
        if device_map is None and target.type != "cpu":
            device_map = str(target)
    if device_map is not None:
        options["device_map"] = device_map
    chosen = as_dtype(dtype) or (torch.float32 if target.type == "cpu" else "auto")
    try:
        with LOADING, explaining(name):
            options |= hub_options(name, options.get("revision"))
            model: PreTrainedModel = AutoModelForImageTextToText.from_pretrained(
                find_folder(name), dtype=chosen, **options
            )
    except ValueError:
        _refuse_other_kinds(name, options)
        raise
    quantized = getattr(model, "is_quantized", False)
    if device_map is not None or (quantized and model.device.type == target.type):
        return model
    return move(model, target)


def _refuse_other_kinds(name: str, options: Mapping[str, Any]) -> None:
    """Raise UnsupportedModelError if a model that could not be loaded is not for images and text.

    The library's own message is a list of all kinds of models.
    """
    hub = ("revision", "trust_remote_code", "local_files_only")
    try:
        config = AutoConfig.from_pretrained(
            find_folder(name), **{key: options[key] for key in hub if key in options}
        )
    except Exception:
        return  # the first error says what is wrong
    own_code = AutoModelForImageTextToText.__name__ in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING and not own_code:
        raise UnsupportedModelError(
            f"{name!r} is a {config.model_type!r} model, not one for images and text: name a "
            "vision-language model, e.g. llava-hf/llava-1.5-7b-hf"
        ) from None


def load_embedded() -> PreTrainedModel:
    """Return the embedded model on the CPU, in float32: as `load_model` does, and faster.

    Raises:
        ValueError: the weights are not those of this model.
    """
    config = AutoConfig.from_pretrained(LVLM)
    with LOADING, explaining(str(LVLM)), torch.random.fork_rng(devices=[]):
        model: PreTrainedModel = AutoModelForImageTextToText.from_config(
            config, dtype=torch.float32
        )
        own = {_plain_name(name): name for name in model.state_dict()}
        stored = {_plain_name(k): v for k, v in load_file(LVLM / "model.safetensors").items()}
        tied = {_plain_name(name) for name in model.all_tied_weights_keys}
        if own.keys() - tied != stored.keys() - tied:
            odd = sorted((own.keys() - tied) ^ (stored.keys() - tied))
            raise ValueError(f"the weights in {LVLM} are another model's: {odd[0]}")
        model.load_state_dict({own[k]: v for k, v in stored.items()}, strict=False)
        model.generation_config = GenerationConfig.from_pretrained(LVLM)
    return model.eval()


def _plain_name(name: str) -> str:
    """Return a weight's name without the wrappers, which differ between transformers' releases."""
    wrappers = ("model", "language_model", "vision_model")
    return ".".join(part for part in name.split(".") if part not in wrappers)


def as_device(device: Any) -> torch.device:
    """Return a device by its name or number; raise ValueError if there is no such kind."""
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        (reason, *_) = str(error).splitlines()
        raise ValueError(f"device = {device!r}: {reason}") from None


def check_usable(device: torch.device) -> None:
    """Raise ValueError if a device cannot be used: it may be missing, or "meta"."""
    try:
        torch.zeros(1).to(device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(
            f"device = '{device}' cannot be used here ({first_line(error)}); write cpu, or leave "
            "it out"
        ) from None


def as_dtype(dtype: Any) -> torch.dtype | str | None:
    """Return a dtype by its name, "auto" and None as they are; raise ValueError if unknown."""
    if dtype is None or dtype == "auto":
        return dtype
    chosen = getattr(torch, str(dtype).removeprefix("torch."), None)
    if chosen not in DTYPES:
        raise ValueError(f"dtype = {dtype!r}: write float32, bfloat16, float16 or auto")
    return chosen


def move(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """Return the model on a device; raise ValueError if the device cannot be used."""
    check_usable(device)
    moved: PreTrainedModel = model.to(device)
    return moved


def _target(device: Any, device_map: Any) -> torch.device:
    """Return the device of a model, or of most of it."""
    for place in (device, device_map):
        if place is not None and not isinstance(place, dict) and place not in STRATEGIES:
            return as_device(place)
    return torch.device("cpu" if on_cpu() else "cuda")


def on_cpu() -> bool:
    """Whether models go to the CPU by default."""
    return not torch.cuda.is_available()

"""From a name to a model in memory: where it is, where it goes, and one at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedModel

LOADING = threading.RLock()
"""Held while transformers loads: it changes defaults of the whole process meanwhile (the dtype and
the device of new tensors), so that two loads at once spoil each other."""

STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")
"""What a device_map may say instead of a device."""


def load_model(
    name: str,
    *,
    device: Any = None,
    device_map: Any = None,
    dtype: Any = None,
    quantization_config: Any = None,
    **options: Any,
) -> PreTrainedModel:
    """The model of a folder or hub id, on its device.

    Args:
        name: of a folder or hub id.
        device: where to; by default a GPU if there is one.
        device_map: instead: as from_pretrained takes it.
        dtype: of the weights; by default the checkpoint's own on a GPU, float32 on a CPU.
        quantization_config: as from_pretrained takes it. Such weights are made on their device, as
            most of them cannot be moved.
        options: further ones of from_pretrained.

    Raises:
        OSError: there is no such folder or hub id.
        ValueError: device and device_map are both given, or one of the settings is unknown.
    """
    if device is not None and device_map is not None:
        raise ValueError(f"device = {device!r} and device_map = {device_map!r}: give one of them")
    target = _target(device, device_map)
    if quantization_config is not None:
        options["quantization_config"] = quantization_config
        if device_map is None and target.type != "cpu":
            device_map = str(target)
    if device_map is not None:
        options["device_map"] = device_map
    chosen = as_dtype(dtype) or (torch.float32 if target.type == "cpu" else "auto")
    with LOADING, explaining(name):
        model: PreTrainedModel = AutoModelForImageTextToText.from_pretrained(
            find_folder(name), dtype=chosen, **options
        )
    quantized = getattr(model, "is_quantized", False)
    if device_map is not None or (quantized and model.device.type == target.type):
        return model
    return move(model, target)


def load_processor(name: str, **options: Any) -> Any:
    """The processor of a folder or hub id.

    Raises:
        OSError: there is no such folder or hub id.
    """
    with LOADING, explaining(name):
        return AutoProcessor.from_pretrained(find_folder(name), **options)


def find_folder(name: str | os.PathLike[str]) -> str:
    """A name as from_pretrained takes it; one that can only be a folder's must be there.

    Raises:
        FileNotFoundError: there is no such folder.
        NotADirectoryError: it is a file.
    """
    text = os.path.expanduser(os.fspath(name))
    path = Path(text)
    if path.is_file():
        raise NotADirectoryError(
            f"{text} is a file: a model is a folder with a config.json, or a hub id (owner/name)"
        )
    is_path = isinstance(name, os.PathLike) or text.startswith((".", "/", "~"))
    is_path = is_path or "\\" in text or text.endswith("/") or text.count("/") > 1
    if is_path and not path.is_dir():
        raise FileNotFoundError(
            f"there is no folder {text} (looked for {path.absolute()}): name a folder with a "
            "model's config.json and weights, or a hub id (owner/name)"
        )
    return text


@contextmanager
def explaining(name: str) -> Iterator[None]:
    """Say in one line that a name is neither a folder nor to be had from the hub."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        path = Path(name).expanduser()
        if path.exists():
            raise
        (reason, *_) = str(error).strip().splitlines() or [type(error).__name__]
        raise OSError(
            f"cannot load {name!r}: there is no folder {path.absolute()}, and as a hub id it "
            f"failed ({reason}); check the name, run `hf download {name}` where there is a "
            "network, or `hf auth login` for a model that asks for consent"
        ) from error


def as_device(device: Any) -> torch.device:
    """A device by its name or number.

    Raises:
        ValueError: there is no such kind.
    """
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        (reason, *_) = str(error).splitlines()
        raise ValueError(f"device = {device!r}: {reason}") from None


def as_dtype(dtype: Any) -> torch.dtype | str | None:
    """A dtype by its name; "auto" and None as they are.

    Raises:
        ValueError: there is no such dtype.
    """
    if dtype is None or dtype == "auto" or isinstance(dtype, torch.dtype):
        return dtype
    found = getattr(torch, str(dtype).removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"dtype = {dtype!r}: write float32, bfloat16, float16 or auto")
    return found


def move(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """The model on a device."""
    moved: PreTrainedModel = model.to(device)
    return moved


def _target(device: Any, device_map: Any) -> torch.device:
    """Where a model will be, or most of it."""
    for given in (device, device_map):
        if given is not None and not isinstance(given, dict) and given not in STRATEGIES:
            return as_device(given)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")

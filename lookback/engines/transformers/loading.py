"""From a name to a model in memory: where it is, where it goes, and one at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from safetensors.torch import load_file
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForImageTextToText,
    AutoProcessor,
    GenerationConfig,
    PreTrainedModel,
)

from lookback.embedded import LVLM
from lookback.engines import UnsupportedModelError
from lookback.engines.transformers.turns import survive_forks
from lookback.registry import words

LOADING = threading.RLock()
"""Held while transformers loads: it changes defaults of the whole process meanwhile (the dtype and
the device of new tensors), so that two loads at once spoil each other."""
survive_forks(LOADING)

STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")
"""What a device_map may say instead of a device."""

CACHED = (
    "config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "tokenizer_config.json",
)
"""Files of a hub id of which one is in the cache if a model or a processor is."""

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""What weights can be loaded as; smaller ones need a quantization_config."""


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
    """Say in one line that a model which could not be loaded is of another kind, if it is.

    The library's own message is a list of all kinds that there are.

    Raises:
        UnsupportedModelError: it is.
    """
    hub = ("revision", "trust_remote_code", "local_files_only")
    try:
        config = AutoConfig.from_pretrained(
            find_folder(name), **{key: options[key] for key in hub if key in options}
        )
    except Exception:
        return  # what was raised first says what is wrong
    own_code = AutoModelForImageTextToText.__name__ in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING and not own_code:
        raise UnsupportedModelError(
            f"{name!r} is a {config.model_type!r} model, not one for images and text: name a "
            "vision-language model, e.g. llava-hf/llava-1.5-7b-hf"
        ) from None


def load_embedded() -> PreTrainedModel:
    """The embedded model on the CPU, in float32: what `load_model` gives, without its machinery.

    That would make the model twice, once without memory, which needs torch's compiler.

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
    """A weight's name without the wrappers that releases of transformers put around models."""
    wrappers = ("model", "language_model", "vision_model")
    return ".".join(part for part in name.split(".") if part not in wrappers)


def load_processor(name: str, **options: Any) -> Any:
    """The processor of a folder or hub id.

    Raises:
        OSError: there is no such folder or hub id.
        ValueError: its files are damaged, or have no tokenizer.
    """
    with LOADING, explaining(name):
        options |= hub_options(name, options.get("revision"))
        processor = AutoProcessor.from_pretrained(find_folder(name), **options)
    if getattr(processor, "tokenizer", None) is None:
        raise ValueError(
            f"{name!r} has a {type(processor).__name__} and no tokenizer in it: a processor for "
            "images and text is needed"
        )
    return processor


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


def hub_options(name: str, revision: str | None = None) -> dict[str, Any]:
    """Return what keeps from_pretrained from asking a hub that cannot be reached.

    It would ask seven times, for half a minute, for each file that is not in the cache. Here it is
    asked once; what is in the cache is then loaded from there.

    Raises:
        OSError: it cannot be reached, and nothing of this hub id is in the cache.
    """
    if Path(name).expanduser().exists():
        return {}
    try:
        get_hf_file_metadata(hf_hub_url(name, CACHED[0], revision=revision))
    except (HfHubHTTPError, OfflineModeIsEnabled, ValueError):
        # It answers, is not to be asked, or this is no hub id: from_pretrained says what is wrong.
        return {}
    except Exception as error:
        # Errors of connections are those of the HTTP library that the hub's library uses.
        if not (isinstance(error, OSError) or type(error).__module__.startswith("httpx")):
            return {}
        found = [try_to_load_from_cache(name, file, revision=revision) for file in CACHED]
        if not any(isinstance(path, str) for path in found):
            raise OSError(f"no connection: {words(error)}") from error
        return {"local_files_only": True}
    return {}


@contextmanager
def explaining(name: str) -> Iterator[None]:
    """Say in one line that a name is neither a folder nor to be had from the hub, or is damaged.

    A damaged file can fail anywhere in the libraries that read it, with any kind of error.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, ImportError, MemoryError):
        raise
    except Exception as error:
        path = Path(name).expanduser()
        in_words = isinstance(error, OSError) or type(error) is ValueError
        if not in_words:
            raise ValueError(
                f"cannot load {name!r}: {words(error)}; are all its files there, and whole?"
            ) from error
        if path.exists() or not isinstance(error, OSError):
            raise  # the library says what is wrong
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


def check_usable(device: torch.device) -> None:
    """Try a device: its name may be right and the device not there, or of a kind without numbers.

    Raises:
        ValueError: it cannot be used.
    """
    try:
        torch.zeros(1).to(device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        (reason, *_) = str(error).splitlines() or [type(error).__name__]
        raise ValueError(
            f"device = '{device}' cannot be used here ({reason}); write cpu, or leave it out"
        ) from None


def as_dtype(dtype: Any) -> torch.dtype | str | None:
    """A dtype by its name; "auto" and None as they are.

    Raises:
        ValueError: there is no such dtype.
    """
    if dtype is None or dtype == "auto":
        return dtype
    found = getattr(torch, str(dtype).removeprefix("torch."), None)
    if found not in DTYPES:
        raise ValueError(f"dtype = {dtype!r}: write float32, bfloat16, float16 or auto")
    return found


def move(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """The model on a device.

    Raises:
        ValueError: the device cannot be used.
    """
    check_usable(device)
    moved: PreTrainedModel = model.to(device)
    return moved


def _target(device: Any, device_map: Any) -> torch.device:
    """Where a model will be, or most of it."""
    for given in (device, device_map):
        if given is not None and not isinstance(given, dict) and given not in STRATEGIES:
            return as_device(given)
    return torch.device("cpu" if on_cpu() else "cuda")


def on_cpu() -> bool:
    """Whether a model goes to the CPU unless somebody says otherwise."""
    return not torch.cuda.is_available()

"""Signals from any transformers LVLM whose decoder attends to the vision tokens."""

from __future__ import annotations

import os
from typing import Any

import transformers

from lookback.embedded import LVLM
from lookback.engines import engine as register
from lookback.engines.common.compat import hub_commit, unwrapped
from lookback.engines.common.model_files import find_folder, load_processor
from lookback.engines.transformers.engine import TransformersEngine
from lookback.engines.transformers.loading import (
    as_device,
    as_dtype,
    load_embedded,
    load_model,
    move,
    on_cpu,
)
from lookback.engines.transformers.recording import Recorder, record
from lookback.engines.transformers.support import check_attention, check_release, check_supported
from lookback.errors import check_flag

__all__ = ["Recorder", "TransformersEngine", "load", "record"]


@register("transformers")
def load(
    model: Any = None,
    processor: Any = None,
    *,
    device: str | None = None,
    dtype: Any = None,
    attn: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    device_map: Any = None,
    quantization_config: Any = None,
    prompt: str | None = None,
    quiet: bool = False,
) -> TransformersEngine:
    """Models of the transformers library, in this process.

    Calls from several threads are served one after another.

    Args:
        model: a hub id, a folder, or a transformers model, as it is or inside `torch.compile` or
            PEFT (then give its processor too); by default the embedded one, which knows drawn
            scenes only.
        processor: the processor, or where to load it from; the model's own by default.
        device: "cpu", "cuda", ...; by default a GPU if there is one. A ready model is moved only
            if this is given.
        dtype: of the weights: a torch dtype or its name; by default the checkpoint's own on a GPU,
            float32 on a CPU.
        attn: the attention implementation the tap is put in front of; the model's own by default.
        revision: Hub revision: branch, tag or commit.
        trust_remote_code: run code that comes with the model. Attention of its own is refused.
        device_map: instead of a device: "auto", or which part goes where, as from_pretrained takes
            it (needs the accelerate package).
        quantization_config: how to quantise the weights, as from_pretrained takes it.
        prompt: how to ask, with `{image}`, `{question}` and `{response}`, where the processor has
            no chat template or another prompt is wanted.
        quiet: no progress bars and warnings of the library.

    Raises:
        UnsupportedModelError: its visual lookback cannot be read.
        OSError: there is no such folder or hub id.
    """
    if quiet:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()

    if model is None and not (LVLM / "config.json").exists():
        raise FileNotFoundError(
            f"the embedded model is missing from this installation ({LVLM}): give load() a hub "
            "id, a folder, or a transformers model with its processor"
        )
    check_flag("trust_remote_code", trust_remote_code)
    check_attention(attn)  # before minutes of loading
    hub = {"revision": revision, "trust_remote_code": trust_remote_code}
    label = "embedded" if model is None else None
    model = LVLM if model is None else model
    if isinstance(model, (str, os.PathLike)):
        name = find_folder(model)
        label = label or name
        processor = name if processor is None else processor
        options = {"attn_implementation": attn} if attn else {}
        settings = device, device_map, dtype, quantization_config, attn
        if label == "embedded" and all(value is None for value in settings) and on_cpu():
            model = load_embedded()
        else:
            model = load_model(
                name,
                device=device,
                device_map=device_map,
                dtype=dtype,
                quantization_config=quantization_config,
                **options,
                **hub,
            )
        revision = hub_commit(name, revision) or revision
    else:
        model = _ready(model, processor, device, dtype, attn)
        if device_map is not None or quantization_config is not None:
            raise ValueError("device_map and quantization_config are for a model given by name")
    check_supported(model)
    if isinstance(processor, (str, os.PathLike)):
        processor = load_processor(find_folder(processor), **hub)
    engine = TransformersEngine(
        model.eval(), processor, name=label, revision=revision, prompt=prompt
    )
    check_release(engine)
    return engine


def _ready(model: Any, processor: Any, device: Any, dtype: Any, attn: str | None) -> Any:
    """Return a model that is in memory already, with the settings applied."""
    model = unwrapped(model)
    check_supported(model)
    if processor is None:
        raise ValueError("a ready model needs its processor: load(model, processor)")
    if attn:
        model.set_attn_implementation(attn)
    chosen = as_dtype(dtype)
    if chosen is not None and chosen != "auto":
        model = model.to(dtype=chosen)
    return model if device is None else move(model, as_device(device))

"""Signals from any transformers LVLM whose decoder attends to the vision tokens."""

from __future__ import annotations

import os
from typing import Any

from lookback.embedded import LVLM
from lookback.engines import engine as register
from lookback.engines.transformers.compat import hub_commit, unwrapped
from lookback.engines.transformers.engine import TransformersEngine
from lookback.engines.transformers.recording import Recorder, record
from lookback.engines.transformers.support import check_supported

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
    prompt: str | None = None,
    quiet: bool = False,
) -> TransformersEngine:
    """Models of the transformers library, in this process.

    Args:
        model: a hub id, a folder, or a transformers model (then give its processor too); by
            default the embedded one, which knows drawn scenes only.
        processor: the processor, or where to load it from; the model's own by default.
        device: "cpu", "cuda", ...; by default a GPU if there is one. A ready model is moved only
            if this is given.
        dtype: of the weights: a torch dtype or its name; by default the checkpoint's own on a GPU,
            float32 on a CPU.
        attn: the attention implementation the tap is put in front of; the model's own by default.
        revision: of the hub id.
        trust_remote_code: run code that comes with the model. Attention of its own is refused.
        prompt: how to ask, with `{image}`, `{question}` and `{response}`, where the processor has
            no chat template or another prompt is wanted.
        quiet: no progress bars and warnings of the library.

    Raises:
        UnsupportedModelError: its visual lookback cannot be read.
    """
    import torch
    import transformers
    from transformers import AutoModelForImageTextToText, AutoProcessor

    if quiet:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()

    if model is None and not (LVLM / "config.json").exists():
        raise FileNotFoundError(
            f"the embedded model is missing from this installation ({LVLM}): give load() a hub "
            "id, a folder, or a transformers model with its processor"
        )
    hub = {"revision": revision, "trust_remote_code": trust_remote_code}
    label = "embedded" if model is None else None
    model = LVLM if model is None else model
    if isinstance(model, (str, os.PathLike)):
        name = os.fspath(model)
        label = label or name
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = dtype or (torch.float32 if device == "cpu" else "auto")
        processor = name if processor is None else processor
        options = {"attn_implementation": attn} if attn else {}
        model = AutoModelForImageTextToText.from_pretrained(name, dtype=dtype, **options, **hub)
        revision = hub_commit(name, revision) or revision
    else:
        if processor is None:
            raise ValueError("a ready model needs its processor: load(model, processor)")
        model = unwrapped(model)
        if attn:
            model.set_attn_implementation(attn)
        if dtype is not None:
            model = model.to(dtype=getattr(torch, dtype) if isinstance(dtype, str) else dtype)
    check_supported(model)
    if device is not None:
        model = model.to(device)
    if isinstance(processor, (str, os.PathLike)):
        processor = AutoProcessor.from_pretrained(os.fspath(processor), **hub)
    return TransformersEngine(model.eval(), processor, name=label, revision=revision, prompt=prompt)

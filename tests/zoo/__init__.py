"""Tiny vision-language models of real transformers classes, with their processors.

Nothing is downloaded: weights are drawn from a fixed seed and tokenizers are trained on a few
sentences. Use them to test code that has to work for every family::

    zoo = build("llava")
    inputs = zoo.processor(images=[[image]], text=[prompt], return_tensors="pt")
    zoo.model(**inputs)

A zoo is shared by all tests of a process: a test that changes the model must restore it.
"""

from __future__ import annotations

import functools
import traceback
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pytest
from transformers import PreTrainedModel

from . import configs, configs_extra, configs_more, decoders, models, processors, processors_more

NAMES: list[str] = list(configs.SUPPORTED)
EXTRA_NAMES: list[str] = list(configs_extra.EXTRA)
# The processor writes all images of a prompt as one run of tokens, so none can be told by itself.
ONE_RUN: list[str] = ["paligemma", "paligemma2"]
# What cannot be asked today, and what it says then.
KNOWN: dict[str, str] = {
    "got_ocr2": "Nested images are only supported with `multi_page`",
}
MORE_NAMES: list[str] = [name for name in configs_more.MORE if name not in KNOWN]
DECODER_NAMES: list[str] = list(decoders.DECODERS)
UNSUPPORTED_NAMES: list[str] = [*configs_extra.UNSUPPORTED, "remote"]
TOLERANCE = 1e-5  # of every signal against eager maps, in float32
ROUNDING = {"gemma4": 1e-3, "qwen3_5_moe": 1e-4}
"""Models whose random weights amplify rounding: their eager maps in float32 are off by about half
of this from those in float64, and so is every other way, each in its own direction."""
OLDEST = version("transformers").startswith("5.16.")


@dataclass
class Zoo:
    """A model and the processor that feeds it."""

    name: str
    model: PreTrainedModel
    processor: Any
    images: int = 1
    real_processor: bool = True


def generate_tolerance(name: str) -> float:
    """How near the signals of `name` are to what `generate` computes.

    In the extra families transformers' own sdpa and eager passes differ by up to 1e-3.
    """
    return 1e-3 if name in EXTRA_NAMES else TOLERANCE


@functools.cache
def build(name: str) -> Zoo:
    """The family `name`, one of `NAMES`, `EXTRA_NAMES`, `MORE_NAMES`, `KNOWN`, `DECODER_NAMES`."""
    return _build(name, [*NAMES, *EXTRA_NAMES, *MORE_NAMES, *KNOWN, *DECODER_NAMES])


@functools.cache
def build_unsupported(name: str) -> Zoo:
    """One of `UNSUPPORTED_NAMES`: no attention to cached vision tokens, or none to be seen."""
    return _build(name, UNSUPPORTED_NAMES)


def _build(name: str, names: list[str]) -> Zoo:
    """Processor first: the size of the vocabulary is known only when it has added its tokens."""
    if name not in names:
        raise ValueError(f"{name!r} is not one of {names}")
    if OLDEST and name in {*configs_more.MORE, *DECODER_NAMES, "llava_indexed"}:
        pytest.skip(f"{name}: compared at the newest release of transformers only")
    try:
        processor = (processors.BUILDERS | processors_more.BUILDERS)[name]()
    except ImportError as error:
        # At the oldest release some processors need torchvision, which nothing else here does.
        reason = "".join(traceback.format_exception(error))
        if OLDEST and "torchvision" in reason.lower():
            pytest.skip(f"{name}: transformers {version('transformers')} needs torchvision for it")
        raise
    make = models.remote if name == "remote" else functools.partial(models.model, name)
    return Zoo(name, make(processor.tokenizer), processor)

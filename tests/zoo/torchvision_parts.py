"""The few functions of torchvision that image and video processors call, with torch alone.

So the real classes of processors that transformers has only with torchvision can be run without it:
everything that they decide (sizes, tiles, padding, frames) is theirs, and only the arithmetic of
resizing, padding and normalising a tensor is done here.
"""

from __future__ import annotations

import enum
import importlib
import sys
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers.image_utils import PILImageResampling

from . import OLDEST


class InterpolationMode(enum.Enum):
    """Names that transformers asks for."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"
    BOX = "box"
    HAMMING = "hamming"


def resize(image: Tensor, size: Any, interpolation: Any = None, **kwargs: Any) -> Tensor:
    """Images of any leading dimensions, to (height, width), smoothed when they shrink."""
    smooth = interpolation in (InterpolationMode.BICUBIC, InterpolationMode.LANCZOS)
    flat = image.reshape(-1, *image.shape[-3:]).float()
    sides = [int(side) for side in size]
    mode = "bicubic" if smooth else "bilinear"
    found = functional.interpolate(flat, size=sides, mode=mode, antialias=True)
    if image.dtype == torch.uint8:
        found = found.round().clamp(0, 255).to(torch.uint8)
    return found.reshape(*image.shape[:-2], *sides)


def pad(image: Tensor, padding: Any, **kwargs: Any) -> Tensor:
    """Zeros at the left, top, right and bottom."""
    left, top, right, bottom = (int(side) for side in padding)
    return functional.pad(image, (left, right, top, bottom))


def crop(image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """A part of an image."""
    return image[..., top : top + height, left : left + width]


def normalize(image: Tensor, mean: Any, std: Any, inplace: bool = False) -> Tensor:
    """Each colour by its own mean and deviation."""
    mean, std = (torch.as_tensor(one, dtype=image.dtype)[:, None, None] for one in (mean, std))
    return (image - mean) / std


def grayscale_to_rgb(image: Tensor) -> Tensor:
    """Everything here is RGB already."""
    return image


def install(monkeypatch: Any) -> None:
    """Let transformers use these for the time of a test."""
    if OLDEST:
        pytest.skip("processors that need torchvision are tried at the newest release only")
    from transformers import image_processing_backends, video_processing_utils

    resampling = {
        getattr(PILImageResampling, mode.name): mode
        for mode in InterpolationMode
        if hasattr(PILImageResampling, mode.name)
    }
    for module in (image_processing_backends, video_processing_utils):
        monkeypatch.setattr(module, "tvF", _module(), raising=False)
    monkeypatch.setattr(image_processing_backends, "pil_torch_interpolation_mapping", resampling)
    monkeypatch.setattr(
        image_processing_backends, "is_torchvision_greater_or_equal", lambda version: False
    )


def processor_class(family: str, name: str, kind: str = "image") -> Any:
    """A processor's class from the file that needs torchvision to be imported."""
    names = ["torchvision", "torchvision.transforms", "torchvision.transforms.v2"]
    modules = {one: ModuleType(one) for one in names}
    made = _module()
    modules[names[-1]].functional = made  # type: ignore[attr-defined]
    modules[made.__name__] = made
    with patch.dict(sys.modules, modules):
        module = importlib.import_module(f"transformers.models.{family}.{kind}_processing_{family}")
    return getattr(module, name)


def _module() -> ModuleType:
    made = ModuleType("torchvision.transforms.v2.functional")
    for one in (InterpolationMode, resize, pad, crop, normalize, grayscale_to_rgb):
        setattr(made, one.__name__, one)
    return made

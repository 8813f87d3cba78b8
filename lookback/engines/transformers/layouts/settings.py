"""What a model's config and inputs say of its patches, whatever they call it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lookback.engines.transformers.layouts.grids import NoMapError
from lookback.families import Layout


def setting(config: Any, path: str) -> Any:
    """A setting of the config, or of a config inside it; None if there is none."""
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def pair(value: Any) -> tuple[int, int]:
    """Height and width of something that may be given as one number."""
    height, width = (value, value) if isinstance(value, int) else (int(side) for side in value)
    return height, width


def patch_size(config: Any) -> tuple[int, int]:
    """Height and width of the vision tower's patches, in pixels."""
    value = setting(config, "vision_config.patch_size")
    if value is None:
        raise NoMapError("the config of its vision tower has no patch_size")
    return pair(value)


def merge_size(config: Any, path: str) -> int:
    """How many patches side by side are merged into one token."""
    value = setting(config, path) if path else 1
    if not isinstance(value, (int, float)) or value <= 0:
        raise NoMapError(f"its config has {path} = {value!r}")
    return round(value if value >= 1 else 1 / value)


def cell_size(config: Any, layout: Layout, shape: tuple[int, int]) -> tuple[int, int]:
    """Height and width of what one token of a view sees, in pixels; `shape` is the view's."""
    patch = patch_size(config)
    if not layout.side:
        merge = merge_size(config, layout.merge)
        return merge * patch[0], merge * patch[1]
    tokens = setting(config, layout.side)
    if not isinstance(tokens, int) or tokens < 1:
        raise NoMapError(f"its config has {layout.side} = {tokens!r}")
    pooled = [
        max(1, size // one // math.isqrt(tokens)) for size, one in zip(shape, patch, strict=True)
    ]
    return pooled[0] * patch[0], pooled[1] * patch[1]


def has_class_token(config: Any) -> bool:
    """Whether the tower's first token may be one that stands for no patch."""
    return setting(config, "vision_config.model_type") in ("clip_vision_model", "internvl_vision")


def entry(inputs: Mapping[str, Any], *names: str) -> Any:
    """The first of some model inputs that is there."""
    for name in names:
        if inputs.get(name) is not None:
            return inputs[name]
    raise NoMapError(f"its processor gives no {' or '.join(names)}")

"""The package's own models: a small LVLM, and a dual encoder for CLIPScore.

Both know drawn scenes (`lookback.benchmarks.scenes`) and nothing else. They are folders in the
ordinary transformers format; `make train-embedded` makes them, docs/embedded.md is their card.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

LVLM = Path(__file__).parent / "lvlm"
CLIP = Path(__file__).parent / "clip"


def is_scene(picture: Image) -> bool:
    """Whether a picture may be a drawn scene: by its size, which photographs hardly have.

    Scenes are drawn over noise, so that their colours are as many as those of photographs.
    """
    from lookback.benchmarks.scenes.world import IMAGE_SIZE

    return picture.size == (IMAGE_SIZE, IMAGE_SIZE)

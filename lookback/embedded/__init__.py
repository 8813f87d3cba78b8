"""The package's own models: a small LVLM, and a dual encoder for CLIPScore.

Both know drawn scenes (`lookback.scenes`) and nothing else. They are folders in the
ordinary transformers format; `make train-embedded` makes them, docs/embedded.md is their card.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.conversations import Conversation

LVLM = Path(__file__).parent / "lvlm"
CLIP = Path(__file__).parent / "clip"
PHOTOGRAPH = (
    "the embedded model knows drawn scenes only, and this is another picture: name a model that "
    "knows photographs, e.g. --model llava-hf/llava-1.5-7b-hf"
)
"""What is said when it is shown one."""


def is_scene(picture: Image) -> bool:
    """Whether a picture may be a drawn scene: by its size, which photographs hardly have.

    Scenes are drawn over noise, so that their colours are as many as those of photographs.
    """
    from lookback.scenes.world import IMAGE_SIZE

    return picture.size == (IMAGE_SIZE, IMAGE_SIZE)


def shows_photograph(conversation: Conversation) -> bool:
    """Whether anything is shown that is no drawn scene."""
    frames = [frame for video in conversation.videos for frame in video]
    return not all(map(is_scene, [*conversation.images, *frames]))

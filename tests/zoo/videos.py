"""Which families are shown videos, and the video processors that transformers has only with
torchvision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from .images import IMAGE, SQUARE, NoVideo, PilVideo


class PilFrames(NoVideo):
    """Every frame as one square picture, as the LLaVA family shows them: videos of one length."""

    def __init__(self, image_processor: Any) -> None:
        super().__init__()
        self.image_processor = image_processor

    def __call__(self, videos: Any, **kwargs: Any) -> dict[str, Any]:
        """Pixels of all videos, (videos, frames, 3, height, width)."""
        found = [
            self.image_processor(video, return_tensors="pt")["pixel_values"] for video in videos
        ]
        return {"pixel_values_videos": torch.stack(found)}


def _frames(processor: Any) -> PilFrames:
    """Square crops for any of the LLaVA family."""
    return PilFrames(hf.CLIPImageProcessorPil(size={"shortest_edge": IMAGE}, crop_size=SQUARE))


def _patches(processor: Any) -> PilVideo:
    """Patches in space and time, as the processor has them for images."""
    return PilVideo(processor.image_processor)


# Of any length and size, beside one another.
PATCHES = [
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_5",
    "qwen3_vl_moe",
    "qwen3_5_moe",
    "exaone4_5",
]
# All of one length.
FRAMES = ["llava_onevision", "llava_next_video", "video_llava"]
# A video's frames are written as images, with the time between them.
AS_IMAGES = ["glm4v", "glm46v"]

VIDEO: dict[str, Callable[[Any], NoVideo]] = {
    **dict.fromkeys(PATCHES + AS_IMAGES, _patches),
    **dict.fromkeys(FRAMES, _frames),
}

"""Image sizes, and the parts of processors that transformers has only with torchvision."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from transformers.image_processing_base import ImageProcessingMixin
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorKwargs
from transformers.video_utils import VideoMetadata

IMAGE = 32  # side of a vision tower's input in pixels
PATCH = 8  # side of one of its patches
TILES = [[IMAGE, 2 * IMAGE], [2 * IMAGE, IMAGE], [2 * IMAGE, 2 * IMAGE]]
SQUARE = {"height": IMAGE, "width": IMAGE}


class NoVideo(ImageProcessingMixin):
    """Fills the video slot that some processors insist on; the real ones need torchvision."""

    num_frames = 1
    fps = 1


class PilVideo(NoVideo):
    """Qwen's video processor (torchvision only): every second frame, as the image processor has it.

    That one repeats a frame to fill a step in time, so a step is two frames that are the same.
    """

    temporal_patch_size = 2

    def __init__(self, image_processor: Any) -> None:
        super().__init__()
        self.image_processor = image_processor
        self.merge_size = image_processor.merge_size

    def __call__(self, videos: Any, **kwargs: Any) -> dict[str, Any]:
        """Patches of all videos, and the grid (time, height, width) of each."""
        found = [self.image_processor(video[::2], return_tensors="pt") for video in videos]
        grids = [
            torch.tensor([len(one["image_grid_thw"]), *one["image_grid_thw"][0][1:]])
            for one in found
        ]
        return {
            "pixel_values_videos": torch.cat([one["pixel_values"] for one in found]),
            "video_grid_thw": torch.stack(grids),
            "video_metadata": [
                VideoMetadata(len(video), fps=2.0, frames_indices=list(range(len(video))))
                for video in videos
            ],
        }


class PilTiles(hf.SiglipImageProcessorPil):
    """Llama 4's image processor (torchvision only) for images of a single tile."""

    def preprocess(self, images: Any, **kwargs: Any) -> hf.BatchFeature:
        """Adds the tile grid, from which the processor writes the placeholders."""
        features = super().preprocess(images, **kwargs)
        features["aspect_ratios"] = [(1, 1)] * len(features["pixel_values"])
        return features


class PilCrops(hf.GotOcr2ImageProcessorPil):
    """Cohere2 Vision's image processor (torchvision only): the same tiles as GOT-OCR's.

    Its processor reads here how many tokens a side of a tile has, which it calls patches.
    """

    patch_size = IMAGE // PATCH // 2


class RowColKwargs(Siglip2ImageProcessorKwargs, total=False):
    """Lets LFM2-VL's processor ask for the grid of tiles."""

    return_row_col_info: bool


class PilPatches(hf.Siglip2ImageProcessorPil):
    """LFM2-VL's image processor (torchvision only) for images of a single tile.

    The model merges patches two by two, so sides are whole steps of twice the patch.
    """

    valid_kwargs = RowColKwargs
    encoder_patch_size = patch_size = PATCH // 2
    downsample_factor = 2
    tile_size = IMAGE
    use_thumbnail = return_row_col_info = False
    do_convert_rgb = True

    def preprocess(self, images: Any, **kwargs: Any) -> hf.BatchFeature:
        """Resizes to whole steps and adds the sizes that give the number of placeholders."""
        flat = [
            image.resize([max(PATCH, min(side, 48) // PATCH * PATCH) for side in image.size])
            for group in images
            for image in group
        ]
        features = super().preprocess(flat, do_resize=False, **kwargs)
        features["image_sizes"] = [image.size[::-1] for image in flat]
        features["image_rows"] = features["image_cols"] = [1] * len(flat)
        return features

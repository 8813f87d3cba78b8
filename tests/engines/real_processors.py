"""Models of the zoo behind the real classes of processors that need torchvision.

`install` of `zoo.torchvision_parts` has to be called before any of them is used.
"""

import transformers as hf
from transformers.processing_utils import MODALITY_TO_BASE_CLASS_MAPPING
from zoo import build
from zoo.images import IMAGE, PATCH, SQUARE
from zoo.processors import parts
from zoo.torchvision_parts import processor_class

import lookback


def llama4():
    zoo = build("llama4")
    images = processor_class("llama4", "Llama4ImageProcessor")(size=SQUARE, max_patches=6)
    made = hf.Llama4Processor(images, **parts(zoo.processor.tokenizer), patch_size=PATCH // 2)
    return lookback.load(zoo.model, made)


def cohere2_vision():
    zoo = build("cohere2_vision")
    make = processor_class("cohere2_vision", "Cohere2VisionImageProcessor")
    images = make(size=SQUARE, max_patches=6, patch_size=IMAGE // PATCH // 2)
    made = hf.Cohere2VisionProcessor(images, **parts(zoo.processor.tokenizer))
    return lookback.load(zoo.model, made)


def lfm2_vl():
    zoo = build("lfm2_vl")
    images = processor_class("lfm2_vl", "Lfm2VlImageProcessor")(
        tile_size=IMAGE,
        encoder_patch_size=PATCH // 2,
        downsample_factor=2,
        min_image_tokens=4,
        max_image_tokens=16,
        max_tiles=6,
    )
    return lookback.load(zoo.model, hf.Lfm2VlProcessor(images, **parts(zoo.processor.tokenizer)))


IMAGES = {make.__name__: make for make in (llama4, cohere2_vision, lfm2_vl)}

_EDGES = {"shortest_edge": 4 * 16 * 16, "longest_edge": 6 * 48 * 48}
_PATCHED = {"patch_size": PATCH // 2, "merge_size": 2, "size": _EDGES}
_CROPPED = {"size": {"shortest_edge": IMAGE}, "crop_size": SQUARE, "do_center_crop": True}
_VIDEO = {
    "qwen2_vl": ("qwen2_vl", "Qwen2VLVideoProcessor", _PATCHED),
    "qwen2_5_vl": ("qwen2_vl", "Qwen2VLVideoProcessor", _PATCHED),
    "qwen3_vl": ("qwen3_vl", "Qwen3VLVideoProcessor", _PATCHED | {"cap_pixels_per_frame": True}),
    "llava_onevision": ("llava_onevision", "LlavaOnevisionVideoProcessor", {"size": SQUARE}),
    "video_llava": ("video_llava", "VideoLlavaVideoProcessor", _CROPPED),
    "llava_next_video": ("llava_next_video", "LlavaNextVideoVideoProcessor", _CROPPED),
}
VIDEOS = list(_VIDEO)


def with_video(name, monkeypatch):
    """The family `name` with the real processor of its videos."""
    family, class_name, settings = _VIDEO[name]
    zoo = build(name)
    videos = processor_class(family, class_name, "video")(**settings)
    monkeypatch.setitem(MODALITY_TO_BASE_CLASS_MAPPING, "video_processor", "ImageProcessingMixin")
    monkeypatch.setattr(zoo.processor, "video_processor", videos)
    return lookback.load(zoo.model, zoo.processor)

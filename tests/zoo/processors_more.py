"""Processors of the further families (`configs_more`): real classes over tiny tokenizers.

They are looked up when they are built, since the oldest release has not all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers as hf

from . import tokenization as tok
from .decoders import DECODERS
from .images import IMAGE, PATCH, SQUARE, TILES, PilCrops
from .processors import llava, parts, qwen, with_pixtral, with_video

_TOKENS = (IMAGE // PATCH) ** 2  # of one square picture
_EDGES = {"shortest_edge": 16 * 16, "longest_edge": 48 * 48}


def video_llava() -> Any:
    """Video-LLaVA: LLaVA-1.5's crops, and a second placeholder for frames."""
    return with_video(
        hf.VideoLlavaProcessor,
        image_processor=hf.CLIPImageProcessorPil(size={"shortest_edge": IMAGE}, crop_size=SQUARE),
        **parts(tok.chatml("<image>\n", video="<video>\n", extra=["<image>", "<video>"])),
        patch_size=PATCH,
    )


def llava_next_video() -> Any:
    """LLaVA-NeXT-Video: LLaVA-NeXT's tiles for images, pooled frames for videos."""
    return with_video(
        hf.LlavaNextVideoProcessor,
        image_processor=hf.LlavaNextImageProcessorPil(
            size={"shortest_edge": IMAGE}, crop_size=SQUARE, image_grid_pinpoints=TILES
        ),
        **parts(tok.chatml("<image>\n", video="<video>\n", extra=["<image>", "<video>"])),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def pixtral() -> Any:
    """Pixtral: any resolution, one token per patch, a break token after each row."""
    tokenizer = tok.chatml("[IMG]", extra=["[IMG]", "[IMG_BREAK]", "[IMG_END]"])
    return with_pixtral("pixtral.processing_pixtral").PixtralProcessor(
        hf.PixtralImageProcessorPil(size={"longest_edge": IMAGE}, patch_size=PATCH // 2),
        **parts(tokenizer),
        patch_size=PATCH // 2,
    )


def lighton_ocr() -> Any:
    """LightOnOCR: Pixtral's patches, merged two by two, without breaks."""
    names = {
        "image_token": "[IMG]",
        "image_break_token": "[IMG_BREAK]",
        "image_end_token": "[IMG_END]",
    }
    return with_pixtral("lighton_ocr.processing_lighton_ocr").LightOnOcrProcessor(
        hf.PixtralImageProcessorPil(size={"longest_edge": 48}, patch_size=PATCH),
        **parts(tok.chatml("[IMG]", **names)),
        patch_size=PATCH // 2,
        spatial_merge_size=2,
    )


_COHERE = ["<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>"]


def aya_vision() -> Any:
    """Aya Vision: square tiles and an overview, each announced by a text."""
    tokenizer = tok.chatml("<image>", extra=["<image>", *_COHERE, "TILE", "TILE_GLOBAL"])
    return hf.AyaVisionProcessor(
        hf.GotOcr2ImageProcessorPil(size=SQUARE, max_patches=2, crop_to_patches=True),
        **parts(tokenizer),
        patch_size=PATCH,
        img_size=IMAGE,
        downsample_factor=2,
    )


def cohere2_vision() -> Any:
    """Cohere2 Vision: tiles with a break after each."""
    names = {
        "boi_token": "<|START_OF_IMG|>",
        "eoi_token": "<|END_OF_IMG|>",
        "image_token": "<|IMG_PATCH|>",
        "img_line_break_token": "<|IMG_LINE_BREAK|>",
    }
    return hf.Cohere2VisionProcessor(
        PilCrops(size=SQUARE, max_patches=2, crop_to_patches=True),
        **parts(tok.chatml("<|IMG_PATCH|>", **names)),
    )


def deepseek_vl() -> Any:
    """DeepSeek-VL: one padded square."""
    tokenizer = tok.chatml("<image_placeholder>", image_token="<image_placeholder>")
    return hf.DeepseekVLProcessor(
        hf.DeepseekVLImageProcessorPil(size=SQUARE, min_size=PATCH),
        **parts(tokenizer),
        num_image_tokens=_TOKENS,
    )


def deepseek_vl_hybrid() -> Any:
    """DeepSeek-VL with a second tower, which sees the picture larger."""
    side = 4 * IMAGE
    tokenizer = tok.chatml("<image_placeholder>", image_token="<image_placeholder>")
    return hf.DeepseekVLHybridProcessor(
        hf.DeepseekVLHybridImageProcessorPil(
            size=SQUARE, min_size=PATCH, high_res_size={"height": side, "width": side}
        ),
        **parts(tokenizer),
        num_image_tokens=_TOKENS,
    )


def janus() -> Any:
    """Janus: one padded square between start and end tokens."""
    tokenizer = tok.chatml(
        "<image_placeholder>",
        image_token="<image_placeholder>",
        boi_token="<begin_of_image>",
        eoi_token="<end_of_image>",
    )
    return hf.JanusProcessor(
        hf.JanusImageProcessorPil(size=SQUARE, min_size=PATCH),
        **parts(tokenizer),
        num_image_tokens=_TOKENS,
    )


def got_ocr2() -> Any:
    """GOT-OCR 2: one square through a tower of windows."""
    side = 4 * IMAGE
    tokenizer = tok.chatml("<img><imgpad></img>\n", extra=["<img>", "<imgpad>", "</img>"])
    return hf.GotOcr2Processor(
        hf.GotOcr2ImageProcessorPil(size={"height": side, "width": side}), **parts(tokenizer)
    )


def ovis2() -> Any:
    """Ovis2: a picture is a mixture of words of a visual vocabulary, with marks of the grid."""
    names = [f"<IMG_{name}>" for name in ("ATOM", "START", "GRID", "COL", "ROW", "END")]
    return hf.Ovis2Processor(
        hf.Ovis2ImageProcessorPil(size=SQUARE, crop_to_patches=True, max_patches=2),
        **parts(tok.chatml("<image>\n", extra=["<image>", *names])),
        image_seq_length=_TOKENS // 4,
    )


def idefics2() -> Any:
    """Idefics2: any resolution, resampled to a few tokens."""
    tokenizer = tok.chatml(
        "<image>", image_token="<image>", image_boundary_token="<fake_token_around_image>"
    )
    return hf.Idefics2Processor(
        hf.Idefics2ImageProcessorPil(size={"shortest_edge": PATCH, "longest_edge": IMAGE}),
        **parts(tokenizer),
        image_seq_len=6,
    )


def aria() -> Any:
    """Aria: one padded square, resampled to as many tokens as its size (fixed to 980) asks for."""
    return hf.AriaProcessor(
        hf.AriaImageProcessorPil(),
        **parts(tok.chatml("<|img|>", image_token="<|img|>")),
        size_conversion={980: 8},
    )


def _glm(line: str) -> Callable[[], Any]:
    """The GLM-V line: as Qwen-VL, but a video's frames are images with the time between them."""

    def make() -> Any:
        kinds = ("image", "video")
        names = [f"<|{edge}_of_{kind}|>" for kind in kinds for edge in ("begin", "end")]
        tokenizer = tok.chatml(
            "<|begin_of_image|><|image|><|end_of_image|>",
            video="<|begin_of_video|><|video|><|end_of_video|>",
            extra=[*names, "<|image|>", "<|video|>"],
        )
        images = getattr(hf, f"{line}ImageProcessorPil")
        return with_video(
            getattr(hf, f"{line}Processor"),
            images(patch_size=PATCH // 2, merge_size=2, size=_EDGES),
            **parts(tokenizer),
        )

    return make


def video_llama_3() -> Any:
    """VideoLLaMA 3: any resolution, one token per four patches."""
    names = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    return with_video(
        hf.VideoLlama3Processor,
        hf.VideoLlama3ImageProcessorPil(patch_size=PATCH // 2, merge_size=2, size=_EDGES),
        **parts(tok.chatml("<|image_pad|>", video="<|video_pad|>", extra=names)),
    )


def paddleocr_vl() -> Any:
    """PaddleOCR-VL: any resolution, merged two by two."""
    tokenizer = tok.chatml(
        "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        image_token="<|IMAGE_PLACEHOLDER|>",
        extra=["<|IMAGE_START|>", "<|IMAGE_END|>"],
    )
    return hf.PaddleOCRVLProcessor(
        hf.PaddleOCRVLImageProcessorPil(patch_size=PATCH // 2, merge_size=2, size=_EDGES),
        **parts(tokenizer),
    )


def ernie4_5_vl_moe() -> Any:
    """ERNIE 4.5 VL: the processor says which tokens go to the experts of vision."""
    names = [
        f"{kind}_{edge}token" for kind in ("image", "video") for edge in ("", "start_", "end_")
    ]
    tokenizer = tok.chatml(
        "<|image_start_token|><|image_token|><|image_end_token|>",
        video="<|video_start_token|><|video_token|><|video_end_token|>",
        **{name: f"<|{name}|>" for name in names},
    )
    return with_video(
        hf.Ernie4_5_VLMoeProcessor,
        hf.Ernie4_5_VLMoeImageProcessorPil(patch_size=PATCH // 2, merge_size=2, size=_EDGES),
        **parts(tokenizer),
    )


def hunyuan_vl() -> Any:
    """HunYuan-VL: the rows' ends and two tokens around them are written as vision tokens too."""
    tokenizer = tok.chatml(
        "<im_start><image><im_end>",
        image_token="<image>",
        image_start_token="<im_start>",
        image_end_token="<im_end>",
    )
    return hf.HunYuanVLProcessor(
        hf.HunYuanVLImageProcessorPil(patch_size=PATCH // 2, merge_size=2, size=_EDGES),
        **parts(tokenizer),
    )


def qianfan_ocr() -> Any:
    """Qianfan-OCR: InternVL's tiles before a Qwen3."""
    tokenizer = tok.chatml(
        "<image>\n",
        extra=["<image>"],
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
    )
    return hf.QianfanOCRProcessor(
        hf.GotOcr2ImageProcessorPil(size=SQUARE, max_patches=2),
        **parts(tokenizer),
        image_seq_length=_TOKENS,
    )


BUILDERS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(["vipllava", *DECODERS], llava),
    "glm4v": _glm("Glm4v"),
    "glm_ocr": _glm("Glm46V"),
    "glm46v": _glm("Glm46V"),
    "glm4v_moe": _glm("Glm4v"),
    "qwen3_vl_moe": qwen("Qwen3VLProcessor"),
    "qwen3_5_moe": qwen("Qwen3VLProcessor"),
    "exaone4_5": qwen("Exaone4_5_Processor"),
    **{
        make.__name__: make
        for make in (
            *(video_llava, llava_next_video, pixtral, lighton_ocr, aya_vision, cohere2_vision),
            *(deepseek_vl, deepseek_vl_hybrid, janus, got_ocr2, ovis2, idefics2, aria),
            *(video_llama_3, paddleocr_vl, ernie4_5_vl_moe, hunyuan_vl, qianfan_ocr),
        )
    },
}

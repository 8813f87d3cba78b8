"""Processors: the real classes over tiny tokenizers, with image sizes of a few dozen pixels.

The image processors are the PIL ones, since torchvision is not a requirement of the tests. Where a
real processor asks for a part that exists only with torchvision or another optional package, that
part alone is replaced (see `with_video`, `smolvlm`, `mistral3`, `lfm2_vl`, `llama4`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import transformers as hf
from transformers.models.pixtral import image_processing_pil_pixtral
from transformers.models.smolvlm import processing_smolvlm
from transformers.processing_utils import MODALITY_TO_BASE_CLASS_MAPPING

from . import tokenization as tok
from .images import IMAGE, PATCH, SQUARE, TILES, NoVideo, PilPatches, PilTiles


def parts(tokenizer: Any) -> dict[str, Any]:
    """The arguments that every processor takes besides its image processor."""
    return {"tokenizer": tokenizer, "chat_template": tokenizer.chat_template}


def with_video(processor: type, *args: Any, **kwargs: Any) -> Any:
    """A processor that has a slot for videos, with `NoVideo` in it.

    The class it demands there is exported only with torchvision, so its base is named instead.
    """
    with patch.dict(MODALITY_TO_BASE_CLASS_MAPPING, video_processor="ImageProcessingMixin"):
        return processor(*args, video_processor=NoVideo(), **kwargs)


def llava() -> Any:
    """LLaVA-1.5: one square crop, the class token dropped."""
    return hf.LlavaProcessor(
        hf.CLIPImageProcessorPil(size={"shortest_edge": IMAGE}, crop_size=SQUARE),
        **parts(tok.llama()),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def llava_next() -> Any:
    """LLaVA-NeXT: an overview and tiles with a newline after each row."""
    return hf.LlavaNextProcessor(
        hf.LlavaNextImageProcessorPil(
            size={"shortest_edge": IMAGE}, crop_size=SQUARE, image_grid_pinpoints=TILES
        ),
        **parts(tok.chatml("<image>\n", image_token="<image>")),
        patch_size=2 * PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def llava_onevision() -> Any:
    """LLaVA-OneVision: tiles for a single image, a plain overview each for several."""
    tokenizer = tok.chatml(
        "<image>\n", video="<video>\n", image_token="<image>", video_token="<video>"
    )
    return with_video(
        hf.LlavaOnevisionProcessor,
        hf.LlavaOnevisionImageProcessorPil(size=SQUARE, image_grid_pinpoints=TILES),
        **parts(tokenizer),
        num_image_tokens=(IMAGE // (2 * PATCH)) ** 2,
        vision_feature_select_strategy="full",
    )


def qwen(processor: str) -> Callable[[], Any]:
    """Qwen-VL: any resolution, patches merged two by two."""

    def make() -> Any:
        tokenizer = tok.chatml(
            "<|vision_start|><|image_pad|><|vision_end|>",
            video="<|vision_start|><|video_pad|><|vision_end|>",
            extra=["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"],
        )
        image_processor = hf.Qwen2VLImageProcessorPil(
            patch_size=PATCH // 2,
            merge_size=2,
            size={"shortest_edge": 16 * 16, "longest_edge": 48 * 48},
        )
        return with_video(getattr(hf, processor), image_processor, **parts(tokenizer))

    return make


def internvl() -> Any:
    """InternVL: square tiles and a thumbnail, between start and end tokens."""
    tokenizer = tok.chatml(
        "<IMG_CONTEXT>\n",
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )
    return with_video(
        hf.InternVLProcessor,
        hf.GotOcr2ImageProcessorPil(size=SQUARE, max_patches=2),
        **parts(tokenizer),
        image_seq_length=(IMAGE // PATCH) ** 2,
    )


def _idefics_tokenizer() -> Any:
    """The tokens that Idefics3 and SmolVLM write around every tile."""
    rows = [f"<row_{row}_col_{col}>" for row in (1, 2) for col in (1, 2)]
    names = ["<fake_token_around_image>", "<end_of_utterance>", "<global-img>"]
    return tok.chatml("<image>", extra=["<image>", *names, *rows])


_IDEFICS_TILES = {"size": {"longest_edge": 2 * IMAGE}, "max_image_size": {"longest_edge": IMAGE}}
_IDEFICS_TOKENS = (IMAGE // PATCH // 2) ** 2


def idefics3() -> Any:
    """Idefics3: a grid of tiles and an overview, each announced by a text token."""
    return hf.Idefics3Processor(
        hf.Idefics3ImageProcessorPil(**_IDEFICS_TILES),
        **parts(_idefics_tokenizer()),
        image_seq_len=_IDEFICS_TOKENS,
    )


def smolvlm() -> Any:
    """SmolVLM: as Idefics3. It refuses to exist without num2words, which only videos need."""
    with patch.object(processing_smolvlm, "num2words", str):
        return with_video(
            hf.SmolVLMProcessor,
            hf.SmolVLMImageProcessorPil(**_IDEFICS_TILES),
            **parts(_idefics_tokenizer()),
            image_seq_len=_IDEFICS_TOKENS,
        )


_GEMMA_TOKENS = {
    "image_token": "<image_soft_token>",
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
}


def gemma3() -> Any:
    """Gemma 3: a fixed number of pooled tokens per image."""
    return hf.Gemma3Processor(
        hf.Gemma3ImageProcessorPil(size={"height": 2 * IMAGE, "width": 2 * IMAGE}),
        **parts(tok.gemma("<start_of_image>", **_GEMMA_TOKENS)),
        image_seq_length=(IMAGE // PATCH) ** 2,
    )


def gemma4() -> Any:
    """Gemma 4: any aspect ratio. 70 tokens are the fewest its image processor allows."""
    names = {"audio_token": "<audio>", "boa_token": "<boa>", "eoa_token": "<eoa>"}
    return with_video(
        hf.Gemma4Processor,
        feature_extractor=hf.Gemma4AudioFeatureExtractor(),
        image_processor=hf.Gemma4ImageProcessorPil(
            patch_size=PATCH // 2, pooling_kernel_size=2, max_soft_tokens=70
        ),
        **parts(tok.gemma("<image_soft_token>", **_GEMMA_TOKENS, **names)),
    )


def paligemma() -> Any:
    """PaliGemma: image, BOS, prompt, newline; no chat template."""
    image_processor = hf.SiglipImageProcessorPil(
        size=SQUARE, image_seq_length=(IMAGE // PATCH) ** 2
    )
    return hf.PaliGemmaProcessor(image_processor, **parts(tok.gemma(None, image_token="<image>")))


def with_pixtral(module: str) -> Any:
    """A module that takes one function from Pixtral's torchvision image processor.

    The PIL twin of that has the function too.
    """
    twin = "transformers.models.pixtral.image_processing_pixtral"
    with patch.dict(sys.modules, {twin: image_processing_pil_pixtral}):
        return importlib.import_module(f"transformers.models.{module}")


def mistral3() -> Any:
    """Mistral 3: any resolution, a break token after each row."""
    tokenizer = tok.chatml("[IMG]", extra=["[IMG]", "[IMG_BREAK]", "[IMG_END]"])
    return with_pixtral("pixtral.processing_pixtral").PixtralProcessor(
        hf.PixtralImageProcessorPil(size={"longest_edge": 48}, patch_size=PATCH),
        **parts(tokenizer),
        patch_size=PATCH // 2,
        spatial_merge_size=2,
    )


def lfm2_vl() -> Any:
    """LFM2-VL: any resolution within one tile."""
    edges = ["<|image_start|>", "<|image_end|>"]
    tokenizer = tok.chatml("<image>", image_token="<image>", extra=edges)
    return hf.Lfm2VlProcessor(PilPatches(), **parts(tokenizer))


def llama4() -> Any:
    """Llama 4: one tile, its patches marked by `<|patch|>`."""
    names = ["<|image|>", "<|patch|>", "<|image_start|>", "<|image_end|>"]
    return hf.Llama4Processor(
        PilTiles(size=SQUARE), **parts(tok.chatml("<|image|>", extra=names)), patch_size=PATCH // 2
    )


def mllama() -> Any:
    """Llama 3.2 Vision: a single `<|image|>` token; the pixels enter by cross-attention."""
    tokenizer = tok.chatml("<|image|>", extra=["<|image|>"], bos_token="<|begin_of_text|>")
    return hf.MllamaProcessor(
        hf.MllamaImageProcessorPil(size=SQUARE, max_image_tiles=1), **parts(tokenizer)
    )


def florence2() -> Any:
    """Florence-2: image and prompt go to an encoder, the answer comes from a decoder."""
    image_processor = hf.CLIPImageProcessorPil(
        size=SQUARE, crop_size=SQUARE, image_seq_length=(IMAGE // PATCH) ** 2 + 1
    )
    tokenizer = tok.llama()
    tokenizer.chat_template = None
    return hf.Florence2Processor(image_processor, tokenizer)


BUILDERS: dict[str, Callable[[], Any]] = {
    "qwen2_5_vl": qwen("Qwen2_5_VLProcessor"),
    "qwen2_vl": qwen("Qwen2VLProcessor"),
    "qwen3_vl": qwen("Qwen3VLProcessor"),
    "qwen3_5": qwen("Qwen3VLProcessor"),
    "llava_gqa": llava,
    "remote": llava,
    "llava_indexed": llava,
    "paligemma2": paligemma,
    **{
        make.__name__: make
        for make in (
            *(llava, llava_next, llava_onevision, internvl, idefics3, smolvlm, gemma3, gemma4),
            *(paligemma, mistral3, lfm2_vl, llama4, mllama, florence2),
        )
    },
}

"""The table of docs/models.md, made from the zoo: what the tests compare is what it says.

`make models-table` writes it; a test fails while the two differ.
"""

from __future__ import annotations

import sys
from pathlib import Path

from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from lookback.families import LAYOUTS

from . import EXTRA_NAMES, KNOWN, MORE_NAMES, NAMES, ONE_RUN, TOLERANCE, generate_tolerance
from .decoders import SHAPES
from .models import CONFIGS
from .videos import FRAMES, PATCHES

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- models: made by `make models-table` -->\n", "<!-- end of models -->\n"

TITLES = {
    "llava": "LLaVA-1.5",
    "llava_gqa": "LLaVA-1.5, grouped heads",
    "qwen2_5_vl": "Qwen2.5-VL",
    "internvl": "InternVL",
    "llava_next": "LLaVA-NeXT",
    "llava_onevision": "LLaVA-OneVision",
    "qwen2_vl": "Qwen2-VL",
    "qwen3_vl": "Qwen3-VL",
    "idefics3": "Idefics3",
    "smolvlm": "SmolVLM",
    "gemma3": "Gemma 3",
    "paligemma": "PaliGemma",
    "paligemma2": "PaliGemma 2",
    "mistral3": "Mistral 3",
    "lfm2_vl": "LFM2-VL",
    "qwen3_5": "Qwen3.5",
    "gemma4": "Gemma 4",
    "llama4": "Llama 4",
    "vipllava": "VipLLaVA",
    "video_llava": "Video-LLaVA",
    "llava_next_video": "LLaVA-NeXT-Video",
    "pixtral": "Pixtral",
    "lighton_ocr": "LightOnOCR",
    "aya_vision": "Aya Vision",
    "cohere2_vision": "Command A Vision",
    "deepseek_vl": "DeepSeek-VL",
    "deepseek_vl_hybrid": "DeepSeek-VL, two towers",
    "janus": "Janus",
    "got_ocr2": "GOT-OCR 2",
    "ovis2": "Ovis2",
    "idefics2": "Idefics2",
    "aria": "Aria",
    "glm4v": "GLM-4.1V",
    "glm46v": "GLM-4.6V",
    "glm_ocr": "GLM-OCR",
    "glm4v_moe": "GLM-4.5V",
    "qwen3_vl_moe": "Qwen3-VL, experts",
    "qwen3_5_moe": "Qwen3.5, experts",
    "exaone4_5": "EXAONE 4.5",
    "video_llama_3": "VideoLLaMA 3",
    "paddleocr_vl": "PaddleOCR-VL",
    "ernie4_5_vl_moe": "ERNIE 4.5 VL",
    "hunyuan_vl": "HunYuan-VL",
    "qianfan_ocr": "Qianfan-OCR",
}


def compared(name: str) -> str:
    """What a family was shown."""
    kinds = ["image", "several, as one source" if name in ONE_RUN else "several"]
    return ", ".join(kinds + ["video"] * (name in PATCHES + FRAMES))


def model_type(name: str) -> str:
    """What a family's config is called."""
    found: str = CONFIGS[name](lambda token: 0)["model_type"]
    return found


def class_name(name: str) -> str:
    """The transformers class that a family's config stands for."""
    return MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[model_type(name)]


def layout(name: str) -> str:
    """Whether its vision tokens have a place in the picture, and how they lie there."""
    found = LAYOUTS.get(model_type(name))
    return "none" if found is None or found.kind == "resampled" else found.kind


def table() -> str:
    """All families in the order of the zoo, the decoders, and what cannot be asked yet."""
    lines = [
        "| family | class | compared | scores within | `generate` within | map |",
        "|---|---|---|---|---|---|",
    ]
    for name in NAMES + EXTRA_NAMES + MORE_NAMES:
        within = f"{TOLERANCE:.0e} | {generate_tolerance(name):.0e}".replace("e-0", "e-")
        cells = [TITLES[name], f"`{class_name(name)}`", compared(name), within, layout(name)]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append(
        f"\nThe decoders of {len(SHAPES)} text models behind LLaVA's tower, one image, within "
        f"{TOLERANCE:.0e} (`make test-rest`): {', '.join(sorted(SHAPES))}.".replace("e-0", "e-")
    )
    lines += [f"\n{TITLES[name]} cannot be asked yet: {why}." for name, why in KNOWN.items()]
    return "\n".join(lines) + "\n"


def replaced(page: str) -> str:
    """The page with the table as the zoo has it."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    new = replaced(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(new, encoding="utf-8")
    else:
        print(table())

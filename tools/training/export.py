"""Trained models as folders in the ordinary transformers format, in half precision."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers.processors import TemplateProcessing

from lookback.embedded import CLIP
from lookback.families import GENERIC
from tools.training.models import CLIP_LENGTH, make_processor


def export_lvlm(model: Any, tokenizer: Any, folder: Path, clip: Path = CLIP) -> None:
    """Weights, config, tokenizer, processor and chat template of the LVLM.

    Its config gets LookBack's global setting; `make evaluate-embedded` puts the tuned one there.

    Args:
        model, tokenizer: trained.
        folder: where it goes.
        clip: where the dual encoder of the same training is, which its CLIPScore takes.
    """
    half = copy.deepcopy(model).eval().to(torch.float16)
    depth = model.config.text_config.num_hidden_layers
    half.config.lookback = {
        "name": "embedded",
        "alpha": GENERIC.alpha,
        "lam": GENERIC.lam,
        "vauq_layers": [depth // 4, depth - depth // 4],
        "vauq_k": GENERIC.vauq_k,
        "clip": "embedded" if clip == CLIP else str(clip.resolve()),
    }
    half.save_pretrained(folder)
    make_processor(tokenizer).save_pretrained(folder)


def export_clip(model: Any, tokenizer: Any, folder: Path) -> None:
    """The same of the dual encoder; its tokenizer puts texts between begin and end.

    It was trained on bare descriptions, so its config tells CLIPScore to put nothing before them
    but the blank with which the LVLM's answers begin.
    """
    half = copy.deepcopy(model).eval().to(torch.float16)
    half.config.lookback = {"prefix": " "}
    half.save_pretrained(folder)
    between = copy.deepcopy(tokenizer)
    begin, end = tokenizer.bos_token, tokenizer.eos_token
    between.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin} $A {end}",
        special_tokens=[(begin, tokenizer.bos_token_id), (end, tokenizer.eos_token_id)],
    )
    between.model_max_length = CLIP_LENGTH
    between.padding_side = "right"
    images = make_processor(tokenizer).image_processor
    hf.CLIPProcessor(images, between).save_pretrained(folder)

"""What each stage minimises, as functions of a model and the scenes of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lookback.benchmarks.scenes.describe import BRIEF, describe
from lookback.benchmarks.scenes.scene import Scene
from lookback.benchmarks.scenes.training import training_rng, training_scene, training_texts
from lookback.benchmarks.scenes.world import CATEGORIES, COLORS, PLACES, SIZES
from lookback.embedded.training.batches import (
    IGNORED,
    Packed,
    Packer,
    images,
    padded,
    patch_facts,
)
from lookback.embedded.training.models import CLIP_LENGTH

KINDS = (len(CATEGORIES) + 1, len(COLORS) + 1, len(SIZES) + 1, len(PLACES))
KIND_WEIGHTS = (2.0, 1.0, 1.0, 1.0)


class PatchHead(nn.Sequential):
    """Reads category, colour, size and place off each patch; thrown away after the first stage."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.LayerNorm(width), nn.Linear(width, sum(KINDS)))


def vision_loss(tower: Any, head: PatchHead, scenes: Sequence[Scene]) -> Tensor:
    """Cross-entropy of what is in each patch, and where the patch is."""
    hidden = tower(images(scenes)).last_hidden_state[:, 1:]
    labels = patch_facts(scenes)
    parts = head(hidden).split(KINDS, -1)
    losses = [
        weight * F.cross_entropy(part.flatten(0, 1), labels[..., k].flatten())
        for k, (weight, part) in enumerate(zip(KIND_WEIGHTS, parts, strict=True))
    ]
    return torch.stack(losses).sum()


def answer_loss(
    model: Any, packed: Packed, pictures: Tensor | None, opening: float = 1.0
) -> Tensor:
    """Cross-entropy of the answers' tokens.

    Args:
        model: the LVLM.
        packed: questions and answers.
        pictures: what they are about; None to train on text alone.
        opening: how much an answer's first token counts, in tokens. It is where "yes" or "no" is
            said; as what counts follows from the question alone, the distribution that is learned
            stays that of the texts.
    """
    inputs = packed._asdict()
    labels = inputs.pop("labels")[:, 1:]
    if pictures is not None:
        inputs["pixel_values"] = pictures
    hidden = model.model(**inputs, use_cache=False).last_hidden_state[:, :-1]
    spoken = labels != IGNORED
    first = F.pad(spoken, (1, 0))[:, :-1] < spoken
    losses = F.cross_entropy(model.lm_head(hidden[spoken]), labels[spoken], reduction="none")
    weights = torch.where(first[spoken], opening, 1.0)
    return (losses * weights).sum() / weights.sum()


def pack_texts(packer: Packer, indices: Sequence[int], questions: int, blind: bool) -> Packed:
    """One description and some questions about each of these training scenes, packed."""
    texts = [
        training_texts(training_scene(i), training_rng(i), questions=questions) for i in indices
    ]
    return packer.pack(texts, blind=blind)


def contrastive_loss(clip: Any, tokenizer: Any, indices: Sequence[int]) -> Tensor:
    """Which description belongs to which picture, both ways."""
    scenes = [training_scene(i) for i in indices]
    texts = [describe(s, training_rng(i), BRIEF) for i, s in zip(indices, scenes, strict=True)]
    inputs = clip_texts(tokenizer, texts)
    loss: Tensor = clip(**inputs, pixel_values=images(scenes), return_loss=True).loss
    return loss


def clip_texts(tokenizer: Any, texts: Sequence[str]) -> dict[str, Tensor]:
    """Token ids for the dual encoder: between begin and end, cut so that the end stays."""
    ids = [
        [
            tokenizer.bos_token_id,
            *tokenizer(f" {text}", add_special_tokens=False)["input_ids"][: CLIP_LENGTH - 2],
            tokenizer.eos_token_id,
        ]
        for text in texts
    ]
    filled = padded(ids, tokenizer.pad_token_id)
    return {"input_ids": filled, "attention_mask": (filled != tokenizer.pad_token_id).long()}

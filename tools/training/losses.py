"""What each stage minimises, as functions of a model and the scenes of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lookback.scenes.scene import Scene
from lookback.scenes.world import CATEGORIES, COLORS, PLACES, SIZES
from tools.training.batches import (
    IGNORED,
    Packed,
    Packer,
    images,
    padded,
    patch_facts,
)
from tools.training.describe import BRIEF, describe
from tools.training.models import CLIP_LENGTH
from tools.training.texts import (
    reasoned_texts,
    training_rng,
    training_scene,
    training_texts,
)

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


def answer_loss(model: Any, packed: Packed, pictures: Tensor | None, weights: Tensor) -> Tensor:
    """Cross-entropy of the answers' tokens.

    Args:
        model: the LVLM.
        packed: questions and answers.
        pictures: what they are about; None to train on text alone.
        weights: how much a token counts that follows on each token of the vocabulary. As this is
            known before the token is, the distribution that is learned stays that of the texts.
    """
    inputs = packed._asdict()
    labels = inputs.pop("labels")[:, 1:]
    if pictures is not None:
        inputs["pixel_values"] = pictures
    hidden = model.model(**inputs, use_cache=False).last_hidden_state[:, :-1]
    spoken = labels != IGNORED
    counts = weights[packed.input_ids[:, :-1][spoken]]
    losses = F.cross_entropy(model.lm_head(hidden[spoken]), labels[spoken], reduction="none")
    return (losses * counts).sum() / counts.sum()


def token_weights(tokenizer: Any, verdict: float) -> Tensor:
    """Weights for `answer_loss`: of the verdict after "so"; everything else counts once."""
    weights = torch.ones(len(tokenizer))
    (so,) = tokenizer(" so", add_special_tokens=False)["input_ids"]
    weights[so] = verdict
    return weights


def pack_texts(
    packer: Packer, indices: Sequence[int], questions: int, described: int, blind: bool
) -> Packed:
    """Some questions about each of these training scenes, and a description of some of them."""
    texts = [
        training_texts(
            training_scene(i), training_rng(i), int(i % described == 1), questions=questions
        )
        for i in indices
    ]
    return packer.pack(texts, blind=blind)


def pack_reasoned(packer: Packer, indices: Sequence[int], questions: int) -> Packed:
    """Yes/no questions with reasoned answers about these training scenes, without pictures."""
    texts = [reasoned_texts(training_scene(i), training_rng(i), questions) for i in indices]
    return packer.pack(texts, blind=True)


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

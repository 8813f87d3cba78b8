"""Scenes as tensors: pictures, what is in each patch, and texts packed behind one picture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lookback.scenes.render import bounds, pixels
from lookback.scenes.scene import Scene
from lookback.scenes.world import CATEGORIES, COLORS, IMAGE_SIZE, SIZES
from tools.training.models import ASSISTANT, IMAGE, MEAN, STD, USER
from tools.training.recipe import PATCH, VISION_TOKENS

SIDE = IMAGE_SIZE // PATCH
IGNORED = -100


def images(scenes: Sequence[Scene]) -> Tensor:
    """Pictures as the processor would hand them over, (B, 3, H, W)."""
    raw = torch.from_numpy(np.stack([pixels(scene) for scene in scenes]))
    return (raw.permute(0, 3, 1, 2).float() / 255 - MEAN) / STD


def patch_labels(scenes: Sequence[Scene]) -> Tensor:
    """Category, colour and size of the thing in each patch, 0 for none, (B, patches, 3)."""
    labels = np.zeros((len(scenes), SIDE, SIDE, 3), dtype=np.int64)
    edges = np.arange(SIDE) * PATCH
    for grid, scene in zip(labels, scenes, strict=True):
        for thing in scene.things:
            left, top, right, bottom = bounds(thing)
            wide = np.clip(np.minimum(right, edges + PATCH) - np.maximum(left, edges), 0, None)
            high = np.clip(np.minimum(bottom, edges + PATCH) - np.maximum(top, edges), 0, None)
            covered = high[:, None] * wide > PATCH * PATCH // 4
            kind = list(CATEGORIES).index(thing.category), list(COLORS).index(thing.color)
            grid[covered] = [kind[0] + 1, kind[1] + 1, SIZES.index(thing.size) + 1]
    return torch.from_numpy(labels).flatten(1, 2)


def patch_facts(scenes: Sequence[Scene]) -> Tensor:
    """`patch_labels`, and each patch's place beside them, (B, patches, 4)."""
    places = patch_places().expand(len(scenes), -1)[..., None]
    return torch.cat([patch_labels(scenes), places], -1)


def patch_places() -> Tensor:
    """The place, of the scene's nine, in which each patch has its centre, (patches,)."""
    third = (torch.arange(SIDE) * PATCH + PATCH // 2) * 3 // IMAGE_SIZE
    return (third[:, None] * 3 + third).flatten()


class Packed(NamedTuple):
    """Texts behind one prefix an image: each sees the prefix and itself, not the others."""

    input_ids: Tensor  # (B, T)
    attention_mask: Tensor  # (B, 1, T, T)
    position_ids: Tensor  # (B, T), going on after the prefix in every text
    labels: Tensor  # (B, T), the answers


class Packer:
    """Packs questions and answers the way the chat template writes them."""

    def __init__(self, tokenizer: Any) -> None:
        self.pad = tokenizer.pad_token_id
        bos, user, image = (
            tokenizer.convert_tokens_to_ids(t) for t in (tokenizer.bos_token, USER, IMAGE)
        )
        self.end = [tokenizer.eos_token_id]
        self.speak = [tokenizer.convert_tokens_to_ids(ASSISTANT)]
        self.tokens = lru_cache(2**16)(
            lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
        )
        self.seeing = [bos, user, *[image] * VISION_TOKENS, *self.tokens("\n")]
        self.blind = [bos, user, *self.tokens("\n")]

    def pack(self, texts: Sequence[Sequence[tuple[str, str]]], blind: bool = False) -> Packed:
        """One row per image, from its pairs of question and answer."""
        prefix = self.blind if blind else self.seeing
        start = len(prefix)
        rows = []
        for pairs in texts:
            ids, owner, places, labels = (
                list(prefix),
                [0] * start,
                [*range(start)],
                [IGNORED] * start,
            )
            for number, (question, answer) in enumerate(pairs, 1):
                asked = [*self.tokens(question), *self.speak]
                said = [*self.tokens(f" {answer}"), *self.end]
                ids += asked + said
                owner += [number] * (len(asked) + len(said))
                places += range(start, start + len(asked) + len(said))
                labels += [IGNORED] * len(asked) + said
            rows.append((ids, owner, places, labels))
        fills = (self.pad, -1, 0, IGNORED)
        tokens, owners, positions, spoken = (
            padded([row[k] for row in rows], fill) for k, fill in enumerate(fills)
        )
        causal = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        same = (owners[:, :, None] == owners[:, None, :]) | (owners[:, None, :] == 0)
        return Packed(tokens, (same & causal)[:, None], positions, spoken)


def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """Rows of different length as one tensor, filled up on the right."""
    length = max(len(row) for row in rows)
    return torch.tensor([[*row, *[fill] * (length - len(row))] for row in rows])

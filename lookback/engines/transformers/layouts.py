"""What the source's vision tokens stand for: the pictures of a look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from lookback.conversations import Conversation, SourceError
from lookback.engines.transformers.sources import media_masks
from lookback.look import Picture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookback.conversations import SourceLike
    from lookback.engines.transformers.prompts import Prompter


def pictures(
    prompter: Prompter,
    conversation: Conversation,
    ids: Sequence[int],
    source: SourceLike,
    mask: Tensor,
) -> tuple[Picture, ...]:
    """One picture per image and video of the source, whose tokens have no known place in it.

    There are none where the images of a prompt cannot be told apart.

    Args:
        prompter: renders the prompt.
        conversation: what is asked.
        ids: the prompt's tokens.
        source: as it was asked for.
        mask: (P,), the source's tokens.
    """
    try:
        masks = media_masks(prompter, conversation, ids, source)
    except SourceError:
        return ()
    shown = {f"image:{i}": image for i, image in enumerate(conversation.images)}
    shown |= {f"video:{i}": frames[0] for i, frames in enumerate(conversation.videos)}
    return tuple(
        Picture(name, shown[name], np.flatnonzero(own[mask].numpy())) for name, own in masks.items()
    )

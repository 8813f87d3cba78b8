"""From conversations to prompts as vLLM takes them, and where their source is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.engines.common.sources import source_mask
from lookback.engines.vllm.tap_request import runs
from lookback.errors import UnsupportedModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lookback.conversations import Conversation, SourceLike
    from lookback.engines.common.prompts import Prompter
    from lookback.engines.vllm.client.client import Client

EVERY_PICTURE = object()
"""The source of requests that name none: all images and videos."""


@dataclass(frozen=True)
class Prompt:
    """A conversation as vLLM takes it.

    Attributes:
        rendered: what vLLM's renderer returned.
        ids: its tokens.
        source: (start, end) of each run of tokens that are marked as the source.
        blind: whether the source is "none".
    """

    rendered: dict[str, Any]
    ids: list[int]
    source: list[list[int]]
    blind: bool

    def followed_by(self, ids: Sequence[int]) -> dict[str, Any]:
        """Return the same prompt with more tokens behind it."""
        return self.rendered | {"prompt_token_ids": [*self.ids, *ids]}


class Prompts:
    """Makes prompts of conversations, by vLLM's renderer."""

    def __init__(self, client: Client, prompter: Prompter) -> None:
        self.client, self.prompter = client, prompter

    async def of(self, conversation: Conversation, source: SourceLike) -> Prompt:
        """Return a conversation as vLLM takes it."""
        conversation.source(source)  # refuse one that is not there before any image is read
        text = self.prompter.text(conversation)
        media: dict[str, Any] = {}
        if conversation.images:
            media["image"] = conversation.images
        if conversation.videos:
            media["video"] = [
                np.stack([np.asarray(f) for f in video]) for video in conversation.videos
            ]
        add_special = self.prompter.adds_special(text)
        rendered = await self.client.render(text, media, add_special)
        ids = [int(token) for token in rendered["prompt_token_ids"]]
        usual = runs(self._source(conversation, EVERY_PICTURE, rendered, ids))
        spans = runs(self._source(conversation, source, rendered, ids))
        if spans and spans != usual:
            # Cached blocks keep the marks that they were made with: others are cached apart.
            salt = hashlib.sha256(repr(spans).encode()).hexdigest()[:16]
            rendered = rendered | {"cache_salt": f"lookback-{salt}"}
        return Prompt(rendered, ids, spans or usual, not spans)

    def _source(
        self,
        conversation: Conversation,
        source: Any,
        rendered: Mapping[str, Any],
        ids: list[int],
    ) -> NDArray[np.bool_]:
        """Return which tokens are the source, (P,), by vLLM's places of images and videos."""
        chosen = None if source is EVERY_PICTURE else conversation.source(source)
        if chosen is not None and chosen.texts:
            return np.asarray(source_mask(self.prompter, conversation, ids, source))
        mask = np.zeros(len(ids), dtype=np.bool_)
        for kind in ("image", "video"):
            numbers: Iterable[int] = range(len(conversation.parts(kind)))
            if chosen is not None:
                numbers = chosen.images if kind == "image" else chosen.videos
            placed = rendered.get("mm_placeholders", {}).get(kind, [])
            if len(placed) != len(conversation.parts(kind)):
                raise UnsupportedModelError(
                    f"vLLM placed {len(placed)} of {len(conversation.parts(kind))} {kind}s in the "
                    "prompt: LookBack needs the vision tokens among the decoder's input ids"
                )
            for number in numbers:
                for start, end in placed[number].extract_embeds_range():
                    mask[start : end + 1] = True
        return mask

    def room(self, prompt: Prompt, needed: int) -> int:
        """Return how many tokens can follow a prompt; raise ValueError if fewer than needed."""
        most = int(self.client.llm.model_config.max_model_len)
        if len(prompt.ids) + needed > most:
            raise ValueError(
                f"prompt and response together have {len(prompt.ids) + needed} tokens, the model "
                f"takes {most}"
            )
        return most - len(prompt.ids)

"""From vision tokens to pixels: the bounding box of each source token in its picture.

How a family's tokens are laid out is data (`lookback.families.LAYOUTS`); the numbers come from the
model's config, its inputs and its processor. If they do not add up to the tokens in the prompt,
there is no map: the picture's tokens are then a flat vector, and a warning says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from lookback.conversations import Conversation, SourceError
from lookback.engines.common.prompts import Prompter
from lookback.engines.common.sources import media_places
from lookback.engines.transformers.layouts.grids import NoMapError, Tokens, patch_tokens
from lookback.engines.transformers.layouts.probe import Probe
from lookback.engines.transformers.layouts.views import (
    Step,
    mosaic_tokens,
    patch_steps,
    view_steps,
    view_tokens,
)
from lookback.families import LAYOUTS, Layout
from lookback.looks.look import Picture, Places

__all__ = ["pictures"]


def pictures(
    prompter: Prompter,
    conversation: Conversation,
    inputs: Mapping[str, Any],
    source: Tensor,
    config: Any,
) -> tuple[Picture, ...]:
    """Return the images and video frames of a conversation, with the source's tokens on them.

    Images come first, then frames: one picture per step in time, "video:0/3" for the fourth, with
    the first of the frames that were merged into it. Tokens of texts belong to no picture.

    Args:
        prompter: makes prompts; has the processor.
        conversation: what is asked.
        inputs: what the processor made of it.
        source: (P,), which of the prompt's tokens are the source.
        config: the model's.
    """
    maker = _Maker(prompter, conversation, inputs, source.cpu().numpy().astype(bool), config)
    images = maker.images() if conversation.parts("image") else []
    videos = maker.videos() if conversation.parts("video") else []
    return (*images, *videos)


class _Maker:
    def __init__(
        self,
        prompter: Prompter,
        conversation: Conversation,
        inputs: Mapping[str, Any],
        source: np.ndarray[Any, Any],
        config: Any,
    ) -> None:
        self.prompter = prompter
        self.conversation = conversation
        self.inputs = inputs
        self.source = source
        self.config = config
        self.probe = Probe(prompter, conversation)
        self.ids: list[int] = inputs["input_ids"][0].tolist()

    @cached_property
    def layout(self) -> Layout:
        layout = LAYOUTS.get(self.config.model_type)
        if layout is None:
            raise NoMapError("how its vision tokens lie on a picture is not known")
        if layout.kind == "resampled":
            raise NoMapError("each of its vision tokens is made from the whole picture")
        return layout

    def images(self) -> list[Picture]:
        images = self.conversation.images
        places = self._places("image")
        counts = None if places is None else [len(place) for place in places]
        try:
            by_image = self._image_tokens(counts)
        except NoMapError as error:
            by_image = [error] * len(images)
        places = self._split(by_image) if places is None else places
        if places is None:
            self._warn(NoMapError("its images cannot be told apart in the prompt"))
            return []
        return [
            self._picture(f"image:{number}", image, where, tokens)
            for number, (image, where, tokens) in enumerate(
                zip(images, places, by_image, strict=True)
            )
            if self.source[where].any()
        ]

    def _image_tokens(self, counts: list[int] | None) -> list[Tokens | NoMapError]:
        sizes = [image.size for image in self.conversation.images]
        if self.layout.kind == "patches":
            return list(patch_tokens(self.layout, self.config, self.inputs, "image"))
        if self.layout.kind == "mosaic":
            return mosaic_tokens(self.layout, self.config, self.inputs, self.probe, sizes)
        return view_tokens(self.layout, self.config, self.probe, sizes, counts)

    def videos(self) -> list[Picture]:
        places = self._places("video")
        if places is None:
            self._warn(NoMapError("its videos cannot be told apart in the prompt"))
            return []
        return [
            frame
            for number, where in enumerate(places)
            if self.source[where].any()
            for frame in self._frames(number, where)
        ]

    def _frames(self, number: int, where: Places) -> list[Picture]:
        frames, name = self.conversation.videos[number], f"video:{number}"
        try:
            steps = self._steps(number, len(where))
        except NoMapError as error:
            return [self._picture(name, frames[0], where, error)]
        starts = np.cumsum([0, *(step.tokens.count for step in steps)])
        return [
            self._picture(f"{name}/{k}", frames[step.frame], where[a:b], step.tokens)
            for k, (step, a, b) in enumerate(zip(steps, starts[:-1], starts[1:], strict=True))
        ]

    def _steps(self, number: int, count: int) -> list[Step]:
        frames = self.conversation.videos[number]
        if self.layout.kind == "patches":
            return patch_steps(
                self.layout, self.config, self.inputs, self.probe, number, len(frames), count
            )
        sizes = [frame.size for frame in frames]
        return view_steps(self.layout, self.config, self.probe, number, sizes, count)

    def _places(self, kind: str) -> list[Places] | None:
        """Return the places of each image's or video's tokens; None if they are ambiguous."""
        try:
            places = media_places(self.prompter, self.conversation, self.ids, kind)
        except SourceError:
            return None
        return [place.numpy() for place in places]

    def _split(self, by_image: list[Tokens | NoMapError]) -> list[Places] | None:
        """Return the places of the images' tokens by their counts, if these add up."""
        token = self.prompter.media_tokens["image"]
        here = np.nonzero(np.array(self.ids) == token)[0]
        counts = [tokens.count if isinstance(tokens, Tokens) else -1 for tokens in by_image]
        if min(counts) < 0 or sum(counts) != len(here):
            return None
        return np.split(here, np.cumsum(counts)[:-1])

    def _picture(
        self, name: str, image: Any, where: Places, tokens: Tokens | NoMapError
    ) -> Picture:
        columns = (np.cumsum(self.source) - 1)[where]
        if isinstance(tokens, Tokens) and tokens.count != len(where):
            tokens = NoMapError(
                f"{name} has {len(where)} vision tokens, and by its layout {tokens.count}"
            )
        if isinstance(tokens, NoMapError):
            self._warn(tokens)
            return Picture(name, image, columns)
        grids = tuple(grid.places for grid in tokens.grids)
        return Picture(name, image, columns, tokens.boxes(), grids)

    def _warn(self, reason: NoMapError) -> None:
        warnings.warn(
            f"no map of where this {self.config.model_type} model looked: {reason}; the attention "
            "to its vision tokens is given without places",
            stacklevel=4,
        )

"""Texts that end a response: found in its last tokens while it is drawn, and cut off afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lookback.engines.common.continuations import Continuation
from lookback.engines.common.tokens import Spelling


class StopTexts:
    """The texts before which responses to one prompt end.

    Args:
        prompter: turns tokens into text.
        prompt_ids: the prompt.
        texts: one of them, several or none.

    Raises:
        ValueError: an empty one.
    """

    def __init__(self, prompter: Spelling, prompt_ids: list[int], texts: Sequence[str]) -> None:
        if "" in texts:
            raise ValueError("a stop text must not be empty")
        self.texts = list(texts)
        self._prompter = prompter
        self._prompt_ids = prompt_ids
        # A token has a byte at least; twice as many leave room for some that have none.
        self._tail = 8 + 2 * max((len(text.encode()) for text in texts), default=0)

    def reached(self, ids: list[int]) -> bool:
        """Whether a response that was free of them until its last token has one now."""
        if not self._in(self._prompter.decode_all(ids[-self._tail :])):
            return False
        # The tail alone may begin with half a character, or without its blank: ask the whole.
        return self._in(self._prompter.decode(self._prompt_ids, ids))

    def cut(self, one: Continuation) -> Continuation:
        """A response up to the token in which the first of them begins, if there is any."""
        if not self.texts or not self._in(self._prompter.decode(self._prompt_ids, one.token_ids)):
            return one
        pieces = self._prompter.pieces(self._prompt_ids, one.token_ids)
        text = "".join(pieces)
        start = min(text.find(stop) for stop in self.texts if stop in text)
        return replace(one.cut(_token_at(pieces, start)), finish="stop")

    def hold(self, one: Continuation) -> Continuation:
        """A response that is being written without what may become one of them: what is told of it
        is not taken back."""
        if not self.texts:
            return one
        pieces = self._prompter.pieces(self._prompt_ids, one.token_ids)
        text = "".join(pieces)
        begun = max(_overlap(text, stop) for stop in self.texts)
        return one.cut(_token_at(pieces, len(text) - begun)) if begun else one

    def _in(self, text: str) -> bool:
        return any(stop in text for stop in self.texts)


def _token_at(pieces: Sequence[str], start: int) -> int:
    """The number of the token in which a character stands."""
    return int(np.searchsorted(np.cumsum([len(piece) for piece in pieces]), start, side="right"))


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop text, at most."""
    longest = min(len(text), len(stop) - 1)
    return next((k for k in range(longest, 0, -1) if text.endswith(stop[:k])), 0)

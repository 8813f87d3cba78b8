"""Texts that end a response: found in its last tokens while it is drawn, and cut off afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lookback.engines.transformers.continuations import Continuation
from lookback.engines.transformers.prompts import Prompter


class StopTexts:
    """The texts before which responses to one prompt end.

    Args:
        prompter: turns tokens into text.
        prompt_ids: the prompt.
        texts: one of them, several or none.

    Raises:
        ValueError: an empty one.
    """

    def __init__(self, prompter: Prompter, prompt_ids: list[int], texts: Sequence[str]) -> None:
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
        ends = np.cumsum([len(piece) for piece in pieces])
        return replace(one.cut(int(np.searchsorted(ends, start, side="right"))), finish="stop")

    def _in(self, text: str) -> bool:
        return any(stop in text for stop in self.texts)

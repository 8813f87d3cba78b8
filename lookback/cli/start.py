"""The model of a command: loaded when the first question can be asked, and once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lookback.cli.terminal import console, say
from lookback.embedded import PHOTOGRAPH, shows_photograph

if TYPE_CHECKING:
    from lookback.conversations import Conversation
    from lookback.engines import Engine


class Start:
    """The model of a command.

    Args:
        model: its name; None for the embedded one.
        options: further arguments of `lookback.load`.
        scorer: what will rank the answers; a model without the abilities it needs is refused.
    """

    def __init__(self, model: str | None, options: dict[str, Any], scorer: str) -> None:
        self._model = model
        self._options = options
        self._scorer = scorer
        self._loaded: Engine | None = None
        self._noted = False

    def __call__(self, conversation: Conversation) -> Engine:
        """Return the model; note, once, that the embedded one does not know photographs."""
        loaded = self.engine()
        if not self._noted and loaded.name == "embedded" and shows_photograph(conversation):
            self._noted = True
            say(PHOTOGRAPH)
        return loaded

    def engine(self) -> Engine:
        """Return the model."""
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> Engine:
        from lookback.engines import load, require
        from lookback.scores.base import get_scorer

        with gc_frozen(), console(stderr=True).status("loading the model"):
            loaded: Engine = load(self._model, quiet=True, **self._options)
        require(loaded, get_scorer(self._scorer).uses, f"scorer {self._scorer!r}")
        return loaded


@contextmanager
def gc_frozen() -> Iterator[None]:
    """Keep the garbage collector from traversing the objects that the block creates.

    It would many times while libraries are imported, and once more at the end of the process.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

"""Callbacks while candidates are written: what a server streams and a page shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lookback.engines.common.continuations import Continuation
from lookback.signals import WRITING, Candidate


@dataclass(frozen=True)
class Listener:
    """Somebody who wants to hear of candidates before they are complete.

    Attributes:
        hear: called, from whatever thread the engine works in, with the candidates that are not
            what they were at the last call: each whole as it is so far, with its signals, and with
            `finish="writing"` until it ends; with none, if none has changed for a while. What may
            become a stop text is held back, so nothing is told that is not in the result. It can
            also give up: what it raises ends the draw.
        every: seconds from one call to the next, at least; 0 to hear every token.
    """

    hear: Callable[[Sequence[Candidate]], None]
    every: float = 0.1


class Telling:
    """What one listener was told of one draw.

    Args:
        listener: hears of it.
        candidate: what is told of a continuation, the i-th.
    """

    def __init__(
        self, listener: Listener, candidate: Callable[[int, Continuation], Candidate]
    ) -> None:
        self._listener = listener
        self._candidate = candidate
        self._told: dict[int, tuple[int, str]] = {}  # tokens and finish of each when it was told
        self._due = time.monotonic() + listener.every

    def due(self) -> bool:
        """Whether enough time went by since the listener was told something."""
        return time.monotonic() >= self._due

    def tell(self, found: Sequence[Continuation]) -> None:
        """Tell of those that are not as they were; of none, if all are."""
        self.end([self._candidate(i, one) for i, one in enumerate(found) if self._moved(i, one)])

    def end(self, candidates: Sequence[Candidate]) -> None:
        """Tell of the candidates among these that are not as they were."""
        now = {c.index: (len(c.token_ids), c.finish) for c in candidates}
        new = [c for c in candidates if self._told.get(c.index) != now[c.index]]
        self._told |= now
        self._listener.hear(new)
        # From here on: who takes long to hear, or to be told, does not hold up the draw for longer
        # than every other moment.
        self._due = time.monotonic() + self._listener.every

    def _moved(self, i: int, one: Continuation) -> bool:
        """Whether it may have changed: what has ended, and was told so, has not."""
        told = self._told.get(i)
        return told is None or told[1] == WRITING or one.finish == WRITING

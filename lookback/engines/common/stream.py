"""Callbacks while candidates are written: what a server streams and a page shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lookback.engines.common.continuations import Continuation
from lookback.signals import WRITING, Candidate


@dataclass(frozen=True)
class Listener:
    """A callback for candidates that are not complete yet.

    Attributes:
        hear: called, from whatever thread the engine works in, with the candidates that changed
            since the last call: each whole as it is so far, with its signals, and with
            `finish="writing"` until it ends; with none, if none has changed for a while. What may
            become a stop text is held back, so that nothing is shown that is not in the result.
            What it raises ends the draw.
        every: seconds from one call to the next, at least; 0 for a call with every token.
    """

    hear: Callable[[Sequence[Candidate]], None]
    every: float = 0.1


class StreamNotifier:
    """Calls one listener during one draw, with what changed.

    Args:
        listener: the callback.
        candidate: makes the candidate to show of the i-th continuation.
    """

    def __init__(
        self, listener: Listener, candidate: Callable[[int, Continuation], Candidate]
    ) -> None:
        self._listener = listener
        self._candidate = candidate
        self._shown: dict[int, tuple[int, str]] = {}  # tokens and finish of each at its last call
        self._next = time.monotonic() + listener.every

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def update(self, continuations: Sequence[Continuation]) -> None:
        """Call the listener with the candidates of those that changed."""
        changed = [(i, one) for i, one in enumerate(continuations) if self._may_differ(i, one)]
        self.finish([self._candidate(i, one) for i, one in changed])

    def finish(self, candidates: Sequence[Candidate]) -> None:
        """Call the listener with those of the candidates that changed."""
        now = {c.index: (len(c.token_ids), c.finish) for c in candidates}
        new = [c for c in candidates if self._shown.get(c.index) != now[c.index]]
        self._shown |= now
        self._listener.hear(new)
        # Counted from here: a slow listener holds up the draw for half of the time at most.
        self._next = time.monotonic() + self._listener.every

    def _may_differ(self, i: int, continuation: Continuation) -> bool:
        """Whether it may have changed: one that was shown with its end has not."""
        shown = self._shown.get(i)
        return shown is None or shown[1] == WRITING or continuation.finish == WRITING

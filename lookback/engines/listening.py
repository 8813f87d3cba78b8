"""Hearing candidates while they are written: what a server streams and a page shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lookback.signals import Candidate


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

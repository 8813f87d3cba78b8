"""What a request asks of the tap, sent to every worker as the request's extra arguments.

Of a request without them nothing is recorded; its tokens are still marked in the indicator, as its
blocks may be shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXTRA = "lookback"
"""The name of the extra argument."""


@dataclass(frozen=True)
class TapRequest:
    """What the tap records, and how tokens are drawn, for one request.

    Attributes:
        key: under which its numbers are filed; candidates of one request are `key/0`, `key/1`, ...
        source: (start, end) of each run of source tokens in the prompt; None for every image and
            video.
        length: how many tokens can be recorded; None for as many as the request may draw.
        seed: candidate i draws from the stream (seed, i); None leaves drawing to vLLM.
        temperature, top_p, top_k: of the drawing.
        given: the tokens of a response to score; they follow the prompt.
        by_layer: keep A_t in each layer.
        top: keep so many of the likeliest tokens of each step.
        index: which candidate this is, if the request is of one alone.
        done: how many of its tokens the prompt has already.
    """

    key: str
    source: Sequence[Sequence[int]] | None = None
    length: int | None = None
    seed: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    given: Sequence[int] | None = None
    by_layer: bool = False
    top: int = 0
    index: int | None = None
    done: int = 0

    def extra(self) -> dict[str, Any]:
        """Return it as `SamplingParams.extra_args`."""
        return {EXTRA: asdict(self)}

    @classmethod
    def of(cls, extra: dict[str, Any] | None) -> TapRequest | None:
        """Read it from `SamplingParams.extra_args`; a key alone has the default settings."""
        value = (extra or {}).get(EXTRA)
        if isinstance(value, str):
            return cls(value)
        return cls(**value) if isinstance(value, dict) else None


def runs(mask: NDArray[np.bool_]) -> list[list[int]]:
    """Return (start, end) of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return edges.reshape(-1, 2).tolist()


def mask_of(spans: Sequence[Sequence[int]], length: int) -> NDArray[np.bool_]:
    """Return the mask of some runs: the inverse of `runs`."""
    mask = np.zeros(length, dtype=np.bool_)
    for start, end in spans:
        mask[start:end] = True
    return mask

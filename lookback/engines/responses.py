"""What can be a response that an engine is given: one check for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.signals import Candidate


def check_one(response: Any) -> None:
    """Let pass one response: text, token ids or a candidate.

    Raises:
        TypeError: it is something else.
        ValueError: these are several.
    """
    if isinstance(response, (str, Candidate)):
        return
    if not isinstance(response, (Sequence, np.ndarray)):
        raise TypeError(
            f"look() takes a response as text, token ids or a candidate, got {response!r:.60}"
        )
    if any(not isinstance(one, (int, np.integer)) for one in response):
        raise ValueError(
            f"look() takes one response, got {len(response)}: call it once for each of them"
        )

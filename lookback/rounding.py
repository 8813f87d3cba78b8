"""Weights of looks as they are stored: with fewer bits than they have, so that they compress."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BITS = 9
"""Of a weight's fraction: it is off by at most one part in 2 ** (BITS + 1), 0.1 %."""
WHOLE = 23  # of float32


def rounded(values: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers from 0 to 1 as float32 with `BITS` bits of their fraction; the others are 0."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    cut = WHOLE - BITS
    half = np.uint32(1 << (cut - 1))
    found: NDArray[np.float32] = ((bits + half) >> cut << cut).view(np.float32)
    return found

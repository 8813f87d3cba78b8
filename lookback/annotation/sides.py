"""Which answer stands on which side: it follows from the rater and the case, and can be checked."""

from __future__ import annotations

import re

RATER = re.compile(r"[a-z0-9._@-]{1,40}")
_BITS = 0xFFFFFFFF


def rater_code(given: str) -> str:
    """A rater's code as it is kept: without blanks around it, in small letters.

    Raises:
        ValueError: it has other signs than ASCII letters, digits and `. _ @ -`, or too many.
    """
    code = given.strip().lower()
    if not RATER.fullmatch(code):
        raise ValueError(
            f"the code {given[:60]!r}: give 1 to 40 letters (a to z), digits or any of . _ @ -"
        )
    return code


def is_swapped(study: str, rater: str, set_: int, case: int) -> bool:
    """Whether a rater sees the second answer of a case as A.

    FNV-1a over the names, then the last steps of MurmurHash3: FNV's lowest bit alone is no more
    than the parity of the bytes. `templates/annotate/sides.js` is the same.
    """
    state = 0x811C9DC5
    for byte in f"{study}\n{rater}\n{set_}\n{case}".encode():
        state = (state ^ byte) * 0x01000193 & _BITS
    state = (state ^ state >> 16) * 0x85EBCA6B & _BITS
    state = (state ^ state >> 13) * 0xC2B2AE35 & _BITS
    return bool((state ^ state >> 16) & 1)

"""When two responses give the same answer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_ARTICLES = re.compile(r"\b(a|an|the)\b")


@lru_cache(maxsize=2**16)
def normalised(text: str) -> str:
    """The answer without case, punctuation, articles and needless blanks.

    "The cup.", "a cup" and "cup" are one answer. Punctuation inside a number stays ("3.5"), and a
    text of nothing else keeps it.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = re.sub(r"(?<!\d)[^\w\s]|[^\w\s](?!\d)", " ", folded)
    return " ".join(_ARTICLES.sub(" ", words).split()) or " ".join(folded.split())


def same_answers(texts: Sequence[str]) -> list[int]:
    """For each text the number of its answer: equal numbers, equal answers."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(normalised(text), len(numbers)) for text in texts]

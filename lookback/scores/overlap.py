"""How much of what two texts say is the same: the F1 of their words, as SQuAD has it."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from lookback.scores.formula import Array

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@lru_cache(maxsize=2**14)
def words_of(text: str) -> tuple[str, ...]:
    """As SQuAD's own evaluation has them: lower case, without ASCII punctuation and articles."""
    return tuple(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def word_f1(first: Sequence[str], second: Sequence[str]) -> float:
    """The F1 of two lists of words, each word as often as it is said; 1 if both are empty."""
    if not first or not second:
        return float(list(first) == list(second))
    common = (Counter(first) & Counter(second)).total()
    return 2 * common / (len(first) + len(second))


def pairwise_f1(bags: Sequence[Sequence[str]]) -> Array:
    """(n, n): `word_f1` of each with each, by one product of matrices."""
    columns: dict[tuple[str, int], int] = {}
    rows, places = [], []
    for row, words in enumerate(bags):
        said: Counter[str] = Counter()
        for word in words:  # the second "cup" of a text is another column than the first
            said[word] += 1
            rows.append(row)
            places.append(columns.setdefault((word, said[word]), len(columns)))
    has = np.zeros((len(bags), max(1, len(columns))))
    has[rows, places] = 1
    lengths = has.sum(1)
    both = lengths[:, None] + lengths
    return np.where(both > 0, 2 * (has @ has.T) / np.maximum(both, 1), 1.0)

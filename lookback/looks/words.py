"""Which tokens of a response spell a word or a phrase.

Tokens, joined, are what the model wrote. A word owns every token that has a character of it, so
that a token that reaches over two words belongs to both. Nothing here knows a language but the list
of English words that carry little content.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

FUNCTION_WORDS = frozenset(
    word
    for line in (
        "a an the this that these those it its he she they them his her their we you i me my",
        "your our and or but nor so if then than as of in on at by to from with without for",
        "into onto over under above below up down out off near next between behind beside",
        "through across along around is are was were be been being am has have had having do",
        "does did can could may might must shall should will would there here where when while",
        "which who whom whose what how why not also just very too both each some any all such",
        "only own same other more most about against toward towards",
    )
    for word in line.split()
)
"""English words that say how others hang together, and show nothing themselves."""

_JOINERS = "'’-‐‑\u200c\u200d"  # inside a word, between letters
_POINTS = ".,"  # inside a number, between digits
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)  # Thai, Lao, Burmese, Khmer, Japanese, Chinese: written without blanks between words


class Word(NamedTuple):
    """A word of a response.

    Attributes:
        text: as it was written.
        tokens: which tokens spell it.
        content: whether it is more than a word that others hang together by.
    """

    text: str
    tokens: slice
    content: bool


def find_words(tokens: Sequence[str]) -> list[Word]:
    """Return the words that some tokens spell, in order.

    In scripts that are written without blanks, a word is what one token has of it.
    """
    written, ends = "".join(tokens), _ends(tokens)
    words = []
    for start, stop in _spans(tokens):
        word = written[start:stop]
        words.append(Word(word, _tokens_of(tokens, ends, start, stop), _has_content(word)))
    return words


def find_phrase(tokens: Sequence[str], phrase: str) -> slice:
    """Return the tokens of the first occurrence of a phrase: whole words, in any case.

    Raises:
        ValueError: it is not there.
    """
    written = "".join(tokens)
    wanted = phrase.split()
    forms = dict.fromkeys(
        r"\s+".join(re.escape(unicodedata.normalize(form, word)) for word in wanted)
        for form in ("NFC", "NFD")
    )
    for form in [r"\s+".join(map(re.escape, wanted)), *forms] if wanted else []:
        for match in re.finditer(form, written, re.IGNORECASE):
            start, stop = match.span()
            if not (_inside_word(written, start) or _inside_word(written, stop)):
                return _tokens_of(tokens, _ends(tokens), start, stop)
    words = list(dict.fromkeys(word.text for word in find_words(tokens)))
    more = f" and {len(words) - 40} more" if len(words) > 40 else ""
    raise ValueError(
        f"{phrase!r} is not in the response; its words are: {', '.join(words[:40]) or 'none'}{more}"
    )


def _ends(tokens: Sequence[str]) -> list[int]:
    """Where each token ends in what they spell together."""
    return list(accumulate(map(len, tokens)))


def _tokens_of(tokens: Sequence[str], ends: list[int], start: int, stop: int) -> slice:
    """The tokens that have a character from `start` up to `stop`."""
    first, last = bisect_right(ends, start), bisect_left(ends, stop)
    while first and not tokens[first - 1]:  # part of a character that the token behind it shows
        first -= 1
    return slice(first, last + 1)


def _spans(tokens: Sequence[str]) -> list[tuple[int, int]]:
    written, borders = "".join(tokens), set(_ends(tokens))
    spans: list[tuple[int, int]] = []
    start = None
    for i in range(len(written) + 1):
        inside = i < len(written) and _is_word(written, i)
        if start is not None and (not inside or _parts(written, i, borders)):
            spans.append((start, i))
            start = None
        if inside and start is None:
            start = i
    return [(a, b) for a, b in spans if any(map(str.isalnum, written[a:b]))]


def _parts(written: str, i: int, borders: set[int]) -> bool:
    """Whether two characters of words, the one at i and that before, belong to two words."""
    before, here = (_UNSPACED.match(written[at]) is not None for at in (i - 1, i))
    return before != here or (here and i in borders)


def _is_word(written: str, i: int) -> bool:
    character = written[i]
    if _is_letter(character):
        return True
    if not 0 < i < len(written) - 1:
        return False
    before, behind = written[i - 1], written[i + 1]
    if character in _POINTS:
        return before.isdigit() and behind.isdigit()
    return character in _JOINERS and _is_letter(before) and _is_letter(behind)


def _is_letter(character: str) -> bool:
    """Letters, digits, and the marks that belong to them (accents, vowel signs)."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def _inside_word(written: str, i: int) -> bool:
    """Whether a cut before the character at i would go through a word of a spaced script."""
    if not 0 < i < len(written):
        return False
    pair = written[i - 1 : i + 1]
    return all(_is_letter(one) and not _UNSPACED.match(one) for one in pair)


def _has_content(word: str) -> bool:
    plain = word.casefold().replace("’", "'")
    return not plain.endswith("n't") and plain.partition("'")[0] not in FUNCTION_WORDS

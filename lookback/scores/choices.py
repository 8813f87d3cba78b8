"""Which letter a reply chooses: "B", "(B)", "B.", "The answer is B", "Option B) ...".

The article "A" and the pronoun "I" are not choices.
"""

from __future__ import annotations

import re
import string

LETTERS = string.ascii_uppercase
# What cannot follow the article: "A is right" and "A because ..." speak of the letter.
_NOT_A_NOUN = (
    "or|and|is|was|has|does|seems|looks|because|since|as|for|but|which|that|than|over|not|in|on|of"
)
_ARTICLE = re.compile(rf"\bA(?=\s+(?!(?:{_NOT_A_NOUN})\b)[a-z])")
_LIST = r"\s*[A-Z]\s*(?:,|or\b|and\b|$)"  # "A, B and C" chooses none of them
_FIRST = re.compile(
    rf"[\s*(\[\"']*([A-Za-z])(?:\s*[)\]]|[\s*\"']*(?:$|\n|[.:](?![A-Za-z])|,(?!{_LIST})))"
)
# Blanks stand in one place of a pattern only: two would share a long run of them in every way.
_OPTION = re.compile(r"\b(?:response|option|choice)\s*(?:[:(\[*]+\s*)?\(?([A-Z])\b", re.IGNORECASE)
_ANSWER = re.compile(r"\b(?:answer|is)\s*(?:[:(\[*\"']+\s*)?\(?([A-Z])\b(?!'[a-z])", re.IGNORECASE)
_ALONE = re.compile(r"(?<![A-Za-z])(?<![A-Za-z]')([A-Z])(?![A-Za-z]|'[A-Za-z])")


def chosen_letter(reply: str, letters: str = LETTERS) -> str | None:
    """The letter that a reply chooses; None if it names none, or several without choosing.

    In this order: a letter that is the first line, or stands before punctuation or a closing
    bracket at the beginning; the only one that is called a response, an option, a choice or the
    answer; the only one that stands alone.

    Args:
        reply: the text.
        letters: the capital letters that can be chosen; others are words like any.
    """
    text = reply.strip()
    first = _FIRST.match(text)
    if first and first[1].upper() in letters:
        return first[1].upper()
    without_article = _ARTICLE.sub("", text)
    called = {*_OPTION.findall(text), *_ANSWER.findall(without_article)}
    alone = set(_ALONE.findall(without_article)) - {"I"}
    for found in (called, alone):
        chosen = {letter for letter in found if letter in letters}  # capitals only
        if chosen:
            return chosen.pop() if len(chosen) == 1 else None
    return None

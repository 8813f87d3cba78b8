"""From words to tagged tokens: the parser's dictionary.

It knows more than the generated text uses (synonyms, plurals, digits, other names for places),
so that a model's own wording is understood too.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lookback.benchmarks.scenes.world import CATEGORIES, COLORS

WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|[.,;:!?]")


class Token(NamedTuple):
    """A tag and what it stands for; words the parser does not need have the tag "word"."""

    tag: str
    value: str


def _nouns() -> dict[str, Token]:
    entries: dict[str, Token] = {}
    for name, category in CATEGORIES.items():
        for word in (name, *category.synonyms):
            ending = "es" if word.endswith(("s", "sh", "ch")) else "s"
            entries |= dict.fromkeys((word, word + ending), Token("noun", name))
    return entries | {w + s: Token("thing", w) for w in ("thing", "object") for s in ("", "s")}


ROW_WORDS = {"top": ("top", "upper"), "middle": ("middle", "center"), "bottom": ("bottom", "lower")}
COLUMN_WORDS = {"left": ("left",), "center": ("center", "middle"), "right": ("right",)}
# Alone, these words are places only after "the", or as the whole answer: see `tokens`.
EDGES = {
    "top": "top center",
    "bottom": "bottom center",
    "left": "middle left",
    "right": "middle right",
}


def _places() -> dict[str, Token]:
    names = {"center": "center", "middle": "center"}
    for row, row_words in ROW_WORDS.items():
        for column, column_words in COLUMN_WORDS.items():
            place = "center" if (row, column) == ("middle", "center") else f"{row} {column}"
            names |= {f"{r} {c}": place for r in row_words for c in column_words}
    # With "the", so that "the top left" is not read as "the top" and then "left".
    names |= {f"the {words}": place for words, place in names.items()}
    names |= {f"the {word}{s}": place for word, place in EDGES.items() for s in ("", " side")}
    return {words: Token("place", place) for words, place in names.items()}


def _relations() -> dict[str, Token]:
    sides = {
        f"{before}{side} {after}": Token("relation", f"{side} of")
        for side in ("left", "right")
        for before in ("the ", "")
        for after in ("of", "side of")
    }
    others = {
        "above": ("above", "over", "on top of"),
        "below": ("below", "under", "beneath", "underneath"),
        "next to": ("next to", "beside"),
    }
    return sides | {w: Token("relation", name) for name, words in others.items() for w in words}


STOPS = (".", "!", "?", ",", ";", ":")
NUMBER_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)
_TAGS: dict[str, tuple[str, ...]] = {
    "be": ("is", "are", "was", "were", "looks", "look", "seems", "appears", "has", "have"),
    "not": ("not", "cannot", "without", "neither", "nor", "never"),
    "no": ("no",),
    "a": ("a", "an", "another"),
    "the": ("the", "this", "that", "its"),
    "it": ("it", "they", "both", "these"),
    "and": ("and", "or", "as well as", "with"),
    "but": ("but", "while", "whereas", "instead"),
    "frame": ("picture", "image", "scene", "photo", "drawing"),
    "stop": STOPS[:3],
    "comma": STOPS[3:],
}

LEXICON: dict[str, Token] = {
    **{word: Token(tag, word) for tag, words in _TAGS.items() for word in words},
    **{word: Token("number", str(n)) for n, word in enumerate(NUMBER_WORDS)},
    "none": Token("number", "0"),
    "nothing": Token("number", "0"),
    "a single": Token("number", "1"),
    "a couple of": Token("number", "2"),
    **{word: Token("color", word) for word in COLORS},
    "violet": Token("color", "purple"),
    "golden": Token("color", "yellow"),
    **{word: Token("size", "small") for word in ("small", "little", "tiny")},
    **{word: Token("size", "large") for word in ("large", "big", "huge")},
    **_nouns(),
    **_places(),
    **_relations(),
}
HUGE = 18
"""Digits of a number that are read: Python converts no number of thousands of digits, and a count
so large is wrong in any case."""
LONGEST = max(len(phrase.split()) for phrase in LEXICON)


Span = tuple[int, int]
"""From the first character on, up to but without the second."""


def tokens(text: str) -> list[Token]:
    """The text as tagged tokens, the longest known phrase first, ending in a stop."""
    return [token for token, _ in located(text)]


def located(text: str) -> list[tuple[Token, Span]]:
    """The same, each with its characters in `plain(text)`."""
    matches = list(WORD.finditer(plain(text)))
    words, spans = [m[0] for m in matches], [m.span() for m in matches]
    if words[:1] and words[0] in EDGES and (words[1:2] or ["."])[0] in STOPS:
        words.insert(0, "the")
        spans.insert(0, spans[0])
    found: list[tuple[Token, Span]] = []
    i = 0
    while i < len(words):
        for length in range(min(LONGEST, len(words) - i), 0, -1):
            token = LEXICON.get(" ".join(words[i : i + length]))
            if token is not None:
                found.append((token, (spans[i][0], spans[i + length - 1][1])))
                i += length
                break
        else:
            word, span = words[i], spans[i]
            i += 1
            if word.isdigit():
                digits = word.lstrip("0")[:HUGE] or "0"
                found.append((Token("number", str(int(digits))), span))
            elif word.endswith("n't"):
                stem = LEXICON.get(word[:-3])
                found += [(stem, span)] if stem else []
                found.append((Token("not", word), span))
            else:
                found.append((Token("word", word), span))
    return [*found, (Token("stop", "."), (0, 0))]


def plain(text: str) -> str:
    """The text as the dictionary reads it: in lower case, "'s" written out."""
    return text.lower().replace("’", "'").replace("'s ", " is ")


def origins(text: str) -> list[int]:
    """For each character of `plain(text)` the character of the text that it comes from."""
    at = [i for i, char in enumerate(text) for _ in char.lower()]  # two for a few letters
    found, done = [], 0
    for match in re.finditer("'s ", text.lower().replace("’", "'")):
        found += at[done : match.start()]
        found.append(at[match.start()])  # "'s " becomes " is "
        done = match.start()
    return found + at[done:]

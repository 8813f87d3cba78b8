"""What a text says of a scene: which things there are, how they look, where they are.

The dictionary has more than the generated text uses (synonyms, plurals, digits, other names for
places), so that a model's own wording is understood too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from lookback.scenes.world import CATEGORIES, COLORS

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
# Alone, these words are places only after "the", or as the whole answer: see `located`.
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
    *("zero", "one", "two", "three", "four", "five"),
    *("six", "seven", "eight", "nine", "ten"),
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


def located(text: str) -> list[tuple[Token, Span]]:
    """Return tagged tokens, the longest known phrase first, and their places in `plain(text)`."""
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
    """Return the text as the dictionary reads it: in lower case, "'s" written out."""
    return text.lower().replace("’", "'").replace("'s ", " is ")


def origins(text: str) -> list[int]:
    """Return, for each character of `plain(text)`, the position in the text that it comes from."""
    at = [i for i, char in enumerate(text) for _ in char.lower()]  # two for a few letters
    found, done = [], 0
    for match in re.finditer("'s ", text.lower().replace("’", "'")):
        found += at[done : match.start()]
        found.append(at[match.start()])  # "'s " becomes " is "
        done = match.start()
    return found + at[done:]


@dataclass(eq=False)
class Mention:
    """A thing or things that the text speaks of.

    Attributes:
        category: None if the text does not say it: "it", "four things", or the bare answer "Red.".
        count: how many; None if not said.
        exact: the count is a number and not just an article.
        said: the values asserted, by "color", "size" and "place".
        denied: the values denied: "the cup is not red".
        negated: the text says that there is no such thing.
        at: where its noun stands, in characters of `plain(text)`.
    """

    category: str | None = None
    count: int | None = None
    exact: bool = False
    said: dict[str, list[str]] = field(default_factory=dict)
    denied: dict[str, list[str]] = field(default_factory=dict)
    negated: bool = False
    at: Span = (0, 0)

    def tell(self, token: Token, denied: bool = False) -> None:
        (self.denied if denied else self.said).setdefault(token.tag, []).append(token.value)


@dataclass(frozen=True, eq=False)
class Relation:
    """That the first thing is, say, "left of" the second; or, if denied, that it is not."""

    first: Mention
    name: str
    second: Mention
    denied: bool = False


@dataclass
class Parsed:
    """All that a text says."""

    mentions: list[Mention] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)

    def categories(self) -> set[str]:
        """Return the categories of which the text says that there is one."""
        return {m.category for m in self.mentions if m.category and not m.negated}


class _Reader:
    """Reads tokens one by one; each tag has a method of its name."""

    def __init__(self) -> None:
        self.parsed = Parsed()
        self.subject: Mention | None = None
        self.at: Span = (0, 0)  # of the token that is being read
        self.begin_sentence()

    def begin_sentence(self) -> None:
        self.antecedent: Mention | None = self.subject  # whom "it" means
        self.subject = None  # whom a verb speaks of
        self.last: Mention | None = None  # nearest mention before, in this sentence
        self.adjectives: list[Token] = []
        self.places: list[tuple[Token, bool]] = []  # in front of their thing, with their negation
        self.number: Token | None = None
        self.relation: tuple[Mention | None, str, bool] | None = None  # waits for its second thing
        self.landmark: tuple[Mention, str, bool] | None = None  # waits for its first thing
        self.verb = self.denying = self.broken = False

    def read(self, text: str) -> Parsed:
        for (token, self.at), (following, _) in pairwise(
            [*located(text), (Token("end", ""), (0, 0))]
        ):
            if token.tag == "no" and following.tag in ("comma", "stop"):
                continue  # the answer "No", not a determiner
            handler = getattr(self, f"on_{token.tag}", None)
            if handler:
                handler(token)
        return self.parsed

    def mention(self, category: str | None) -> Mention:
        mention = Mention(category)
        self.parsed.mentions.append(mention)
        return mention

    def owner(self) -> Mention:
        """Return what a loose attribute belongs to: the subject, else something unsaid."""
        if self.subject is None:
            self.subject = self.last = self.mention(None)
        return self.subject

    def settle(self) -> None:
        """Give adjectives and numbers to the subject: a noun phrase did not come."""
        for token in self.adjectives:
            self.owner().tell(token, self.denying)
        if self.number and self.number.tag == "number":
            mention = self.mention(None)
            mention.count, mention.exact = int(self.number.value), True
        self.adjectives, self.number = [], None

    # Parts of a noun phrase

    def on_a(self, token: Token) -> None:
        self.settle()
        self.number = token

    on_the = on_no = on_a

    def on_number(self, token: Token) -> None:
        if token.value == "1" and self.number is not None and self.number.tag in ("a", "the"):
            self.number = None  # "a red one" speaks of the subject
        else:
            self.on_a(token)

    def on_color(self, token: Token) -> None:
        self.adjectives.append(token)

    on_size = on_color

    def on_thing(self, token: Token) -> None:
        self.on_noun(Token("noun", ""))

    def on_noun(self, token: Token) -> None:
        category = token.value or None
        if self.verb and self.subject and self.subject.category is None and not self.relation:
            mention = self.subject  # "the thing at the top left is a cup", "it is a cup"
            mention.category, mention.negated = category, self.denying
        else:
            mention = self.mention(category)
            self.connect(mention)
        mention.at = self.at
        if self.number is not None and self.number.tag != "the":
            mention.exact = self.number.tag != "a"
            mention.count = {"a": 1, "no": 0}.get(self.number.tag)
            if mention.count is None:
                mention.count = int(self.number.value)
            mention.negated = mention.negated or mention.count == 0
        for adjective in self.adjectives:
            mention.tell(adjective)
        self.adjectives, self.number, self.broken = [], None, False

    def connect(self, mention: Mention) -> None:
        """Tie a new mention to the relation or the place that waits for it."""
        self.last = mention
        if self.relation:
            first, name, denied = self.relation
            self.relation = None
            if first is None:
                self.landmark = (mention, name, denied)
            else:
                self.parsed.relations.append(Relation(first, name, mention, denied))
            return  # a landmark is not what the sentence speaks of
        if self.landmark:
            second, name, denied = self.landmark
            self.parsed.relations.append(Relation(mention, name, second, denied))
            self.landmark = None
        mention.negated = self.denying
        for place, denied in self.places:
            mention.tell(place, denied)
        self.places = []
        self.subject, self.verb = mention, False

    # What stands around noun phrases

    def on_it(self, token: Token) -> None:
        self.settle()
        self.subject = self.subject or self.antecedent or self.mention(None)
        self.last, self.verb = self.subject, False

    def on_be(self, token: Token) -> None:
        self.settle()
        self.verb = True

    def on_place(self, token: Token) -> None:
        self.settle()
        if self.last is None or self.broken:
            self.places.append((token, self.denying))
        else:
            owner = self.subject if self.verb and self.subject else self.last
            owner.tell(token, self.denying)

    def on_relation(self, token: Token) -> None:
        self.settle()
        first = self.subject if self.verb and self.last else self.last
        self.relation = (
            None if self.broken and not self.verb else first,
            token.value,
            self.denying,
        )

    def on_frame(self, token: Token) -> None:
        self.settle()
        if self.relation:  # "on the left of the picture" is a place
            side = {"left of": "middle left", "right of": "middle right"}.get(self.relation[1])
            self.relation = None
            if side:
                self.on_place(Token("place", side))
        elif self.denying and self.verb and self.last and self.last is self.subject:
            self.last.negated = True  # "the cup is not in the picture"

    def on_not(self, token: Token) -> None:
        self.settle()
        self.denying = True

    def on_and(self, token: Token) -> None:
        self.broken = True

    def on_comma(self, token: Token) -> None:
        if self.denying:
            self.settle()
            self.denying = False
        self.broken = True

    def on_but(self, token: Token) -> None:
        self.settle()
        self.denying, self.broken = False, True

    def on_stop(self, token: Token) -> None:
        self.settle()
        for place, denied in self.places:
            self.owner().tell(place, denied)
        self.begin_sentence()


def parse(text: str) -> Parsed:
    """Return what the text says; never fails, at worst it says nothing."""
    return _Reader().read(text)

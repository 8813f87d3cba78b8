"""AMBER, its generative part: which things a description names, and which of them are there.

A response's nouns are put into their dictionary form in lower case, and those that AMBER's
`relation.json` has, as a key or as a value, are kept. An image has a list of things that are there
(`truth`) and one of things that a model is likely to make up (`hallu`). A noun means a thing of
such a list if it is that thing or one associated with it by `relation.json`: the first that fits,
associated nouns before the things' own names, as in the official script.

- A kept noun of `safe_words.txt` is neither right nor wrong: it only counts as kept.
- One that means a true thing is right, and the thing is covered.
- Any other is wrong, unless its word vector is close to that of a true thing or an associated
  noun: then it is right, and that thing is covered. Without vectors there is no such check.
- If it means a thing that models make up (or, with vectors, is close to one), it counts for Cog,
  whatever it is otherwise. As in the official script, the vectors are asked even where its name
  fits, so that it may stand for two such things: the one that it names, and the first of the
  list that it is close to.

AMBER's own numbers count mentions, so that a noun that occurs twice counts twice, over all
responses: chair_i = wrong / kept; cover = things covered / true things; hal = the share of
responses with a wrong noun; cog = nouns that count for Cog / kept, as AMBER's paper defines it,
and cog_official = made-up things named / made-up things listed, as its script computes it.

The paper's F1, our reading, is over sets of things, as for CHAIR: per response, G is the image's
true things, and P the true things that are covered and the nouns that are wrong, each once; safe
nouns are in neither. Precision |P n G| / |P|, recall |P n G| / |G|; the mean over responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lookback.benchmarks import english
from lookback.benchmarks.base import Item, benchmark, f1, mean_percent, share
from lookback.benchmarks.files import (
    ID,
    FileBenchmark,
    ImageFile,
    Shape,
    check_lists,
    check_rows,
    check_words,
    read_json,
    read_text,
)
from lookback.io.storage import AnyPath

CLOSE = 0.8  # word vectors with a larger cosine are of one meaning
_QUERY: Shape = {"id": ID, "image": str, "query": str}
_FOLDERS = ("", "data/", "query/", "data/query/")  # of the official repository


@dataclass(frozen=True)
class Judgement:
    """What a response's kept nouns are.

    Attributes:
        kept, wrong, made_up: numbers of nouns; `made_up` are those that count for Cog.
        covered: positions of the image's true things that are named.
        fooled: positions of the image's made-up things that are named.
        false: the nouns that are wrong, each once.
    """

    kept: int
    wrong: int
    made_up: int
    covered: frozenset[int]
    fooled: frozenset[int]
    false: frozenset[str]


@benchmark("amber", title="AMBER")
class Amber(FileBenchmark):
    """F1 over things, and AMBER's own numbers, of which only `cover` is better when higher."""

    primary = "f1"
    source = "AMBER, github.com/junyangwang0410/AMBER, its data folder; images: link in its README"
    files = (
        "query_generative.json",
        "annotations.json",
        "relation.json",
        "safe_words.txt",
        "images (to sample)",
    )

    def check(self) -> None:
        self._queries()
        for name in self.files[1:4]:
            self._file(name)

    def _file(self, *names: str) -> AnyPath:
        """Return the first of these files that is there."""
        return self.find(*(folder + name for name in names for folder in _FOLDERS))

    def _queries(self) -> AnyPath:
        return self._file("query_generative.json", "query_all.json")

    def load(self, split: str) -> Sequence[Item]:
        """Return one item for each generative query, by the query's id."""
        path = self._file("annotations.json")
        rows = check_rows(read_json(path), {"id": ID, "type": str}, repr(str(path)))
        annotations = {entry["id"]: entry for entry in rows}
        queries = self._queries()
        items = []
        for query in check_rows(read_json(queries), _QUERY, repr(str(queries))):
            if query["id"] not in annotations:
                raise ValueError(f"AMBER's annotations.json has no id {query['id']}")
            entry = annotations[query["id"]]
            if entry["type"] == "generative":
                places = tuple(f"{place}{query['image']}" for place in ("", "image/", "images/"))
                image = ImageFile(self.folder, places, self.source, from_data=True)
                where = f"{str(path)!r}, id {query['id']}"
                truth = {
                    key: check_words(entry.get(key), f"{where}, {key!r}")
                    for key in ("truth", "hallu")
                }
                items.append(Item(str(query["id"]), query["query"], truth, image))
        self._check_things(items)
        return items

    def _check_things(self, items: Sequence[Item]) -> None:
        """Raise ValueError for files with nothing in common: any response would score 0."""
        things = {thing.lower() for item in items for thing in item.truth["truth"]}
        if items and not things & self._vocabulary:
            raise ValueError(
                f"none of the {len(things)} things of AMBER's annotations.json is in "
                f"{str(self._file('relation.json'))!r}: every response would score 0"
            )

    @cached_property
    def _associated(self) -> dict[str, list[str]]:
        """The nouns that stand for a thing beside its own name."""
        path = self._file("relation.json")
        relation = check_lists(read_json(path), repr(str(path)))
        return {thing.lower(): [n.lower() for n in nouns] for thing, nouns in relation.items()}

    @cached_property
    def _vocabulary(self) -> set[str]:
        return set(self._associated).union(*self._associated.values())

    @cached_property
    def _safe_words(self) -> set[str]:
        return set(read_text(self._file("safe_words.txt")).split())

    @cached_property
    def _by_vectors(self) -> bool:
        return english.has_vectors()

    def _say_similarity(self) -> None:
        """Note which model compares nouns, or that none does."""
        model = english.model_name()
        note = (
            f"word-vector similarity is on, with the vectors of {model}"
            if self._by_vectors
            else f"word-vector similarity is off: {model} has no vectors; the official setting "
            "needs en_core_web_lg (python -m spacy download en_core_web_lg)"
        )
        if note not in self.notes:
            self.notes.append(note)

    @cached_property
    def _readings(self) -> english.Readings[list[str]]:
        return english.Readings(self._nouns)

    def _nouns(self, words: Sequence[english.Word]) -> list[str]:
        return [w.lemma for w in words if w.tag.startswith("NN") and w.lemma in self._vocabulary]

    def nouns(self, response: str) -> list[str]:
        """Return the lemmas of the nouns that are kept, in the response's order."""
        return self._readings(response)

    def judgement(self, item: Item, response: str) -> Judgement:
        return self.judgements(item, [response])[0]

    def judgements(self, item: Item, responses: Sequence[str]) -> list[Judgement]:
        """Judge several responses to one item, read together, by the module's rules."""
        self._readings.prepare(responses)
        true, made_up = (self._meanings(item.truth[key]) for key in ("truth", "hallu"))
        return [self._judgement(self.nouns(response), true, made_up) for response in responses]

    def _judgement(
        self, nouns: Sequence[str], true: Mapping[str, int], made_up: Mapping[str, int]
    ) -> Judgement:
        tempted = 0
        wrong: list[str] = []
        covered: set[int] = set()
        fooled: set[int] = set()
        for noun in nouns:
            if noun in self._safe_words:
                continue
            if noun in true:
                covered.add(true[noun])
                continue
            meant = (made_up.get(noun), self._close(noun, made_up))
            tempted += meant != (None, None)
            fooled.update(position for position in meant if position is not None)
            if (close := self._close(noun, true)) is not None:
                covered.add(close)
            else:
                wrong.append(noun)
        return Judgement(
            kept=len(nouns),
            wrong=len(wrong),
            made_up=tempted,
            covered=frozenset(covered),
            fooled=frozenset(fooled),
            false=frozenset(wrong),
        )

    def _meanings(self, things: Sequence[str]) -> dict[str, int]:
        """Return the nouns that mean one of these things, each with the position of the thing."""
        meanings: dict[str, int] = {}
        lower = [thing.lower() for thing in things]
        for position, thing in enumerate(lower):
            for noun in self._associated.get(thing, ()):
                meanings.setdefault(noun, position)
        for position, thing in enumerate(lower):
            meanings.setdefault(thing, position)
        return meanings

    def _close(self, noun: str, meanings: Mapping[str, int]) -> int | None:
        """Return the position of the first thing that a noun is close to by its vector.

        The noun is compared with its own name, too: the script's loop ends there.
        """
        if not self._by_vectors:
            return None
        close = (p for other, p in meanings.items() if english.similarity(noun, other) > CLOSE)
        return next(close, None)

    def score(self, item: Item, response: str) -> float:
        return self.scores(item, [response])[0]

    def scores(self, item: Item, responses: Sequence[str]) -> list[float]:
        things = len({thing.lower() for thing in item.truth["truth"]})
        return [
            f1(share(covered, covered + len(judged.false)), share(covered, things))
            for judged in self.judgements(item, responses)
            for covered in [len(judged.covered)]
        ]

    def aggregate(self, items: Sequence[Item], responses: Sequence[str]) -> dict[str, float]:
        self._readings.prepare(responses)
        self._say_similarity()
        return super().aggregate(items, responses)

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        judged = [self.judgement(item, r) for item, r in zip(items, responses, strict=True)]
        kept = sum(j.kept for j in judged)

        def listed(key: str) -> int:
            return sum(len(item.truth[key]) for item in items)

        def percent(parts: Iterable[int], whole: int) -> float:
            return 100 * share(sum(parts), whole)

        return {
            "chair_i": percent((j.wrong for j in judged), kept),
            "cover": percent((len(j.covered) for j in judged), listed("truth")),
            "hal": mean_percent([j.wrong > 0 for j in judged]),
            "cog": percent((j.made_up for j in judged), kept),
            "cog_official": percent((len(j.fooled) for j in judged), listed("hallu")),
        }

"""CHAIR: which objects a description of a COCO photograph names, and which of them are there.

An image's objects are the categories of its instances, united with those that its five captions
name by the same rules (`coco_objects`) as a response.

- f1 (the paper's): per image, over sets of objects; an empty denominator gives 0; the mean.
- chair_s: the share of responses that name any object that is not there.
- chair_i: the share of all mentions, in all responses, that are of an object that is not there.
- recall: of all images' objects together, the share that is named.
- length: words per response, on average; the only number that is not in per cent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from lookback.benchmarks.base import (
    Item,
    Items,
    Mentioning,
    Preparing,
    benchmark,
    f1,
    mean_percent,
    share,
)
from lookback.benchmarks.coco_objects import CATEGORIES, CATEGORY_OF, located, read_synonyms
from lookback.benchmarks.english import Readings, Word, tokens
from lookback.benchmarks.files import (
    DATA_VARIABLE,
    FileBenchmark,
    check_lists,
    coco_image,
    get_rows,
    read_json,
)
from lookback.io.storage import AnyPath, to_path

PROMPT = "Please describe this image in detail."
READY = "ground_truth_objects.json"
SYNONYMS = "synonyms.txt"


class Reading(NamedTuple):
    """What a text says.

    Attributes:
        mentions: the category of every mention of an object, in the order of the text.
        length: how many words it has; punctuation marks are none.
        places: of every mention the words that it is: from the first on, up to the second.
    """

    mentions: list[str]
    length: int
    places: list[tuple[int, int]]


@benchmark("chair", title="CHAIR")
class Chair(FileBenchmark, Mentioning, Preparing):
    """F1 over objects, and CHAIR's own numbers, of which chair_s and chair_i are better when lower.

    Args:
        data: a folder with COCO's instances and captions, or with a ready file of each image's
            objects, which is then used instead: {"757": ["elephant"], ...}.
        synonyms: CHAIR's original synonyms.txt, to use its words and not our table's; None for the
            one in the folder, if there is one.
    """

    primary = "f1"
    source = (
        "MS-COCO 2014 train/val annotations, cocodataset.org (annotations_trainval2014.zip); "
        "images: val2014.zip, same place"
    )
    files = ("instances_val2014.json", "captions_val2014.json", "images (to sample)")
    sampled = 1000

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        synonyms: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(data)
        self.synonyms = synonyms
        self._readings = Readings(self._reading)

    def check(self) -> None:
        if self._ready is None:
            self._coco()

    @property
    def _ready(self) -> AnyPath | None:
        return self.find_optional(READY)

    def _coco(self) -> tuple[AnyPath, AnyPath]:
        """Return the instances and the captions of the same subset."""
        names = ("instances_val2014.json", "*instances*.json", "*instances*.json.gz")
        instances = self.find(*names, *(f"annotations/{name}" for name in names))
        beside = "" if instances.parent == self.folder else f"{instances.parent.name}/"
        return instances, self.find(beside + instances.name.replace("instances", "captions"))

    def load(self, split: str) -> Sequence[Item]:
        """Return one item per image, by COCO's number."""
        subset = "val2014"
        if self._ready is not None:
            truths = _ready_truths(self._ready)
        else:
            instances, captions = self._coco()
            subset = "train2014" if "train" in instances.name else subset
            truths = _coco_truths(instances, captions)
        ids, folder = sorted(truths), self.folder

        def make(index: int) -> Item:
            number = ids[index]
            return Item(str(number), PROMPT, truths[number], coco_image(folder, number, subset))

        return Items(range(len(ids)), make)

    @cached_property
    def _category_of(self) -> Mapping[str, str]:
        """The words that count; a note says so if they are not our own."""
        if self.synonyms is None and not (self.data or os.environ.get(DATA_VARIABLE)):
            return CATEGORY_OF  # a text can be read without any file
        path = self.find_optional(SYNONYMS) if self.synonyms is None else to_path(self.synonyms)
        if path is None:
            return CATEGORY_OF
        self.notes.append(f"objects by the words of {str(path)!r}")
        return read_synonyms(path)

    def _reading(self, words: Sequence[Word]) -> Reading:
        mentions = located([word.lemma for word in words], self._category_of)
        length = sum(any(map(str.isalnum, word.text)) for word in words)
        return Reading([name for name, _, _ in mentions], length, [(a, b) for _, a, b in mentions])

    def read(self, text: str) -> Reading:
        return self._readings(text.lower())  # as the public scripts do

    def objects(self, item: Item) -> set[str]:
        named = (self.read(caption).mentions for caption in item.truth["captions"])
        return set(item.truth["objects"]).union(*named)

    def score(self, item: Item, response: str) -> float:
        return self.scores(item, [response])[0]

    def scores(self, item: Item, responses: Sequence[str]) -> list[float]:
        self.prepare([item], responses)
        there = self.objects(item)
        return [self._f1(set(self.read(response).mentions), there) for response in responses]

    def _f1(self, named: set[str], there: set[str]) -> float:
        hits = len(named & there)
        return f1(share(hits, len(named)), share(hits, len(there)))

    def prepare(self, items: Sequence[Item], responses: Sequence[str]) -> None:
        captions = [caption for item in items for caption in item.truth["captions"]]
        self._readings.prepare(text.lower() for text in [*responses, *captions])

    def mentions(self, item: Item, response: str) -> list[tuple[int, int, bool]]:
        reading, there = self.read(response), self.objects(item)
        words = _word_spans(response)
        return [
            (words[first][0], words[stop - 1][1], name in there)
            for name, (first, stop) in zip(reading.mentions, reading.places, strict=True)
        ]

    def aggregate(self, items: Sequence[Item], responses: Sequence[str]) -> dict[str, float]:
        self.prepare(items, responses)
        return super().aggregate(items, responses)

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        there = [self.objects(item) for item in items]
        readings = [self.read(response) for response in responses]
        named = [reading.mentions for reading in readings]
        wrong = [[name not in t for name in n] for n, t in zip(named, there, strict=True)]
        hits = sum(len(t.intersection(n)) for n, t in zip(named, there, strict=True))
        return {
            "chair_s": mean_percent([any(w) for w in wrong]),
            "chair_i": mean_percent([mention for w in wrong for mention in w]),
            "recall": 100 * share(hits, sum(len(t) for t in there)),
            "length": sum(reading.length for reading in readings) / len(readings),
        }


def _word_spans(text: str) -> list[tuple[int, int]]:
    """Return the characters of each of `tokens(text.lower())`, counted in the text itself."""
    # Few letters have a lower case of two characters.
    origin = [i for i, char in enumerate(text) for _ in char.lower()]
    lower, spans, position = text.lower(), [], 0
    for word in tokens(lower):
        start = lower.index(word, position)
        position = start + len(word)
        spans.append((origin[start], origin[position - 1] + 1))
    return spans


def _truth(objects: Sequence[str], captions: Sequence[str] = ()) -> dict[str, Any]:
    return {"objects": sorted(set(objects)), "captions": list(captions)}


def _ready_truths(path: AnyPath) -> dict[int, dict[str, Any]]:
    truths = {}
    for number, objects in check_lists(read_json(path), repr(str(path))).items():
        if not number.isdecimal():
            raise ValueError(f"{str(path)!r}: {number!r} is not COCO's number of an image")
        unknown = sorted(set(objects) - set(CATEGORIES))
        if unknown:
            raise ValueError(
                f"{str(path)!r}, image {number}: {unknown[0]!r} is not one of COCO's 80 categories"
            )
        truths[int(number)] = _truth(objects)
    return truths


def _coco_truths(instances: AnyPath, captions: AnyPath) -> dict[int, dict[str, Any]]:
    data = read_json(instances)
    categories = get_rows(data, instances, "categories", {"id": int, "name": str})
    names = {row["id"]: row["name"] for row in categories}
    images = get_rows(data, instances, "images", {"id": int})
    objects: dict[int, set[str]] = {row["id"]: set() for row in images}
    for row in get_rows(data, instances, "annotations", {"image_id": int, "category_id": int}):
        image, category = row["image_id"], row["category_id"]
        if image not in objects or category not in names:
            raise ValueError(
                f"{str(instances)!r}: an annotation is of image {image} and category {category}, "
                "and one of them is not listed"
            )
        objects[image].add(names[category])
    captions_of: dict[int, list[str]] = {}
    data = read_json(captions)
    for row in get_rows(data, captions, "annotations", {"image_id": int, "caption": str}):
        captions_of.setdefault(row["image_id"], []).append(row["caption"])
    return {
        number: _truth(sorted(names), captions_of.get(number, ()))
        for number, names in objects.items()
    }

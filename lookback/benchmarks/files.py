"""Benchmarks read from official files: where the files are, and what is said when they are not.

The folder is the one given (`--data DIR`) or else the environment variable LOOKBACK_DATA; in both
cases DIR/<benchmark's name> is used if it exists, DIR itself otherwise. So one folder can hold all
benchmarks. Nothing is ever downloaded.
"""

from __future__ import annotations

import json
import os
import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookback.benchmarks.base import Item, MeanOfScores, check_limit
from lookback.io.files import check_inside, read_bytes, read_unpacked
from lookback.io.limits import LimitError
from lookback.io.storage import AnyPath, in_order, to_path

if TYPE_CHECKING:
    from PIL.Image import Image


DATA_VARIABLE = "LOOKBACK_DATA"
SAMPLE_SEED = 42  # the paper's


class MissingFile(FileNotFoundError):
    """A benchmark's file is not where it should be; the message says where to get it."""


class FileBenchmark(MeanOfScores):
    """A `Benchmark` whose items come from files that the user downloaded.

    A subclass names its files, turns them into items (`load`) and scores a response. Files are read
    when items are first asked for, once.

    Args:
        data: the folder, see the module; None for LOOKBACK_DATA.

    Attributes:
        source: the official source's name, and where to get the files, in words.
        files: the files it needs, as a person would write them.
        sampled: how many items the paper draws for its test split; None where it takes all.
    """

    name: str
    primary: str
    source: str
    files: tuple[str, ...]
    sampled: int | None = None
    default_split = "all"

    def __init__(self, data: str | os.PathLike[str] | None = None) -> None:
        self.data = data
        self.notes: list[str] = []
        self._loaded: dict[str, Sequence[Item]] = {}

    @property
    def folder(self) -> AnyPath:
        """Where the files should be; raises MissingFile if there is no such folder."""
        name = self.data or os.environ.get(DATA_VARIABLE)
        if not name:
            raise MissingFile(
                f"{self.name} is read from files, and no folder is given: name one with --data DIR "
                f"or {DATA_VARIABLE}. Needed there: {self.wanted}"
            )
        folder = to_path(name).expanduser()
        if not folder.is_dir():
            raise MissingFile(f"no folder {str(folder)!r} for {self.name}: put there {self.wanted}")
        own = folder / self.name
        return own if own.is_dir() else folder

    @property
    def wanted(self) -> str:
        return f"{', '.join(self.files)} (source: {self.source})"

    def find(self, *patterns: str) -> AnyPath:
        """Return the first file that fits a glob pattern; earlier patterns come first.

        Raises:
            MissingFile: there is none; it names the first pattern, the source and the place.
        """
        path = self.find_optional(*patterns)
        if path is None:
            raise MissingFile(
                f"no file {patterns[0]} for {self.name} in {str(self.folder)!r}: "
                f"put it there (source: {self.source})"
            )
        return path

    def find_optional(self, *patterns: str) -> AnyPath | None:
        for pattern in patterns:
            for path in in_order(self.folder.glob(pattern)):
                if path.is_file():
                    return path
        return None

    @abstractmethod
    def check(self) -> None:
        """Find every needed file, without reading it; raise MissingFile if one is not there."""

    @abstractmethod
    def load(self, split: str) -> Sequence[Item]:
        """Return all items of a split, in the files' order; called once per split."""

    def items(
        self, split: str = "test", limit: int | None = None, seed: int = SAMPLE_SEED
    ) -> Sequence[Item]:
        """Return items of a split: "test" is what the paper evaluates on, "all" is all there is.

        Args:
            split: "test" or "all".
            limit: use only the first N; None for the whole split.
            seed: which sample the test split is, where the paper draws one.
        """
        if split not in ("test", "all"):
            raise ValueError(f"no split named {split!r}; there are: test, all")
        check_limit(limit)
        if split not in self._loaded:
            self._loaded[split] = self.load(split)
            if not self._loaded[split]:
                raise ValueError(
                    f"{self.name}'s files in {str(self.folder)!r} have no items of the split "
                    f"{split!r}: are they whole?"
                )
        items = self._loaded[split]
        if split == "test" and self.sampled is not None:
            items = sample(items, self.sampled, seed)
        return items[:limit]


def sample(items: Sequence[Item], size: int, seed: int) -> Sequence[Item]:
    """Return `size` items, drawn and ordered by lot; all as they are if there are no more.

    The same seed draws the same items from the same set, whatever the order of the set.
    """
    if len(items) <= size:
        return items
    ordered = sorted(range(len(items)), key=lambda index: items[index].id)
    return [items[index] for index in random.Random(seed).sample(ordered, size)]


def read_json(path: AnyPath) -> Any:
    """Return a JSON file's contents: plain, gzipped, or the only one in a zip archive."""
    try:
        return json.loads(read_unpacked(path, ".json"))
    except LimitError:
        raise
    except (ValueError, RecursionError) as error:  # no JSON, or nested too deep
        raise ValueError(f"cannot read {str(path)!r} as JSON: {error}") from error


def read_text(path: AnyPath) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} is not UTF-8: {error}") from None


@dataclass(frozen=True)
class ImageFile:
    """An item's image on disk, looked for when it is needed and not before.

    Attributes:
        folder: the benchmark's folder.
        candidates: where the image may be, relative to the folder; the first that exists is it.
        source: where to get it, in words.
        from_data: whether a data file gave the name, which then must stay in the folder.
    """

    folder: AnyPath
    candidates: tuple[str, ...]
    source: str
    from_data: bool = False

    @property
    def path(self) -> AnyPath:
        """The image's file; raises MissingFile if it is nowhere, ValueError if it leads out."""
        for candidate in self.candidates:
            if self.from_data:
                check_inside(self.folder, candidate)
            path = self.folder / candidate
            if path.is_file():
                return path
        raise MissingFile(
            f"no image file {' or '.join(self.candidates)} in {str(self.folder)!r}: "
            f"put it there (source: {self.source})"
        )

    def __call__(self) -> Image:
        from lookback.io.images import load_image

        path = self.path
        return load_image(path if isinstance(path, Path) else str(path))


COCO_IMAGES = "MS-COCO 2014 images, cocodataset.org"


def coco_image(folder: AnyPath, image_id: int, subset: str = "val2014") -> ImageFile:
    """Return a COCO image, under its name of 2014 or 2017, in the usual places of a folder."""
    names = (f"COCO_{subset}_{image_id:012d}.jpg", f"{image_id:012d}.jpg")
    places = ("images/", f"{subset}/", f"images/{subset}/", "", f"../{subset}/", f"coco/{subset}/")
    candidates = tuple(place + name for name in names for place in places)
    return ImageFile(folder, candidates, COCO_IMAGES)


Shape = Mapping[str, type | tuple[type, ...]]
"""The keys that an object must have, each with the type, or types, of its value."""
ID: tuple[type, ...] = (int, str)
"""What names an entry in the benchmarks' files."""

_NAMES = {dict: "an object", list: "a list", str: "text", int: "a whole number"}


def get_rows(data: Any, path: AnyPath, key: str, shape: Shape) -> list[dict[str, Any]]:
    """Return the list under a key of a file's object, if its rows have a shape."""
    rows = data.get(key) if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise ValueError(f"{str(path)!r} has no list {key!r}: is it the right file?")
    return check_rows(rows, shape, f"{str(path)!r}, {key!r}")


def check_rows(rows: Any, shape: Shape, where: str) -> list[dict[str, Any]]:
    """Return a list of objects that have the keys of a shape, and perhaps others.

    Raises:
        ValueError: it names the entry, counted from 0, and what is wrong.
    """
    if not isinstance(rows, list):
        raise ValueError(f"{where}: a list of objects is needed, not {_shown(rows)}")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(f"{where}, entry {number}: an object is needed, not {_shown(row)}")
        for key, kind in shape.items():
            if key not in row:
                raise ValueError(f"{where}, entry {number}: no {key!r}")
            if not isinstance(row[key], kind) or isinstance(row[key], bool):
                raise ValueError(
                    f"{where}, entry {number}: its {key!r} is {_shown(row[key])}, not {_name(kind)}"
                )
    return rows


def check_words(words: Any, where: str) -> list[str]:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{where}: a list of texts is needed, not {_shown(words)}")
    return words


def check_lists(data: Any, where: str) -> dict[str, list[str]]:
    """Return an object of lists of texts; an empty one would make all numbers 0."""
    if not isinstance(data, dict):
        raise ValueError(f"{where}: an object of lists is needed, not {_shown(data)}")
    if not data:
        raise ValueError(f"{where} is empty: nothing can be scored with it")
    return {key: check_words(words, f"{where}, {key!r}") for key, words in data.items()}


def _shown(value: Any) -> str:
    return f"{value!r:.60}"


def _name(kind: type | Sequence[type]) -> str:
    kinds = [kind] if isinstance(kind, type) else kind
    return " or ".join(_NAMES.get(one, one.__name__) for one in kinds)

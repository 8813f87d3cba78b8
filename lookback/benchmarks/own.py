"""own: your own data as a benchmark, from a JSONL, CSV or Parquet file. A line is an item:

    {"id": "7", "image": "photos/cat.jpg", "question": "What is this?", "answers": ["a cat"]}

`image` is a path (relative to the file, and below its folder), a URL, a data URI or a list of
these; in its place and the question's there may be `messages` in the chat format
(`lookback.conversations`). Only the question is needed: without `answers` the quality of responses
is not known (NaN), without `id` the line's number is the id, without `metric` the one that is asked
for, else `exact`, compares the answers.

A line that cannot be used is left out and named by its number, unless all are.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from lookback.benchmarks.base import (
    Fingerprinted,
    Item,
    LeavingOut,
    MeanOfScores,
    benchmark,
    check_limit,
    mean_percent,
)
from lookback.benchmarks.files import MissingFile
from lookback.benchmarks.metrics import DEFAULT, METRICS
from lookback.benchmarks.own_file import read_lines
from lookback.benchmarks.responses import Problem, read_id
from lookback.conversations import Conversation, Part
from lookback.io.fetch import is_url
from lookback.io.files import check_inside, read_bytes
from lookback.io.images import load_image
from lookback.io.json_values import check_texts, whole_text
from lookback.io.limits import TEXT_CHARACTERS
from lookback.io.storage import AnyPath, RemotePath, is_remote, to_path

NAME = "own"
KEYS = ("id", "image", "messages", "question", "answers", "metric")
SHOWN = 3  # broken lines that an error names


def own_name(data: str | os.PathLike[str] | RemotePath) -> str:
    """Return the name of the benchmark that a file is."""
    return f"{NAME}:{whole_text(to_path(data).stem)}"


@benchmark(NAME, title="your own data")
class OwnData(MeanOfScores, Fingerprinted, LeavingOut):
    """The mean quality of responses by the metrics that the lines name.

    Args:
        data: the file.
        metric: compares the answers of lines that name none.

    Raises:
        ValueError: there is no such metric.
    """

    name: str
    title: str
    primary = "quality"
    source = (
        "a file of your own, --data FILE: .jsonl, .csv or .parquet with question, image, answers; "
        f"metrics: {', '.join(METRICS.builtin)}"
    )
    default_split = "all"

    def __init__(
        self, data: str | os.PathLike[str] | None = None, metric: str | None = None
    ) -> None:
        self.data = None if data is None else to_path(data).expanduser()
        self.metric = metric
        if metric is not None:
            METRICS.get(metric)
        self.notes: list[str] = []
        if self.data is not None and not self.data.is_dir():
            self.name, self.title = own_name(self.data), whole_text(self.data.stem)

    @property
    def path(self) -> AnyPath:
        """The file; raises MissingFile if none is given, or there is none."""
        if self.data is None:
            raise MissingFile(f"no file is given: name one with --data FILE. Needed: {self.source}")
        if not self.data.is_file():
            kind = "is a folder" if self.data.is_dir() else "does not exist"
            raise MissingFile(f"{str(self.data)!r} {kind}. Needed: {self.source}")
        return self.data

    def items(self, split: str = "all", limit: int | None = None) -> Sequence[Item]:
        if split != "all":
            raise ValueError(f"no split named {split!r}; there is: all")
        check_limit(limit)
        return self._content[0][:limit]

    def fingerprint(self) -> str:
        """Return the file's SHA-256, and how many lines are left out, which shifts the others.

        It is not the file's alone: a line's metric may be known in one process (--plugin) only.
        """
        digest = hashlib.sha256(read_bytes(self.path)).hexdigest()
        count = len(self.left_out())
        return f"{digest} without {count} lines" if count else digest

    def left_out(self) -> list[str]:
        return [str(problem) for problem in self._content[1]]

    def score(self, item: Item, response: str) -> float:
        if "answers" not in item.truth:
            return math.nan
        metric = METRICS.get(item.truth["metric"])
        return metric(response, item.truth["answers"], item.question)

    def aggregate(self, items: Sequence[Item], responses: Sequence[str]) -> dict[str, float]:
        """Return the mean quality of the items that have answers, and that by each metric."""
        by_metric: dict[str, list[float]] = {}
        for item, response in zip(items, responses, strict=True):
            if "answers" in item.truth:
                by_metric.setdefault(item.truth["metric"], []).append(self.score(item, response))
        if not by_metric:
            raise ValueError("no items to aggregate: none of them has answers")
        metrics = {"quality": mean_percent([v for values in by_metric.values() for v in values])}
        if len(by_metric) > 1:
            metrics |= {f"quality_{m}": mean_percent(v) for m, v in sorted(by_metric.items())}
        return metrics

    @cached_property
    def _content(self) -> tuple[list[Item], list[Problem]]:
        """The items, and what is wrong with other lines; the file is read once."""
        path = self.path
        items, problems, used = self.read_items(read_lines(path), path.parent)
        if not items:
            raise ValueError(nothing_used(repr(str(path)), problems))
        self.notes = self._notes(used)
        return [item for _, item in items], problems

    def read_items(
        self, lines: Iterable[tuple[int, dict[str, Any] | ValueError]], folder: AnyPath
    ) -> tuple[list[tuple[int, Item]], list[Problem], list[dict[str, Any]]]:
        """Return items with their lines' numbers, what is wrong with others, and what was used.

        Args:
            lines: as `own_file.read_lines` gives them.
            folder: where the images are that they name.
        """
        items: dict[str, tuple[int, Item]] = {}
        problems, used = [], []
        for number, entry in lines:
            try:
                if isinstance(entry, ValueError):
                    raise entry
                item = self._item(number, entry, folder)
                if item.id in items:
                    raise ValueError(f"duplicate id {item.id!r}: line {items[item.id][0]} has it")
            except ValueError as error:
                problems.append(Problem(number, str(error)))
            else:
                items[item.id] = number, item
                used.append(entry)
        return list(items.values()), problems, used

    def _item(self, number: int, entry: dict[str, Any], folder: AnyPath) -> Item:
        check_texts(entry)
        name = read_id(entry["id"]) if "id" in entry else str(number)
        if not name:
            raise ValueError("the id is empty")
        truth = self._truth(entry)
        if "messages" in entry:
            return _from_messages(name, entry, truth, folder)
        question = entry.get("question")
        if not isinstance(question, str) or not question.strip():
            raise ValueError(f"the question is {question!r:.60}" if question else "no question")
        if "image" not in entry:
            return Item(name, question, truth, None)
        if isinstance(entry["image"], list):
            images = [_image(one, folder) for one in entry["image"]]
            if not images:
                raise ValueError("the list of images is empty")
            messages = Conversation.of(images, question).messages()
            return Item(name, question, truth, None, messages=messages)
        return Item(name, question, truth, partial(load_image, _image(entry["image"], folder)))

    def _truth(self, entry: dict[str, Any]) -> dict[str, Any]:
        metric = entry.get("metric", self.metric or DEFAULT)
        if not isinstance(metric, str):
            raise ValueError(f"the metric is no name but {metric!r:.60}")
        METRICS.get(metric)
        return (
            {"answers": _answers(entry["answers"]), "metric": metric} if "answers" in entry else {}
        )

    def _notes(self, entries: list[dict[str, Any]]) -> list[str]:
        """Return what a user should know about the lines that are used."""
        total = len(entries)
        compared = [entry for entry in entries if "answers" in entry]
        unnamed = sum("metric" not in entry for entry in compared) if self.metric is None else 0
        blind = sum("image" not in entry and "messages" not in entry for entry in entries)
        unknown = sorted({key for entry in entries for key in entry} - set(KEYS))
        notes = {
            f"{unnamed} of {total} items have answers and name no metric: {DEFAULT!r} compares "
            "them; --metric NAME sets another": unnamed,
            f"{total - len(compared)} of {total} items have no answers: the quality of responses "
            "to them is not known": total - len(compared),
            f"{blind} of {total} items have no image: they are asked without one": blind,
            f"keys that mean nothing here: {', '.join(map(_key, unknown))}": unknown,
        }
        return [note for note, there in notes.items() if there]


def _from_messages(
    name: str, entry: dict[str, Any], truth: dict[str, Any], folder: AnyPath
) -> Item:
    both = [key for key in ("image", "question") if key in entry]
    if both:
        raise ValueError(f"it has messages and {both[0]}: give either")
    conversation = Conversation.from_messages(entry["messages"])
    turns = tuple(
        replace(turn, parts=tuple(_part(part, folder) for part in turn.parts))
        for turn in conversation.turns
    )
    if not conversation.question.strip():
        raise ValueError("no question: the last turn of the messages has no text")
    messages = Conversation(turns).messages()
    return Item(name, conversation.question, truth, None, messages=messages)


def _part(part: Part, folder: AnyPath) -> Part:
    """Return a part of a conversation, its files as absolute paths."""
    if part.kind == "text":
        return part
    if part.kind == "video" and not isinstance(part.media, (str, os.PathLike)):
        return replace(part, media=[_image(frame, folder) for frame in part.media])
    return replace(part, media=_image(part.media, folder))


def _image(value: Any, folder: AnyPath) -> str | bytes:
    """Return what `load_image` takes; a path becomes an absolute one."""
    if isinstance(value, dict):  # {"bytes": ..., "path": ...}, as datasets' Parquet files have it
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"the image is {value!r:.60}: give a path, a URL, a data URI or a list")
    if value.startswith("data:") or (is_url(value) and not is_remote(value)):
        return value
    check_inside(folder.absolute(), value)
    if is_remote(value):
        return value
    return str(folder.absolute() / value)


def _key(name: str) -> str:
    """Return a key for a message: quoted if it could not be seen."""
    return name if name.strip() and name.isprintable() else repr(name)


def _answers(value: Any) -> list[str]:
    answers = [_answer(one) for one in (value if isinstance(value, list) else [value])]
    if not answers:
        raise ValueError("the answers are empty: leave them out if there are none")
    TEXT_CHARACTERS.check(sum(map(len, answers)), "the text of the answers")
    return answers


def _answer(value: Any) -> str:
    """Return an answer as text; a number as people write it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"an answer is neither text nor number but {value!r:.60}")
    if not value.strip():
        raise ValueError("an answer is empty")
    return value


def nothing_used(name: str, problems: list[Problem]) -> str:
    """Say of a file that none of its lines can be used."""
    if not problems:
        return f"{name} has no items"
    named = "; ".join(map(str, problems[:SHOWN]))
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return f"no line of {name} can be used: {named}{more}"

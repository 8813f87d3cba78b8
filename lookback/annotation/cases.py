"""The folder of a human study: what raters see, and the key that they do not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lookback.errors import error_line

CASES, KEY = "cases.json", "key.json"
FORMAT = 1
T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """What a rater sees of a case.

    Attributes:
        set: the set it is in, from 1.
        case: its number in the set, from 1.
        question: what was asked.
        answers: the two picks, in an order that the seed of the draw shuffled.
        image: as a data URI; None where there is none.
    """

    set: int
    case: int
    question: str
    answers: tuple[str, str]
    image: str | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Its set and number."""
        return self.set, self.case

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**vars(self), "answers": list(self.answers)}


@dataclass(frozen=True)
class Cases:
    """All cases of a study that raters see; votes name the study by its id."""

    study: str
    cases: tuple[Case, ...]

    @property
    def sets(self) -> list[int]:
        """Numbers of the sets."""
        return sorted({case.set for case in self.cases})

    def of(self, set_: int) -> list[Case]:
        """Return the cases of one set, in order."""
        return [case for case in self.cases if case.set == set_]


@dataclass(frozen=True)
class Pick:
    """One scorer of a study: its name, and its title and colour in tables and figures."""

    name: str
    title: str
    color: str


@dataclass(frozen=True)
class KeyCase:
    """Who picked what: for each of the two answers its scorer and its quality (None: unknown)."""

    set: int
    case: int
    id: str
    scorers: tuple[str, str]
    quality: tuple[float | None, float | None]


@dataclass(frozen=True)
class Key:
    """What the cases are of, and who picked which answer.

    Attributes:
        study: that of the cases.
        model, benchmark, n: of the run, and of how many candidates was picked.
        first, second: the scorers.
        cases: by (set, case).
    """

    study: str
    model: str
    benchmark: str
    n: int
    first: Pick
    second: Pick
    cases: Mapping[tuple[int, int], KeyCase]


def study_id(cases: Sequence[Case]) -> str:
    """Return sixteen hexadecimal digits that follow from questions and answers."""
    texts = [[c.set, c.case, c.question, *c.answers] for c in cases]
    return hashlib.sha256(json.dumps(texts).encode("ascii")).hexdigest()[:16]


def folder_files(
    cases: Sequence[Case],
    keyed: Sequence[KeyCase],
    first: Pick,
    second: Pick,
    **about: Any,
) -> dict[str, str]:
    """Return the folder's files by name; `about` has model, benchmark and n for the key."""
    head = {"format": FORMAT, "study": study_id(cases)}
    shown = head | {"cases": [case.to_dict() for case in cases]}
    picks = {"first": vars(first), "second": vars(second)}
    key = head | about | picks | {"cases": [vars(case) for case in keyed]}
    return {CASES: json.dumps(shown, indent=1) + "\n", KEY: json.dumps(key, indent=1) + "\n"}


def read_cases(folder: Path) -> Cases:
    """Return what raters see.

    Raises:
        FileNotFoundError: the folder has no cases.
        ValueError: they are not as they were written.
    """

    def check(cases: Cases) -> None:
        if not cases.cases or len({case.place for case in cases.cases}) != len(cases.cases):
            raise ValueError("no case, or one of them twice")
        if study_id(cases.cases) != cases.study:
            raise ValueError("the texts are not those that the study's name was made of")

    return _read(folder, CASES, Cases, check)


def read_key(folder: Path) -> Key:
    """Return who picked what; raises the same errors as `read_cases`."""

    def check(key: Key) -> None:
        for case in key.cases.values():
            if set(case.scorers) != {key.first.name, key.second.name}:
                raise ValueError(f"{case.scorers} are not {key.first.name} and {key.second.name}")

    return _read(folder, KEY, Key, check)


def _read(folder: Path, name: str, kind: type[T], check: Callable[[T], None]) -> T:
    from pydantic import TypeAdapter

    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(
            f"no {name} in {str(folder)!r}: `lookback study disagreements RUN` writes such a "
            "folder, studies/disagreements-cases"
        )
    try:
        data = json.loads(path.read_bytes())
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}, not {FORMAT}")
        if kind is Key:
            data["cases"] = {(case["set"], case["case"]): case for case in data["cases"]}
        value = TypeAdapter(kind).validate_python(data)
        check(value)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            f"{str(path)!r} is not as `lookback study disagreements` writes it "
            f"({error_line(error)}): draw the cases again"
        ) from None
    return value

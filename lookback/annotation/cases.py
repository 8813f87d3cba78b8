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
        """For JSON."""
        return {**vars(self), "answers": list(self.answers)}


@dataclass(frozen=True)
class Cases:
    """All cases of a study that raters see.

    Attributes:
        study: follows from questions and answers: votes name it.
        cases: by set and number.
    """

    study: str
    cases: tuple[Case, ...]

    @property
    def sets(self) -> list[int]:
        """The numbers of the sets."""
        return sorted({case.set for case in self.cases})

    def of(self, set_: int) -> list[Case]:
        """The cases of one set, in order."""
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
    """Sixteen hexadecimal digits of what is asked and answered."""
    said = [[c.set, c.case, c.question, *c.answers] for c in cases]
    return hashlib.sha256(json.dumps(said).encode("ascii")).hexdigest()[:16]


def folder_files(
    cases: Sequence[Case],
    keyed: Sequence[KeyCase],
    first: Pick,
    second: Pick,
    **about: Any,
) -> dict[str, str]:
    """The folder's files: what they are called, and what is in them.

    Args:
        cases: what raters see.
        keyed: a line of the key for each.
        first, second: the scorers.
        about: model, benchmark and n.
    """
    head = {"format": FORMAT, "study": study_id(cases)}
    seen = head | {"cases": [case.to_dict() for case in cases]}
    picks = {"first": vars(first), "second": vars(second)}
    key = head | about | picks | {"cases": [vars(one) for one in keyed]}
    return {CASES: json.dumps(seen, indent=1) + "\n", KEY: json.dumps(key, indent=1) + "\n"}


def read_cases(folder: Path) -> Cases:
    """What raters see.

    Raises:
        FileNotFoundError: the folder has no cases.
        ValueError: they are not as they were written.
    """
    return _read(folder, CASES, _cases)


def read_key(folder: Path) -> Key:
    """Who picked what; errors as for `read_cases`."""
    return _read(folder, KEY, _key)


def _read(folder: Path, name: str, parse: Callable[[dict[str, Any]], T]) -> T:
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(
            f"no {name} in {str(folder)!r}: `lookback study disagreements RUN` writes such a "
            "folder, studies/disagreements-cases"
        )
    try:
        found = json.loads(path.read_bytes())
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']!r}, not {FORMAT}")
        return parse(found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{str(path)!r} is not as `lookback study disagreements` writes it "
            f"({error_line(error)}): draw the cases again"
        ) from None


def _cases(found: dict[str, Any]) -> Cases:
    cases = tuple(
        Case(
            int(one["set"]),
            int(one["case"]),
            _text(one["question"]),
            (_text(one["answers"][0]), _text(one["answers"][1])),
            None if one["image"] is None else _text(one["image"]),
        )
        for one in found["cases"]
    )
    if not cases or len({case.place for case in cases}) != len(cases):
        raise ValueError("no case, or one of them twice")
    if study_id(cases) != found["study"]:
        raise ValueError("the texts are not those that the study's name was made of")
    return Cases(found["study"], cases)


def _key(found: dict[str, Any]) -> Key:
    first, second = (Pick(**found[name]) for name in ("first", "second"))
    cases = {}
    for one in found["cases"]:
        line = KeyCase(**one | {"scorers": tuple(one["scorers"]), "quality": tuple(one["quality"])})
        if set(line.scorers) != {first.name, second.name}:
            raise ValueError(f"{line.scorers} are not {first.name} and {second.name}")
        cases[line.set, line.case] = line
    study, model, benchmark = (_text(found[name]) for name in ("study", "model", "benchmark"))
    return Key(study, model, benchmark, int(found["n"]), first, second, cases)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value

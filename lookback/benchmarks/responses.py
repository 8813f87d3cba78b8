"""Responses from a JSONL file, matched to items: {"id": ..., "response": "..."} per line.

The benchmarks' own result files have other names for the two (`ID_KEYS`, `RESPONSE_KEYS`), which
will do as well; further keys mean nothing.

Nothing is dropped silently: every line that cannot be used is a problem with its line number, and
so is the fact that items have no response.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lookback.benchmarks.base import Item
from lookback.io.files import read_bytes
from lookback.io.json_values import check_text
from lookback.io.limits import TEXT_CHARACTERS

ID_KEYS = ("id", "question_id", "image_id")  # the first that a line has
RESPONSE_KEYS = ("response", "answer", "caption", "text")
SHOWN = 5  # ids of missing items that a message names


@dataclass(frozen=True)
class Problem:
    """Something wrong with a file.

    Attributes:
        line: which line, from 1; None if it is about the whole file.
        message: what is wrong.
    """

    line: int | None
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


@dataclass(frozen=True)
class Matched:
    """Items with their responses, in the items' order, and what was wrong on the way.

    Attributes:
        items, responses: as many of both.
        lines: the line of each response, from 1.
        missing: how many items have no response.
        problems: what was wrong.
        given: how many lines of the file hold anything.
        known: how many of them are responses to an item, repeated ones too.
    """

    items: list[Item]
    responses: list[str]
    lines: list[int]
    missing: int
    problems: list[Problem]
    given: int
    known: int


def read_responses(
    path: str | os.PathLike[str] | bytes, items: Sequence[Item], known_as: str = "the items"
) -> Matched:
    """Read a file of responses and match them to items.

    Ids match as numbers or strings: 42, 42.0 and "42" are the same. Empty lines mean nothing. Of
    two responses to one item the first counts.

    Args:
        path: the file, in UTF-8; or, as bytes, its content.
        items: the items that there are.
        known_as: what messages call them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no regular file, or too large (`limits`).
    """
    names = [(item.id, *item.aliases) for item in items]
    by_id = {name: index for index, own in enumerate(names) for name in own}
    matched: dict[int, tuple[int, str]] = {}  # item's index to line and response
    problems: list[Problem] = []
    given = known = 0
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        given += 1
        try:
            name, entry = read_line(line)
            response = response_of(entry)
            if name not in by_id:
                raise ValueError(f"unknown id {name!r}: not among {known_as}")
            index = by_id[name]
            known += 1
            if index in matched:
                raise ValueError(f"duplicate id {name!r}: line {matched[index][0]} has it already")
        except ValueError as error:
            problems.append(Problem(number, str(error)))
        else:
            matched[index] = (number, response)
    indices = sorted(matched)
    missing = [own[0] for index, own in enumerate(names) if index not in matched]
    if missing:
        problems.append(Problem(None, _missing(missing, len(items))))
    return Matched(
        [items[index] for index in indices],
        [matched[index][1] for index in indices],
        [matched[index][0] for index in indices],
        len(missing),
        problems,
        given,
        known,
    )


def _lines(path: str | os.PathLike[str] | bytes) -> list[bytes]:
    try:
        content = path if isinstance(path, bytes) else read_bytes(path)
        return content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except FileNotFoundError:
        raise FileNotFoundError(f"no file of responses {name_of(path)}") from None


def name_of(responses: str | os.PathLike[str] | bytes) -> str:
    """Return what messages call a file of responses, or the bytes in place of one."""
    if isinstance(responses, bytes):
        return f"<{len(responses)} bytes>"
    return repr(os.fspath(responses))


def read_line(line: str | bytes) -> tuple[str, dict[str, Any]]:
    """Return the id, as a string, and all entries of one line."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise ValueError('not an object: {"id": ..., "response": "..."} is needed')
    return read_id(_value(entry, ID_KEYS)), entry


def response_of(entry: dict[str, Any]) -> str:
    return check_response(_value(entry, RESPONSE_KEYS))


def check_response(response: Any) -> str:
    """Return a response; raise ValueError if it is no string, too long or no whole text."""
    if not isinstance(response, str):
        raise ValueError(f"the response is not a string but {response!r:.60}")
    TEXT_CHARACTERS.check(len(response), "the response")
    return check_text(response, "the response")


def _value(entry: dict[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if key in entry:
            return entry[key]
    raise ValueError(f'no "{keys[0]}"')


def read_id(value: Any) -> str:
    """Return an id as a string: 42, 42.0 and "42" are the same."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"the id is neither a number nor a string but {value!r:.60}")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def _missing(missing: list[str], total: int) -> str:
    named = ", ".join(missing[:SHOWN]) + (", ..." if len(missing) > SHOWN else "")
    return f"missing ids: {len(missing)} of {total} items have no response ({named})"

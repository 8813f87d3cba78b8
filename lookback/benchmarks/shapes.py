"""Data of the right shape, or an error that names the file, the entry and what is wrong with it.

A file can be good JSON and of something else; benchmarks read it through these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lookback.storage import AnyPath

Shape = Mapping[str, type | tuple[type, ...]]
"""The keys that an object must have, each with the type, or types, of its value."""
ID = (int, str)
"""What names an entry in the benchmarks' files."""

_NAMES = {dict: "an object", list: "a list", str: "text", int: "a whole number"}


def get_list(data: Any, path: AnyPath, key: str) -> list[Any]:
    """The list under a key of an object.

    Raises:
        ValueError: it is no object, or has no such list.
    """
    found = data.get(key) if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise ValueError(f"{str(path)!r} has no list {key!r}: is it the right file?")
    return found


def check_rows(rows: Any, shape: Shape, where: str) -> list[dict[str, Any]]:
    """A list of objects of one shape; other keys may be there.

    Args:
        rows: the list.
        shape: what each must have.
        where: what messages call the list.

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
    """A list of texts.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{where}: a list of texts is needed, not {_shown(words)}")
    return words


def check_lists(data: Any, where: str) -> dict[str, list[str]]:
    """An object whose values are lists of texts, at least one.

    Raises:
        ValueError: it is none, or it is empty: all numbers would be 0.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where}: an object of lists is needed, not {_shown(data)}")
    if not data:
        raise ValueError(f"{where} is empty: nothing can be scored with it")
    return {key: check_words(words, f"{where}, {key!r}") for key, words in data.items()}


def _shown(value: Any) -> str:
    """A value in a message; a long one by its beginning."""
    return f"{value!r:.60}"


def _name(kind: type | Sequence[type]) -> str:
    kinds = [kind] if isinstance(kind, type) else kind
    return " or ".join(_NAMES.get(one, one.__name__) for one in kinds)

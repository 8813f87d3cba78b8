"""Standard input in place of a file, which is then called `-`: once, up to a limit, no terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lookback.io.limits import Limit

STDIN = "-"


def is_stdin(name: object) -> bool:
    """Whether a name on the command line means standard input."""
    return str(name) == STDIN


def check_stdin(given: Mapping[str, object]) -> None:
    """Let pass at most one use of stdin, and only if something can come from it.

    Args:
        given: the values of what may be stdin, or lists of values, by the names that users know.

    Raises:
        ValueError: two want it, it is a terminal (which would wait for somebody to type), or
            there is none.
    """
    users = [name for name, value in given.items() for one in _values(value) if is_stdin(one)]
    if not users:
        return
    if len(users) > 1:
        raise ValueError(
            f"{' and '.join(users)} are both -: stdin can be read once, name a file for the other"
        )
    if sys.stdin is None or sys.stdin.closed:
        raise ValueError(f"{users[0]} is -, and there is no stdin: name a file")
    if sys.stdin.isatty():
        raise ValueError(
            f"{users[0]} is -, and stdin is a terminal: send a file there (< FILE), or name one"
        )


def refuse_stdin(option: str, value: object, why: str) -> None:
    """Say that an option cannot be stdin.

    Raises:
        ValueError: it is.
    """
    if is_stdin(value):
        raise ValueError(
            f"{option} is -: it cannot be read from stdin, as {why}; save it to a file, and name "
            "that"
        )


def read_stdin(limit: Limit) -> bytes:
    """All of stdin, if it is within a limit.

    Raises:
        LimitError: it is larger; no more of it was read.
    """
    from lookback.io.files import read_stream

    return read_stream(sys.stdin.buffer, limit, "stdin")


def read_stdin_text(limit: Limit) -> str:
    """The same as text.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        return read_stdin(limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"stdin is not UTF-8: {error}") from None


def _values(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else [value]

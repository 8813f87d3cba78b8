"""Values that every reader takes: no number that is none, no half of a character; and in words."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_HALF = re.compile("[\ud800-\udfff]")


def finite(value: float | None) -> float | None:
    """Return the number, or None for NaN and the infinities: JSON has no such numbers."""
    return None if value is None or not math.isfinite(value) else float(value)


def whole_text(text: str) -> str:
    """Return the text with U+FFFD for lone surrogates, which no encoding can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class HalfCharacterError(ValueError):
    """A text has half a character.

    Attributes:
        name: which text.
    """

    def __init__(self, name: str, half: str) -> None:
        super().__init__(
            f"{name} has half a character, {half!r}: a lone surrogate, or a byte that is not UTF-8"
        )
        self.name = name


def half_character(text: str) -> str | None:
    """Return the first half of a character in a text; None if all are whole.

    JSON can spell halves (a lone surrogate, "\\ud83d"), and the command line has them for bytes
    that are not UTF-8. No tokenizer, no file and no request takes them.
    """
    match = None if text.isascii() else _HALF.search(text)
    return match[0] if match else None


def check_text(text: str, name: str) -> str:
    """Return a text, called `name` in errors; raise HalfCharacterError if it is not whole."""
    if (half := half_character(text)) is not None:
        raise HalfCharacterError(name, half)
    return text


def check_texts(data: Any) -> None:
    """Raise HalfCharacterError for a text or key in JSON data, named as "messages[0].content"."""
    todo = [("", data)]  # no recursion: data may be nested deeply
    while todo:
        place, value = todo.pop()
        if isinstance(value, str):
            check_text(value, place)
        elif isinstance(value, dict):
            for key in value:
                check_text(key, f"{place}.{key!r:.60}" if place else f"{key!r:.60}")
            todo += [(f"{place}.{key}" if place else key, one) for key, one in value.items()]
        elif isinstance(value, (list, tuple)):
            todo += [(f"{place}[{i}]", one) for i, one in enumerate(value)]


def plain(value: Any) -> Any:
    """Return data that are JSON all through."""
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return finite(value)
    return whole_text(value) if isinstance(value, str) else value


def facts(truth: Any) -> list[list[str]]:
    """Return an item's truth as [name, text] pairs; lists of plain values are joined by commas."""

    def text(value: Any) -> str:
        if isinstance(value, list) and not any(isinstance(one, (list, dict)) for one in value):
            return ", ".join(map(text, value))
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    pairs = truth.items() if isinstance(truth, dict) else [("truth", truth)]
    return [[name, text(value)] for name, value in pairs]

"""Values that every reader takes: no number that is none, no half of a character; and in words."""

from __future__ import annotations

import json
import math
from typing import Any


def finite(value: float | None) -> float | None:
    """The number, or None for NaN and the infinities: JSON has no such numbers."""
    return None if value is None or not math.isfinite(value) else float(value)


def whole_text(text: str) -> str:
    """The text with U+FFFD for lone surrogates, which no encoding can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def plain(value: Any) -> Any:
    """Data of JSON, all through."""
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return finite(value)
    return whole_text(value) if isinstance(value, str) else value


def facts(truth: Any) -> list[list[str]]:
    """An item's truth as [name, text] pairs; lists of plain values are joined by commas."""

    def text(value: Any) -> str:
        if isinstance(value, list) and not any(isinstance(one, (list, dict)) for one in value):
            return ", ".join(map(text, value))
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    pairs = truth.items() if isinstance(truth, dict) else [("truth", truth)]
    return [[name, text(value)] for name, value in pairs]

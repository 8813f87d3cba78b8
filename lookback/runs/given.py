"""Responses that are there already, and how a line of a file of them is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lookback.benchmarks.responses import check_response, read_line, response_of


@dataclass(frozen=True)
class Given:
    """A response that is there already.

    Attributes:
        text: the response.
        token_ids: its tokens, where it is known how the model spelled it.
        finish: why it ended.
    """

    text: str
    token_ids: list[int] | None = None
    finish: str = "given"

    @property
    def empty(self) -> bool:
        """Whether there is nothing to score."""
        return not (self.text.strip() if self.token_ids is None else self.token_ids)


def read_entry(line: str) -> tuple[str, list[Given]]:
    """The id and the responses of a line."""
    name, entry = read_line(line)
    if "responses" not in entry:
        return name, [_given(response_of(entry), entry.get("token_ids"))]
    said = entry["responses"]
    if not isinstance(said, list) or not all(isinstance(one, (str, dict)) for one in said):
        raise ValueError(f"the responses are no list of strings but {said!r:.60}")
    beside = entry.get("token_ids")
    if beside is None:
        return name, [_given(*_text_and_ids(one)) for one in said]
    if not isinstance(beside, list) or len(beside) != len(said):
        count = len(beside) if isinstance(beside, list) else f"{beside!r:.60}"
        raise ValueError(f"token_ids are not a list per response: {count} for {len(said)}")
    if not all(isinstance(one, str) for one in said):
        raise ValueError("token_ids stand beside the responses: these must then be strings")
    return name, [_given(text, ids) for text, ids in zip(said, beside, strict=True)]


def _text_and_ids(response: str | dict[str, Any]) -> tuple[Any, Any]:
    if isinstance(response, str):
        return response, None
    return response.get("text"), response.get("token_ids")


def _given(text: Any, token_ids: Any) -> Given:
    """A response of a file, checked."""
    check_response(text)
    if token_ids is None:
        return Given(text)
    if not isinstance(token_ids, list) or not all(
        type(one) is int and one >= 0 for one in token_ids
    ):
        raise ValueError(f"token_ids are no list of whole numbers from 0 but {token_ids!r:.60}")
    if text.strip() and not token_ids:
        raise ValueError(f"token_ids are empty, and the response is not: {text!r:.60}")
    return Given(text, token_ids)

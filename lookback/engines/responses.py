"""The responses that an engine is given: one check for every engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from lookback.signals import Candidate

if TYPE_CHECKING:
    from lookback.engines.contract import Response


def check_responses(responses: Any) -> list[Response]:
    """Return responses as a list of texts, candidates and lists of token ids.

    Args:
        responses: one text or candidate; or several responses, each of which may also be token
            ids: a list, or a one-dimensional array or tensor, of whole numbers.

    Raises:
        ValueError: there are none, or one is something else.
    """
    if isinstance(responses, (str, Candidate)):
        return [responses]
    given = _to_python(responses)
    if isinstance(given, (bytes, bytearray, Mapping, Set)) or not isinstance(given, Iterable):
        raise ValueError(f"responses = {given!r:.60}: must be a text, a candidate, or a list")
    found = list(given)
    if not found:
        raise ValueError("no responses given: there is nothing to score")
    return [_check(f"response {i}", response) for i, response in enumerate(found)]


def check_one(response: Any) -> Response:
    """Return one response as text, a candidate or a list of token ids.

    Raises:
        ValueError: these are several, or it is something else.
    """
    given = _to_python(response)
    several = isinstance(given, Sequence) and not isinstance(given, str)
    if several and any(isinstance(one, (str, list, Candidate)) for one in given):
        raise ValueError(
            f"look() takes one response, got {len(given)}: call it once for each of them"
        )
    return _check("the response", given)


def check_ids(where: str, ids: Any) -> list[int]:
    """Return token ids as whole numbers of Python's.

    Raises:
        ValueError: they are something else; it begins with `where`.
    """
    given = _to_python(ids)
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes, bytearray)):
        hint = ", e.g. [[1, 2]] for one of two tokens" if isinstance(given, int) else ""
        raise ValueError(
            f"{where} is {given!r:.60}: must be text, a candidate, or a list of token ids{hint}"
        )
    found = [_to_python(token) for token in given]
    for token in found:
        if not isinstance(token, int) or isinstance(token, bool):
            raise ValueError(f"{where}: token id {token!r:.60} is not a whole number")
    return found


def _check(where: str, response: Any) -> Response:
    return response if isinstance(response, (str, Candidate)) else check_ids(where, response)


def _to_python(value: Any) -> Any:
    """Return an array or tensor, or a number of one, as Python's own lists and numbers."""
    return value.tolist() if hasattr(value, "tolist") else value

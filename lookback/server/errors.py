"""Errors of requests in OpenAI's shape: {"error": {message, type, param, code}}; the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from lookback.errors import one_line
from lookback.io.limits import LimitError
from lookback.registry import SettingError

LOG = logging.getLogger("lookback.server")
LONGEST = 600
"""Characters of a message."""
TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(HTTPException):
    """An answer that is an error.

    Args:
        status: the HTTP status.
        message: what is wrong, and the way out.
        param: the part of the request that it is about.
        code: a word for programs.
        headers: sent with it.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        error = {
            "message": one_line(self.message, LONGEST),
            "type": TYPES.get(self.status, kind),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, self.headers)


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error of a request that asks for something that does not exist."""
    return ApiError(400, message, param, code)


def from_exception(error: Exception, request_id: str) -> ApiError:
    """Return what a client is told of an exception; log those that are the server's own fault.

    The words of unforeseen exceptions may hold what is not for strangers: only the log has them.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, LimitError):
        return ApiError(413, str(error), code="too_large")
    if isinstance(error, (ValueError, SettingError)):  # an AbilityError and a ScorerError too
        return invalid(str(error) or type(error).__name__)
    LOG.error("%s failed", request_id, exc_info=error)
    if isinstance(error, FloatingPointError):
        return ApiError(500, str(error), code="not_finite")
    if isinstance(error, MemoryError):
        return ApiError(503, "out of memory: ask for less at once", code="out_of_memory")
    return ApiError(500, "the server failed; its log says why", code="internal_error")


def from_validation(error: RequestValidationError) -> ApiError:
    """Return the first thing that is wrong with a request: its place in it, its value, and why."""
    errors = error.errors()
    alternatives = [one for one in errors if one["loc"][:2] == errors[0]["loc"][:2]]
    first = max(alternatives, key=lambda one: len(one["loc"]))  # of a union, what came closest
    kind, message, value = first["type"], first["msg"], first.get("input")
    if kind == "json_invalid":
        return invalid("the request is no JSON", None, "invalid_json")
    # The first part of a location is "body" or "query"; a query is not kept.
    place = _place(first["loc"][1:], error.body, kind == "missing" or error.body is None)
    if kind == "extra_forbidden":
        return invalid(f"unrecognized request argument: {place}", place, "unknown_parameter")
    param = ".".join(filter(None, [place, (first.get("ctx") or {}).get("name")])) or None
    if isinstance(value, str):
        place += f" = {value[:60]!r}"
    elif isinstance(value, (int, float)):
        place += f" = {value!r:.60}"
    code = "unsupported" if kind == "unsupported" else None
    return invalid(f"{place}: {message}" if place else message, param, code)


def _place(location: Sequence[int | str], body: Any, missing: bool) -> str:
    """Return a place in a body as clients write it, without the names of members of unions.

    Args:
        location: pydantic's, which has them.
        body: what was validated.
        missing: whether its last part is not in the body.
    """
    place = ""
    before: int | str | None = None
    for number, part in enumerate(location, 1):
        is_tag = isinstance(before, int) and isinstance(body, dict) and body.get("type") == part
        before = part
        key = isinstance(body, dict) and part in body and not is_tag
        if key or (isinstance(body, list) and isinstance(part, int)):
            body = body[part]
        elif not missing or number < len(location):
            continue
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    return place

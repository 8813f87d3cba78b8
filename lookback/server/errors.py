"""What goes wrong with a request, in OpenAI's shape: {"error": {message, type, param, code}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from lookback.errors import one_line
from lookback.io.limits import LimitError
from lookback.registry import SettingError
from lookback.server.process import LOG

LONGEST = 600
"""Characters of a message."""
TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(HTTPException):
    """An answer that is an error.

    Args:
        status: of HTTP.
        message: what is wrong and the way out.
        param: the part of the request that it is about.
        code: a word for programs.
        headers: beside it.
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
        """As OpenAI's clients read it."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        error = {
            "message": one_line(self.message, LONGEST),
            "type": TYPES.get(self.status, kind),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def answer(self) -> JSONResponse:
        """As it is sent."""
        return JSONResponse(self.body(), self.status, self.headers)


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The client's error: it asked for what there is not."""
    return ApiError(400, message, param, code)


def from_exception(error: Exception) -> ApiError:
    """What an engine or a scorer said; what nobody foresaw is told without its words.

    They may hold what is not for strangers: the log has them.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, LimitError):
        return ApiError(413, str(error), code="too_large")
    if isinstance(error, (ValueError, SettingError)):  # an AbilityError and a ScorerError too
        return invalid(str(error) or type(error).__name__)
    if isinstance(error, FloatingPointError):
        return ApiError(500, str(error), code="not_finite")
    if isinstance(error, MemoryError):
        return ApiError(503, "out of memory: ask for less at once", code="out_of_memory")
    return ApiError(500, "the server failed; its log says why", code="internal_error")


def tell(error: Exception, request: str) -> ApiError:
    """`from_exception` for one request, by its id; what is the server's own fault is logged."""
    told = from_exception(error)
    if told.status >= 500 and not isinstance(error, ApiError):
        LOG.error("%s failed", request, exc_info=error)
    return told

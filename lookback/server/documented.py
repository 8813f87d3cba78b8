"""What the OpenAPI document says of all routes that are posted to: their errors, their kind."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, Request

from lookback.server.bodies import ErrorBody
from lookback.server.errors import ApiError

JSON_ERROR = {"model": ErrorBody}
ERRORS: dict[int | str, dict[str, Any]] = {
    400: JSON_ERROR | {"description": "What is asked is wrong, or there is no such thing."},
    401: JSON_ERROR | {"description": "The key is missing or wrong."},
    403: JSON_ERROR | {"description": "The server does not answer to this host name."},
    404: JSON_ERROR | {"description": "There is no such model."},
    408: JSON_ERROR | {"description": "The request came too slowly."},
    413: JSON_ERROR | {"description": "The request, or an image of it, is too large."},
    415: JSON_ERROR | {"description": "The request is no JSON."},
    429: JSON_ERROR | {"description": "Too many wait: see Retry-After."},
    500: JSON_ERROR | {"description": "The server failed."},
    503: JSON_ERROR | {"description": "The server is starting, or ends."},
    504: JSON_ERROR | {"description": "It took longer than the deadline."},
}


def json_only(request: Request) -> None:
    """Let pass JSON: of this kind, browsers send it for no page of another site.

    Raises:
        ApiError: it is of another kind.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "send application/json", code="content_type")


POSTED = [Depends(json_only)]
"""What must hold for a body that is sent."""

"""The server as a FastAPI application around one engine: its routes, its errors, its guard."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from lookback import __version__
from lookback.engines import Engine
from lookback.server.dispatch import Serving
from lookback.server.errors import ApiError, invalid
from lookback.server.guard import Guard
from lookback.server.metrics import Metrics
from lookback.server.routes import add_chat, add_explorer, add_given, add_operations, json_only
from lookback.server.scheduler import Desk
from lookback.server.settings import Settings


def make_app(engine: Engine, settings: Settings) -> FastAPI:
    """The application.

    Args:
        engine: answers.
        settings: what it is told at its start.
    """
    desk = Desk(settings.limits.in_flight, settings.limits.queue)
    metrics = Metrics(desk, engine.keep_prefixes(settings.prefixes))
    serving = Serving(engine, settings, desk, metrics)
    app = FastAPI(
        title="LookBack",
        version=__version__,
        summary="Best-of-N answers about images, ranked by how much the image supports them.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.desk = desk
    add_chat(app, serving)
    add_given(app, serving)
    add_operations(app, serving)
    add_explorer(app, engine, settings)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _unreadable)
    paths = {getattr(route, "path", "") for route in app.routes}
    app.add_middleware(
        Guard,
        settings=settings,
        metrics=metrics,
        paths=paths,
        # The user is named in the body, which is not read yet.
        check_room=lambda client: desk.check_room((client, "")),
    )
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
        )
    return app


async def _refused(_: Request, error: Any) -> JSONResponse:
    """What the framework refuses, in OpenAI's shape; `Guard` answers the errors of the work."""
    if isinstance(error, ApiError):
        return error.answer()
    words = str(error.detail or HTTPStatus(error.status_code).phrase)
    return ApiError(error.status_code, words, headers=error.headers).answer()


async def _unreadable(request: Request, error: Any) -> JSONResponse:
    if request.method == "POST":
        json_only(request)
    return from_validation(error).answer()


def from_validation(error: RequestValidationError) -> ApiError:
    """The first thing that is wrong with a body, with its place in it."""
    first = error.errors()[0]
    place = [part for part in first["loc"] if part != "body"]
    where = ""
    for part in place:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    param = ".".join(filter(None, [where, (first.get("ctx") or {}).get("name")])) or None
    code = "unsupported" if first["type"] == "unsupported" else None
    if first["type"] == "extra_forbidden":
        return invalid(f"unrecognized request argument: {where}", where, "unknown_parameter")
    if first["type"] == "json_invalid":
        return invalid("the request is no JSON", None, "invalid_json")
    words = first["msg"]
    return invalid(f"{where}: {words}" if where else words, param, code)

"""The server's routes, as a FastAPI application around one engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from lookback import __version__
from lookback.engines import Engine, require
from lookback.server import answers, bodies
from lookback.server.asking import (
    ask_for_draw,
    ask_for_ranking,
    check_conversation,
    check_messages,
    check_response,
    check_responses,
    read_messages,
)
from lookback.server.desk import Desk
from lookback.server.errors import ApiError, from_exception, invalid
from lookback.server.explorer_routes import add_explorer
from lookback.server.guard import LOG, Guard
from lookback.server.metrics import Metrics
from lookback.server.reference import reference_page
from lookback.server.schema import ChatRequest, LookRequest, Message, Ranking, ScoreRequest
from lookback.server.serving import Serving
from lookback.server.settings import Settings
from lookback.server.streams import Stream
from lookback.server.work import Mailbox

NAMES = ("lookback", "default")
"""What the model is called by those who do not care which it is."""
JSON_ERROR = {"model": bodies.ErrorBody}
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


def make_app(engine: Engine, settings: Settings) -> FastAPI:
    """The application.

    Args:
        engine: answers.
        settings: what it is told at its start.
    """
    desk = Desk(settings.limits.in_flight, settings.limits.queue)
    keep = getattr(engine, "keep_prefixes", None)
    metrics = Metrics(desk, keep(settings.prefixes) if keep is not None else None)
    serving = Serving(engine, settings, desk, metrics)
    name = settings.name or engine.name
    app = FastAPI(
        title="LookBack",
        version=__version__,
        summary="Best-of-N answers about images, ranked by how much the image supports them.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.desk, app.state.metrics = desk, metrics

    def head(request: Request, prefix: str) -> dict[str, Any]:
        return {
            "id": f"{prefix}-{request.state.id}",
            "created": int(time.time()),
            "model": name,
        }

    def check_model(asked: str | None) -> None:
        if asked not in (None, name, *NAMES):
            raise ApiError(
                404, f"no model {asked!r:.80} here: there is {name!r}", "model", "model_not_found"
            )

    async def read(request: Request, messages: list[Message], source: Any) -> list[dict[str, Any]]:
        """The messages with their images, once all that can be checked at once was."""
        check_messages(messages, settings)
        desk.check_room()
        found = await serving.read(lambda: read_messages(messages))
        try:
            question = check_conversation(found, source)
        except ValueError as error:
            raise invalid(str(error), "messages") from None
        if settings.log_text:
            LOG.info("%s asks: %r", request.state.id, question)
        return found

    @app.post(
        "/v1/chat/completions",
        dependencies=[Depends(json_only)],
        tags=["OpenAI"],
        responses=ERRORS | {200: bodies.COMPLETION},
        summary="Draw candidates, and return the best",
    )
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        check_model(body.model)
        draw = ask_for_draw(engine, body, settings)
        messages = await read(request, body.messages, draw.ranked.source)
        begun = head(request, "chatcmpl")
        work = serving.work()
        if not body.stream:
            box = None
            found, ranked = await serving.answer(
                request, body.user, work, lambda: work.draw(messages, draw, box)
            )
            metrics.drew(found)
            return JSONResponse(answers.completion(begun, found, ranked, draw))
        options = body.stream_options
        watch = body.lookback is not None and body.lookback.watch
        stream = Stream(begun, draw, bool(options and options.include_usage), watch)
        heard = Mailbox()
        return serving.stream(
            request, body.user, work, lambda: work.draw(messages, draw, heard), stream, heard
        )

    @app.post(
        "/v1/score",
        dependencies=[Depends(json_only)],
        tags=["LookBack"],
        responses=ERRORS | {200: {"model": bodies.Scores}},
        summary="Score responses that exist already",
    )
    async def score(request: Request, body: ScoreRequest) -> Response:
        check_model(body.model)
        ranked = ask_for_ranking(engine, body.lookback or Ranking(), settings)
        check_responses(body, settings.limits)
        messages = await read(request, body.messages, ranked.source)
        work = serving.work()
        found, best_first = await serving.answer(
            request, body.user, work, lambda: work.score(messages, body.responses, ranked)
        )
        begun = head(request, "score")
        return JSONResponse(answers.scores(begun, found, best_first, ranked))

    @app.post(
        "/v1/look",
        dependencies=[Depends(json_only)],
        tags=["LookBack"],
        responses=ERRORS | {200: {"model": bodies.LookBody}},
        summary="Where in the images each token of a response looked",
    )
    async def look(request: Request, body: LookRequest) -> Response:
        check_model(body.model)
        require(engine, ["look"], "/v1/look")
        check_response(body.response, settings.limits, "response")
        messages = await read(request, body.messages, body.source)
        settings_ = {"relative_to": body.relative_to}
        chosen = None if body.layers is None else (body.layers[0], body.layers[1])
        work = serving.work()
        found = await serving.answer(
            request,
            body.user,
            work,
            lambda: work.look(messages, body.response, body.source, layers=chosen, **settings_),
        )
        return JSONResponse(answers.look(head(request, "look"), found))

    @app.get("/v1/models", tags=["OpenAI"], responses={200: {"model": bodies.Models}})
    async def models() -> Response:
        """The model that is served."""
        one = {"id": name, "object": "model", "created": 0, "owned_by": "lookback"}
        return JSONResponse({"object": "list", "data": [one]})

    @app.get(
        "/v1/models/{model:path}",
        tags=["OpenAI"],
        responses={200: {"model": bodies.Model}, 404: JSON_ERROR},
    )
    async def model(model: str) -> Response:
        """The same by its name."""
        check_model(model)
        return JSONResponse({"id": name, "object": "model", "created": 0, "owned_by": "lookback"})

    @app.get("/health", tags=["Operations"], responses={200: {"model": bodies.Status}})
    async def health() -> Response:
        """The process is alive."""
        return JSONResponse({"status": "ok"})

    @app.get(
        "/ready",
        tags=["Operations"],
        responses={200: {"model": bodies.Status}, 503: {"model": bodies.Status}},
    )
    async def ready() -> Response:
        """New requests are let in."""
        if desk.closed:
            return JSONResponse({"status": "shutting down"}, 503)
        return JSONResponse({"status": "ready"})

    @app.get(
        "/metrics",
        tags=["Operations"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def prometheus() -> Response:
        """Numbers for Prometheus."""
        text, kind = metrics.text()
        return Response(text, media_type=kind)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(reference_page(app.openapi(), str(request.base_url).rstrip("/")))

    add_explorer(app, engine, settings, [Depends(json_only)])
    _answer_errors(app)
    paths: set[str] = set()

    def known() -> set[str]:
        if not paths:
            paths.update(getattr(route, "path", "") for route in app.routes)
        return paths

    app.add_middleware(Guard, settings=settings, metrics=metrics, paths=known)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
        )
    return app


def _answer_errors(app: FastAPI) -> None:
    """Every error has OpenAI's shape, whoever raised it."""

    def answer(error: ApiError) -> JSONResponse:
        return JSONResponse(error.body(), error.status, error.headers)

    async def refused(_: Request, error: Any) -> JSONResponse:
        if isinstance(error, ApiError):
            return answer(error)
        words = str(error.detail or HTTPStatus(error.status_code).phrase)
        return answer(ApiError(error.status_code, words, headers=error.headers))

    async def unreadable(request: Request, error: Any) -> JSONResponse:
        if request.method == "POST":
            json_only(request)
        return answer(from_validation(error))

    async def failed(request: Request, error: Any) -> JSONResponse:
        told = from_exception(error)
        if told.status >= 500:
            logging.getLogger("lookback.server").error(
                "%s failed", request.state.id, exc_info=error
            )
        return answer(told)

    handlers: dict[Any, Callable[..., Any]] = {
        HTTPException: refused,
        RequestValidationError: unreadable,
        ValueError: failed,
        TypeError: failed,
        RuntimeError: failed,
        ArithmeticError: failed,
        OSError: failed,
        MemoryError: failed,
        LookupError: failed,
        AssertionError: failed,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def from_validation(error: RequestValidationError) -> ApiError:
    """The first thing that is wrong with a body, with its place in it."""
    first = error.errors()[0]
    place = [part for part in first["loc"] if part != "body"]
    where = ""
    for part in place:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    name = (first.get("ctx") or {}).get("name")
    code = "unsupported" if first["type"] == "unsupported" else None
    if first["type"] == "extra_forbidden":
        return invalid(f"unrecognized request argument: {where}", where, "unknown_parameter")
    if first["type"] == "json_invalid":
        return invalid("the request is no JSON", None, "invalid_json")
    words = first["msg"]
    return invalid(f"{where}: {words}" if where else words, name or where or None, code)

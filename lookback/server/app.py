"""The server as a FastAPI application around one engine: its routes, its errors, its guard."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from lookback import __version__
from lookback.engines import Engine, require
from lookback.server import responses, schema
from lookback.server.dispatch import Job, Service
from lookback.server.errors import ApiError, from_validation
from lookback.server.explorer import PAGE_HEADERS, add_explorer
from lookback.server.guard import DOCS_ASSETS, Guard, Metrics, require_json
from lookback.server.requests import (
    check_look_request,
    check_score_request,
    parse_chat_request,
    parse_ranking,
)
from lookback.server.scheduler import RequestScheduler
from lookback.server.schema import ChatRequest, ErrorBody, LookRequest, Ranking, ScoreRequest
from lookback.server.settings import Settings

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
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


def make_app(engine: Engine, settings: Settings) -> FastAPI:
    """Return the application that serves an engine."""
    scheduler = RequestScheduler(settings.limits.in_flight, settings.limits.queue)
    metrics = Metrics(scheduler, engine.keep_prefixes(settings.prefixes))
    service = Service(engine, settings, scheduler, metrics)
    app = FastAPI(
        title="LookBack",
        version=__version__,
        summary="Best-of-N answers about images, ranked by how much the image supports them.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.scheduler = scheduler
    _add_models(app, service)
    _add_operations(app, service)
    _add_docs(app)
    add_explorer(app, engine, settings)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    paths = {getattr(route, "path", "") for route in app.routes}
    app.add_middleware(Guard, settings=settings, metrics=metrics, paths=paths, scheduler=scheduler)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
        )
    return app


async def _refuse(_: Request, error: Any) -> JSONResponse:
    """Return what the framework refuses in OpenAI's shape; `Guard` does so for other errors."""
    if isinstance(error, ApiError):
        return error.response()
    message = str(error.detail or HTTPStatus(error.status_code).phrase)
    return ApiError(error.status_code, message, headers=error.headers).response()


async def _refuse_invalid(request: Request, error: Any) -> JSONResponse:
    if request.method == "POST":
        require_json(request)
    return from_validation(error).response()


def _add_models(app: FastAPI, service: Service) -> None:
    """Add what is asked of the model: OpenAI's routes, and LookBack's own."""
    engine, settings = service.engine, service.settings
    served = {
        name: {"id": name, "object": "model", "created": 0, "owned_by": "lookback"}
        for name in service.names
    }

    def post(path: str, tag: str, answer: dict[str, Any], summary: str) -> Decorator:
        return app.post(
            path,
            dependencies=[Depends(require_json)],
            tags=[tag],
            responses=ERRORS | {200: answer},
            summary=summary,
        )

    @post(
        "/v1/chat/completions",
        "OpenAI",
        schema.COMPLETION,
        "Draw candidates, and return the best",
    )
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        service.check_model(body.model)
        options = parse_chat_request(engine, body, settings)
        job = Job(service, request, body.user)
        messages = await job.read(body.messages, options.ranking.source)
        if body.stream:
            return await job.stream(messages, options)
        result = await job.answer(lambda: job.sample(messages, options))
        service.metrics.count_candidates(result[0])
        return JSONResponse(responses.completion(job.head("chatcmpl"), result, options))

    @app.get("/v1/models", tags=["OpenAI"], responses={200: {"model": schema.Models}})
    async def models() -> Response:
        """The model that is served, by each of its names."""
        return JSONResponse({"object": "list", "data": list(served.values())})

    @app.get(
        "/v1/models/{model:path}",
        tags=["OpenAI"],
        responses={200: {"model": schema.Model}, 404: JSON_ERROR},
    )
    async def model(model: str) -> Response:
        """The same by its name."""
        service.check_model(model)
        return JSONResponse(served.get(model, served[service.names[0]]))

    @post(
        "/v1/score",
        "LookBack",
        {"model": schema.Scores},
        "Score responses that exist already",
    )
    async def score(request: Request, body: ScoreRequest) -> Response:
        service.check_model(body.model)
        ranking = parse_ranking(engine, body.lookback or Ranking(), settings)
        check_score_request(body, settings.limits)
        job = Job(service, request, body.user)
        messages = await job.read(body.messages, ranking.source)
        result = await job.answer(lambda: job.score(messages, body.responses, ranking))
        return JSONResponse(responses.scores(job.head("score"), result, ranking))

    @post(
        "/v1/look",
        "LookBack",
        {"model": schema.LookBody},
        "Where in the images each token of a response looked",
    )
    async def look(request: Request, body: LookRequest) -> Response:
        service.check_model(body.model)
        require(engine, ["look"], "/v1/look")
        check_look_request(body, settings.limits)
        job = Job(service, request, body.user)
        messages = await job.read(body.messages, body.source)
        options = body.model_dump(include={"response", "source", "layers", "relative_to"})
        found = await job.answer(lambda: job.ask(engine.look, messages=messages, **options))
        return JSONResponse(responses.look(job.head("look"), found))


def _add_operations(app: FastAPI, service: Service) -> None:
    """Add what operators ask for."""

    @app.get("/health", tags=["Operations"], responses={200: {"model": schema.Status}})
    async def health() -> Response:
        """The process is alive."""
        return JSONResponse({"status": "ok"})

    @app.get(
        "/ready",
        tags=["Operations"],
        responses={200: {"model": schema.Status}, 503: {"model": schema.Status}},
    )
    async def ready() -> Response:
        """New requests are let in."""
        if service.scheduler.closed:
            return JSONResponse({"status": "shutting down"}, 503)
        return JSONResponse({"status": "ready"})

    @app.get(
        "/metrics",
        tags=["Operations"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        text, media_type = service.metrics.text()
        return Response(text, media_type=media_type)


def _add_docs(app: FastAPI) -> None:
    """Add FastAPI's page of the API at /docs; an installed package has its script and style."""
    # All addresses are relative: a proxy may add a prefix.
    assets = DOCS_ASSETS.removeprefix("/")
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="LookBack: the API",
        swagger_js_url=f"{assets}swagger-ui-bundle.js",
        swagger_css_url=f"{assets}swagger-ui.css",
        swagger_favicon_url="data:,",
        swagger_ui_parameters={"validatorUrl": None},  # would be another host
    )
    script = bytes(page.body).partition(b"<script>")[2].partition(b"</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    page.headers.update(PAGE_HEADERS)
    page.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page

    app.mount(DOCS_ASSETS, StaticFiles(packages=[("fastapi_swagger", "resources")]))

"""All routes: OpenAI's, LookBack's own, the explorer's, and those for operators."""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from lookback.engines import Engine, require
from lookback.server import explorer, responses, schema
from lookback.server.dispatch import Serving
from lookback.server.errors import ApiError
from lookback.server.requests import (
    ask_for_draw,
    ask_for_ranking,
    check_response,
    check_responses,
    check_text,
)
from lookback.server.schema import ChatRequest, ErrorBody, LookRequest, Ranking, ScoreRequest
from lookback.server.settings import Settings
from lookback.server.streams import Stream
from lookback.server.task import Mailbox

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


def add_chat(app: FastAPI, serving: Serving) -> None:
    """Add them to the server's."""
    served = {
        name: {"id": name, "object": "model", "created": 0, "owned_by": "lookback"}
        for name in serving.names
    }

    @app.post(
        "/v1/chat/completions",
        dependencies=POSTED,
        tags=["OpenAI"],
        responses=ERRORS | {200: schema.COMPLETION},
        summary="Draw candidates, and return the best",
    )
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        serving.check_model(body.model)
        draw = ask_for_draw(serving.engine, body, serving.settings)
        messages = await serving.read(request, body.user, body.messages, draw.ranked.source)
        head, work = serving.head(request, "chatcmpl"), serving.work()
        if not body.stream:
            found, ranked = await serving.answer(
                request, body.user, work, lambda: work.draw(messages, draw)
            )
            serving.metrics.drew(found)
            return JSONResponse(responses.completion(head, found, ranked, draw))
        options = body.stream_options
        watch = body.lookback is not None and body.lookback.watch
        stream = Stream(head, draw, bool(options and options.include_usage), watch)
        heard = Mailbox()
        return await serving.stream(
            request, body.user, work, lambda: work.draw(messages, draw, heard), stream, heard
        )

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
        serving.check_model(model)
        return JSONResponse(served.get(model, served[serving.names[0]]))


def add_given(app: FastAPI, serving: Serving) -> None:
    """Add them to the server's."""
    engine, settings = serving.engine, serving.settings

    @app.post(
        "/v1/score",
        dependencies=POSTED,
        tags=["LookBack"],
        responses=ERRORS | {200: {"model": schema.Scores}},
        summary="Score responses that exist already",
    )
    async def score(request: Request, body: ScoreRequest) -> Response:
        serving.check_model(body.model)
        ranked = ask_for_ranking(engine, body.lookback or Ranking(), settings)
        check_responses(body, settings.limits)
        messages = await serving.read(request, body.user, body.messages, ranked.source)
        work = serving.work()
        found, best_first = await serving.answer(
            request, body.user, work, lambda: work.score(messages, body.responses, ranked)
        )
        head = serving.head(request, "score")
        return JSONResponse(responses.scores(head, found, best_first, ranked))

    @app.post(
        "/v1/look",
        dependencies=POSTED,
        tags=["LookBack"],
        responses=ERRORS | {200: {"model": schema.LookBody}},
        summary="Where in the images each token of a response looked",
    )
    async def look(request: Request, body: LookRequest) -> Response:
        serving.check_model(body.model)
        require(engine, ["look"], "/v1/look")
        check_response(body.response, settings.limits, "response")
        check_text(body.relative_to or "", settings.limits, "relative_to")
        messages = await serving.read(request, body.user, body.messages, body.source)
        work = serving.work()
        found = await serving.answer(request, body.user, work, lambda: work.look(messages, body))
        return JSONResponse(responses.look(serving.head(request, "look"), found))


def add_operations(app: FastAPI, serving: Serving) -> None:
    """Add them to the server's."""

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
        if serving.desk.closed:
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
        text, kind = serving.metrics.text()
        return Response(text, media_type=kind)

def add_docs(app: FastAPI) -> None:
    """Add FastAPI's page of the API at /docs; an installed package has its script and style."""
    page = get_swagger_ui_html(
        openapi_url="openapi.json",  # relative, as all addresses: a proxy may add a prefix
        title="LookBack: the API",
        swagger_js_url="docs/assets/swagger-ui-bundle.js",
        swagger_css_url="docs/assets/swagger-ui.css",
        swagger_favicon_url="data:,",
        swagger_ui_parameters={"validatorUrl": None},  # would be another host
    )
    script = bytes(page.body).partition(b"<script>")[2].partition(b"</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    page.headers.update(HEADERS)
    page.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page

    app.mount("/docs/assets", StaticFiles(packages=[("fastapi_swagger", "resources")]))


HEADERS = {
    "Cache-Control": "no-cache",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


def about(engine: Engine, settings: Settings) -> explorer.About:
    """What the page is told of a server."""
    usual = settings.defaults
    return {
        "model": settings.names[0] if settings.names else engine.name,
        "embedded": engine.identity().model == "embedded",
        "looks": "look" in engine.abilities,
        "prunes": "prune" in engine.abilities,
        "best_of": usual.best_of,
        "most": settings.limits.best_of,
        "scorer": usual.scorer,
        "alpha": engine.family.alpha,
        "lam": engine.family.lam,
        "prune": usual.prune is not None,
        "temperature": usual.temperature,
        "max_tokens": usual.max_tokens,
        "longest": settings.limits.tokens,
    }


def add_explorer(app: FastAPI, engine: Engine, settings: Settings) -> None:
    """Add its routes to the server's."""
    told = about(engine, settings)
    kept: list[str] = []

    @app.get("/", include_in_schema=False)
    def page() -> Response:
        if not kept:
            kept.append(explorer.page(told))
        return HTMLResponse(kept[0], headers=HEADERS)

    @app.get("/explorer/scene", include_in_schema=False)
    def drawn(seed: int) -> Response:
        return JSONResponse(explorer.scene_of(seed))

    @app.post("/explorer/scene", include_in_schema=False, dependencies=POSTED)
    def edited(body: Annotated[Any, Body()]) -> Response:
        return JSONResponse(explorer.scene_from(body))

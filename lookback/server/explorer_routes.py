"""The routes of the explorer: its page, and the scenes that it shows."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, Response

from lookback.engines import Engine
from lookback.server import explorer
from lookback.server.documented import POSTED
from lookback.server.settings import Settings

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

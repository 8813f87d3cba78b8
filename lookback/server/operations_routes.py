"""Routes for those who run a server: whether it lives and lets in, its numbers, its API."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from lookback.server import bodies
from lookback.server.reference import reference_page
from lookback.server.serving import Serving


def add_operations(app: FastAPI, serving: Serving) -> None:
    """Add them to the server's."""

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

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(reference_page(app.openapi(), str(request.base_url).rstrip("/")))

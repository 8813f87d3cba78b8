"""OpenAI's routes: chat completions, and the model that is served."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from lookback.server import answers, bodies
from lookback.server.asking import ask_for_draw
from lookback.server.documented import ERRORS, JSON_ERROR, POSTED
from lookback.server.schema import ChatRequest
from lookback.server.serving import Serving
from lookback.server.streams import Stream
from lookback.server.work import Mailbox


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
        responses=ERRORS | {200: bodies.COMPLETION},
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
            return JSONResponse(answers.completion(head, found, ranked, draw))
        options = body.stream_options
        watch = body.lookback is not None and body.lookback.watch
        stream = Stream(head, draw, bool(options and options.include_usage), watch)
        heard = Mailbox()
        return await serving.stream(
            request, body.user, work, lambda: work.draw(messages, draw, heard), stream, heard
        )

    @app.get("/v1/models", tags=["OpenAI"], responses={200: {"model": bodies.Models}})
    async def models() -> Response:
        """The model that is served, by each of its names."""
        return JSONResponse({"object": "list", "data": list(served.values())})

    @app.get(
        "/v1/models/{model:path}",
        tags=["OpenAI"],
        responses={200: {"model": bodies.Model}, 404: JSON_ERROR},
    )
    async def model(model: str) -> Response:
        """The same by its name."""
        serving.check_model(model)
        return JSONResponse(served.get(model, served[serving.names[0]]))

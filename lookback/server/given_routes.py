"""Routes for responses that exist already: their scores, and where they looked."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from lookback.engines import require
from lookback.server import answers, bodies
from lookback.server.asking import ask_for_ranking, check_response, check_responses, check_text
from lookback.server.documented import ERRORS, POSTED
from lookback.server.schema import LookRequest, Ranking, ScoreRequest
from lookback.server.serving import Serving


def add_given(app: FastAPI, serving: Serving) -> None:
    """Add them to the server's."""
    engine, settings = serving.engine, serving.settings

    @app.post(
        "/v1/score",
        dependencies=POSTED,
        tags=["LookBack"],
        responses=ERRORS | {200: {"model": bodies.Scores}},
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
        return JSONResponse(answers.scores(head, found, best_first, ranked))

    @app.post(
        "/v1/look",
        dependencies=POSTED,
        tags=["LookBack"],
        responses=ERRORS | {200: {"model": bodies.LookBody}},
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
        return JSONResponse(answers.look(serving.head(request, "look"), found))

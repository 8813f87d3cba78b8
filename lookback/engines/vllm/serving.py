"""Stock `vllm serve` with LookBack's scores in its answers: an endpoint plugin of vLLM.

    VLLM_PLUGINS=lookback vllm serve MODEL \
        --worker-extension-cls lookback.engines.vllm.worker.Extension

`"lookback": {}` in the body of a chat completion (`extra_body` of OpenAI's client) asks for them;
each choice then has `lookback` with score and rank. All else is vLLM's own, its sampling too.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from lookback.engines.vllm.client.results import Workers
from lookback.engines.vllm.compat import check_version
from lookback.engines.vllm.tap_request import EXTRA
from lookback.scores.formula import lookback_score
from lookback.signals import SIGNALS

ROUTE = "/v1/chat/completions"
TAKES = ("alpha", "lam", "signals")


class Plugin:
    """What vLLM loads from the entry point `lookback` of `vllm.endpoint_plugins`."""

    name = "lookback"
    required_tasks = ("generate",)

    def attach_router(self, app: Any) -> None:
        """Put a route in front of vLLM's own, which it calls."""
        from fastapi import Depends, Request
        from fastapi.responses import JSONResponse
        from vllm.entrypoints.openai.chat_completion.api_router import create_chat_completion
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.entrypoints.serve.utils.api_utils import validate_json_request

        async def chat(request: ChatCompletionRequest, raw_request: Request) -> Any:
            asked = (request.model_extra or {}).get(EXTRA)
            if asked is None:
                return await create_chat_completion(request, raw_request)
            try:
                settings = read_settings(asked, bool(request.stream))
            except ValueError as error:
                return JSONResponse(_refusal(str(error)), 400)
            numbers = raw_request.app.state.lookback
            key = uuid4().hex
            request.vllm_xargs = {**(request.vllm_xargs or {}), EXTRA: key}
            try:
                response = await create_chat_completion(request, raw_request)
                if not isinstance(response, JSONResponse) or response.status_code != 200:
                    return response
                answer = json.loads(bytes(response.body))
                await numbers.add(answer["choices"], key, settings)
            except BaseException:
                with contextlib.suppress(Exception):
                    await numbers.client.collective_rpc("lookback_drop", args=(key,))
                raise
            return JSONResponse(answer)

        # FastAPI reads annotations as objects; these classes are known in this function only.
        chat.__annotations__ = {"request": ChatCompletionRequest, "raw_request": Request}
        app.post(ROUTE, dependencies=[Depends(validate_json_request)])(chat)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Install the tap in the workers, and compare it with a plain computation.

        Raises:
            RuntimeError: they run without LookBack's extension.
            UnsupportedModelError: their attention cannot be read, or differs.
        """
        from lookback.engines.common.model_files import load_processor
        from lookback.engines.vllm.client.client import EXTENSION, Client
        from lookback.engines.vllm.client.scoring import refuse_wrong_numbers
        from lookback.engines.vllm.engine import VllmEngine

        version = check_version()
        settings = engine_client.vllm_config
        if settings.parallel_config.worker_extension_cls != EXTENSION:
            raise RuntimeError(
                "VLLM_PLUGINS names lookback: start vllm serve with --worker-extension-cls "
                f"{EXTENSION} too"
            )
        model = settings.model_config
        client = await Client.around(engine_client)
        processor = load_processor(
            str(model.tokenizer), revision=model.revision, trust_remote_code=model.trust_remote_code
        )
        engine = VllmEngine(client, processor, name=str(model.model), vllm=version)
        await refuse_wrong_numbers(engine)
        state.lookback = Numbers(engine_client, client.workers, engine.family.defaults)


class Numbers:
    """Fetches the signals of answered requests; `defaults`: the model family's alpha and lam."""

    def __init__(self, client: Any, workers: Workers, defaults: Mapping[str, float]) -> None:
        self.client, self.workers, self.defaults = client, workers, defaults

    async def add(
        self, choices: list[dict[str, Any]], key: str, settings: Mapping[str, Any]
    ) -> None:
        """Add `lookback` to each choice."""
        names = [f"{key}/{choice['index']}" for choice in choices]
        by_worker = await self.client.collective_rpc("lookback_take", args=(names,))
        chosen = {name: settings.get(name, self.defaults[name]) for name in ("alpha", "lam")}
        for name, choice in zip(names, choices, strict=True):
            signals, _ = self.workers.signals([records.get(name) for records in by_worker])
            choice[EXTRA] = describe(response_rows(signals, choice), chosen, settings)
        scores = [choice[EXTRA]["score"] for choice in choices]
        for choice, rank in zip(choices, ranks(scores), strict=True):
            choice[EXTRA] |= {"rank": rank, "of": len(choices)}


def read_settings(asked: Any, stream: bool) -> dict[str, Any]:
    """Return the settings of a request.

    Raises:
        ValueError: one of them is unknown, or the request is a stream.
    """
    asked = {} if asked is True else asked
    if not isinstance(asked, dict):
        raise ValueError(f"lookback is {asked!r:.40}: an object is needed, e.g. {{}}")
    unknown = sorted(asked.keys() - set(TAKES))
    if unknown:
        raise ValueError(f"lookback has no {unknown[0]!r}; it has: {', '.join(TAKES)}")
    for name in ("alpha", "lam"):
        value = asked.get(name, 0.0)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise ValueError(f"lookback.{name} is {value!r:.40}: a number is needed")
    if stream:
        raise ValueError(
            "lookback with stream: the ranking is known at the end; leave stream out, or use "
            "`lookback serve`"
        )
    return dict(asked)


def response_rows(signals: NDArray[np.float32], choice: Mapping[str, Any]) -> NDArray[np.float32]:
    """Return the columns of the response's own tokens, without the token that ended it."""
    count = int((~np.isnan(signals[0])).cumprod().sum())
    ended = choice.get("finish_reason") == "stop" and not isinstance(choice.get("stop_reason"), str)
    return signals[:, : count - (1 if ended else 0)]


def describe(
    signals: NDArray[np.float32], chosen: Mapping[str, float], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a choice's `lookback`; an empty response has no score."""
    score = None
    if signals.shape[1]:
        score = float(lookback_score(signals[0], signals[1], **chosen))
    fields: dict[str, Any] = {"score": score, "tokens": signals.shape[1], **chosen}
    if settings.get("signals"):
        fields |= {name: row.tolist() for name, row in zip(SIGNALS, signals, strict=True)}
    return fields


def ranks(scores: list[float | None]) -> list[int]:
    """Return ranks, from 1 for the best; what has no score comes last."""
    order = sorted(range(len(scores)), key=lambda i: (scores[i] is None, -(scores[i] or 0.0), i))
    return [order.index(i) + 1 for i in range(len(scores))]


def _refusal(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "param": EXTRA, "code": 400}}

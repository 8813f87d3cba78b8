"""Score given responses, each read after the prompt, whose blocks they share; the self-check."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from lookback.conversations import Conversation
from lookback.engines.common.check_report import Check, CheckReport
from lookback.engines.common.continuations import (
    Continuation,
    make_candidates,
    refuse_ruled_out,
    response_ids,
    with_end,
)
from lookback.engines.vllm.client.client import gather_ordered
from lookback.engines.vllm.client.results import checked, continuation
from lookback.engines.vllm.tap_request import TapRequest, runs
from lookback.engines.vllm.worker.self_test import TOLERANCE
from lookback.errors import UnsupportedModelError
from lookback.signals import SIGNALS, Asked

if TYPE_CHECKING:
    from lookback.engines.common.options import Progress, ScoreRequest
    from lookback.engines.vllm.client.prompts import Prompt
    from lookback.engines.vllm.engine import VllmEngine
    from lookback.signals import Candidates


async def score(engine: VllmEngine, request: ScoreRequest) -> Candidates:
    """`VllmEngine.score`, on the engine's event loop."""
    record, responses = request.record, request.responses
    prompt = await engine.prompts.of(request.conversation, request.source)
    vocab = int(engine.client.llm.model_config.get_vocab_size())
    ids = [
        response_ids(engine.prompter, vocab, prompt.ids, i, response)
        for i, response in enumerate(responses)
    ]
    if record.keep_end:
        ids = [with_end(engine.prompter, tokens, engine.end_tokens) for tokens in ids]
    engine.prompts.room(prompt, max(map(len, ids)))
    work = (read(engine, prompt, tokens, record.by_layer) for tokens in ids)
    found = await gather_ordered(work, len(ids), progress=record.progress)
    texts = [response if isinstance(response, str) else None for response in responses]
    return make_candidates(
        Asked(engine, request.conversation),
        engine.prompter,
        request.source,
        prompt.ids,
        found,
        texts,
    )


async def read(engine: VllmEngine, prompt: Prompt, ids: list[int], by_layer: bool) -> Continuation:
    """Return the signals of one response, read as if it were a part of the prompt.

    Rows whose keys are cached already are not computed: then it is read again without the cache.
    """
    tap_request = TapRequest("", prompt.source, len(ids), given=ids, by_layer=by_layer)
    ways: list[dict[str, Any]] = [{}, {"skip_reading_prefix_cache": True}]
    for settings in ways:
        (answer,) = await engine.client.ask(
            prompt.followed_by(ids[:-1]),
            tap_request,
            max_tokens=1,
            ignore_eos=True,
            detokenize=False,
            **settings,
        )
        if not np.isnan(answer.rows[:2]).any():
            break
    refuse_ruled_out(ids, answer.rows[SIGNALS.index("log_prob")])
    return checked(continuation(ids, answer.rows, answer.finish), prompt)


TOKENS = 3
SIGNALS_TOLERANCE = 1e-4


async def refuse_wrong_numbers(engine: VllmEngine) -> None:
    """Compare the tap with a plain computation, and candidates with themselves, scored.

    Raises:
        UnsupportedModelError: they differ.
    """
    for found in (await compare(engine), await scored_again(engine)):
        if found.ok is False:
            raise UnsupportedModelError(
                f"{engine.name}: what the tap reads in vLLM is not the attention of its layers "
                f"({found.what}: {found.note or found.differences}): no numbers are better than "
                "wrong ones; use engine='transformers'"
            )


async def compare(engine: VllmEngine) -> Check:
    """Compare the attention on the source, of a prompt and a few tokens: tap and plain."""
    what = "attention on the source, layer by layer, against a plain softmax of queries and keys"
    client = engine.client
    dtype = str(client.llm.model_config.dtype).removeprefix("torch.")
    prompt = await engine.prompts.of(Conversation.of(_picture(), "?"), None)
    rendered = prompt.rendered | {"cache_salt": f"lookback-check-{perf_counter()}"}
    tap_request = TapRequest("", prompt.source, TOKENS, seed=0)
    await client.llm.collective_rpc("lookback_watch", args=(True,))
    try:
        settings: dict[str, Any] = {"max_tokens": TOKENS, "ignore_eos": True, "detokenize": False}
        await client.ask(rendered, tap_request, **settings)
    finally:
        seen = await client.llm.collective_rpc("lookback_watch", args=(False,))
    rows = np.array([row for worker in seen for row in worker])
    workers = client.workers
    if len(rows) < workers.layers * workers.count * TOKENS // workers.stages:
        return Check(what, {}, False, f"{len(rows)} rows of attention were seen")
    worst = float(np.abs(rows[:, 1] - rows[:, 2]).max())
    return Check(what, {"visual_lookback": worst}, worst <= TOLERANCE[dtype])


def check(engine: VllmEngine, progress: Progress | None = None) -> CheckReport:
    """Run all comparisons."""
    tell = progress or (lambda done, total: None)
    checks: list[Check] = []
    for number, one in enumerate((compare, scored_again, _marked), start=1):
        checks.append(engine.client.run(one(engine)))
        tell(number, 3)
    model = engine.client.llm.model_config
    dtype = str(model.dtype).removeprefix("torch.")
    return CheckReport(
        engine.name,
        str(model.architecture),
        dtype,
        str(engine.identity().device),
        engine.client.workers.layers,
        engine.client.workers.heads,
        (TOLERANCE[dtype], max(SIGNALS_TOLERANCE, TOLERANCE[dtype])),
        checks,
        {},
    )


async def scored_again(engine: VllmEngine) -> Check:
    """Compare candidates that were drawn together with the same ones, scored one by one."""
    what = "candidates that were drawn, scored again"
    drawn = (await engine.asample(_picture(), "?", 4, seed=0, max_new_tokens=8)).scorable()
    if not len(drawn):
        return Check(what, note="every candidate was empty")
    again = await engine.ascore(_picture(), "?", list(drawn))
    found = {
        name: max(
            float(np.abs(getattr(a, name) - getattr(b, name)).max())
            for a, b in zip(drawn, again, strict=True)
        )
        for name in ("visual_lookback", "log_prob", "self_certainty", "entropy")
    }
    dtype = str(engine.client.llm.model_config.dtype).removeprefix("torch.")
    allowed = max(SIGNALS_TOLERANCE, 10 * TOLERANCE[dtype])
    return Check(what, found, max(found.values()) <= allowed)


async def _marked(engine: VllmEngine) -> Check:
    """Compare vLLM's places of the image with those of the image's token."""
    what = "the image's tokens, by vLLM's places and by their id"
    prompt = await engine.prompts.of(Conversation.of(_picture(), "?"), None)
    token = engine.prompter.media_tokens["image"]
    by_id = runs(np.array(prompt.ids) == token)
    same = by_id == prompt.source
    note = "" if same else f"by places {prompt.source}, by the token {token} {by_id}"
    return Check(what, {}, same, note)


def _picture() -> Image.Image:
    pixels: Any = np.random.default_rng(0).integers(0, 255, (96, 128, 3), dtype=np.uint8)
    return Image.fromarray(pixels)

"""The engine's check of itself: a short prompt, the tap against a plain computation.

It runs when a model is loaded, and wrong numbers are refused; `lookback check` shows them.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from lookback.conversations import Conversation
from lookback.engines.checks import Check, CheckReport
from lookback.engines.contract import UnsupportedModelError
from lookback.engines.vllm.asking import Asking, runs
from lookback.engines.vllm.selftest import TOLERANCE

if TYPE_CHECKING:
    from lookback.engines.contract import Progress
    from lookback.engines.vllm.engine import VllmEngine

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
    """The attention on the source in each layer, prompt and a few tokens: tap and plain."""
    what = "attention on the source, layer by layer, against a plain softmax of queries and keys"
    client = engine.client
    dtype = str(client.llm.model_config.dtype).removeprefix("torch.")
    prompt = await engine.prompts.of(Conversation.of(_picture(), "?"), None)
    rendered = prompt.rendered | {"cache_salt": f"lookback-check-{perf_counter()}"}
    asking = Asking("", prompt.source, TOKENS, seed=0)
    await client.llm.collective_rpc("lookback_watch", args=(True,))
    try:
        settings: dict[str, Any] = {"max_tokens": TOKENS, "ignore_eos": True, "detokenize": False}
        await client.ask(rendered, asking, **settings)
    finally:
        seen = await client.llm.collective_rpc("lookback_watch", args=(False,))
    rows = np.array([row for worker in seen for row in worker])
    workers = client.workers
    if len(rows) < workers.layers * workers.count * TOKENS // workers.stages:
        return Check(what, {}, False, f"{len(rows)} rows of attention were seen")
    worst = float(np.abs(rows[:, 1] - rows[:, 2]).max())
    return Check(what, {"visual_lookback": worst}, worst <= TOLERANCE[dtype])


def check(engine: VllmEngine, progress: Progress | None = None) -> CheckReport:
    """All comparisons."""
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
    """What was drawn, together, has the same signals when it is given, each by itself."""
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
    """vLLM's places of the image are those of the image's tokens."""
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

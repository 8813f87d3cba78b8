"""Responses that are given: each is read behind the prompt, whose blocks they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.engines.transformers.candidates import make_candidates, response_ids, with_end
from lookback.engines.transformers.continuations import Continuation, refuse_ruled_out
from lookback.engines.vllm.answers import checked, continuation
from lookback.engines.vllm.asking import Asking
from lookback.engines.vllm.flight import together
from lookback.signals import SIGNALS

if TYPE_CHECKING:
    from lookback.conversations import Conversation, SourceLike
    from lookback.engines import Response
    from lookback.engines.contract import Progress
    from lookback.engines.vllm.engine import VllmEngine
    from lookback.engines.vllm.prompting import Prompt
    from lookback.signals import Candidates


async def score(
    engine: VllmEngine,
    conversation: Conversation,
    source: SourceLike,
    given: Sequence[Response],
    keep_end: bool,
    by_layer: bool,
    progress: Progress | None,
) -> Candidates:
    """`VllmEngine.score`, on the engine's event loop."""
    prompt = await engine.prompts.of(conversation, source)
    vocab = int(engine.client.llm.model_config.get_vocab_size())
    ids = [response_ids(engine.prompter, vocab, prompt.ids, i, one) for i, one in enumerate(given)]
    if keep_end:
        ids = [with_end(engine.prompter, one, engine.end_tokens) for one in ids]
    engine.prompts.room(prompt, max(map(len, ids)))
    work = (read(engine, prompt, one, by_layer) for one in ids)
    found = await together(work, len(ids), progress=progress)
    texts = [one if isinstance(one, str) else None for one in given]
    return make_candidates(engine, engine.prompter, conversation, source, prompt.ids, found, texts)


async def read(engine: VllmEngine, prompt: Prompt, ids: list[int], by_layer: bool) -> Continuation:
    """The signals of one response: it is read as if it were a part of the prompt.

    Rows whose keys are cached already are not worked out: then it is read once more, without
    the cache.
    """
    asking = Asking("", prompt.source, len(ids), given=ids, by_layer=by_layer)
    ways: list[dict[str, Any]] = [{}, {"skip_reading_prefix_cache": True}]
    for settings in ways:
        (answer,) = await engine.client.ask(
            prompt.followed_by(ids[:-1]),
            asking,
            max_tokens=1,
            ignore_eos=True,
            detokenize=False,
            **settings,
        )
        if not np.isnan(answer.rows[:2]).any():
            break
    refuse_ruled_out(ids, answer.rows[SIGNALS.index("log_prob")])
    return checked(continuation(ids, answer.rows, answer.finish), prompt)

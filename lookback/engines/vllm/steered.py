"""Candidates that are judged while they are written: in segments, from checkpoint to checkpoint.

After a segment its signals are fetched and the rule decides who goes on. Those do so as requests
whose prompt has the tokens so far: their blocks are in the prefix cache, and their random numbers
go on where they were. So nothing is drawn that a checkpoint would have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.engines.transformers.continuations import Continuation, Drawn
from lookback.engines.vllm.flight import together
from lookback.signals import SIGNALS

if TYPE_CHECKING:
    from lookback.engines.sampling import Draw
    from lookback.engines.vllm.asking import Asking
    from lookback.engines.vllm.client import Answer, Client
    from lookback.engines.vllm.prompting import Prompt
    from lookback.steering.pruning import Pruning


async def draw_steered(
    client: Client,
    prompt: Prompt,
    asking: Asking,
    draw: Draw,
    end_tokens: list[int],
    rule: Pruning,
    stopped: Callable[[list[int]], bool] | None,
    complete: Callable[[Continuation], Continuation],
) -> list[Continuation]:
    """Draw candidates of a prompt, some of which a rule ends early.

    Args:
        client: vLLM's.
        prompt: the prompt.
        asking: what is recorded of a candidate in all.
        draw: how they are drawn.
        end_tokens: ids that end one.
        rule: decides at its checkpoints.
        stopped: says of the tokens so far whether to end there.
        complete: what is kept of one that has ended, for the rule to judge.
    """
    steps = asking.length or draw.max_new_tokens
    numbers = len(SIGNALS) + (client.workers.layers if asking.by_layer else 0)
    signals = np.full((numbers, draw.n, steps), np.nan, np.float32)
    drawn = Drawn(draw.n, end_tokens, stopped)
    at = 0
    for end in [*(t for t in range(1, steps) if rule.due(t)), steps]:
        alive = drawn.alive
        work = [
            _segment(client, prompt, asking, i, drawn.ids[i], end - at, end_tokens) for i in alive
        ]
        answers = await together(work, len(work))
        for i, one in zip(alive, answers, strict=True):
            signals[:, i, at : at + len(one.token_ids)] = _rows(one)
        if prompt.blind:
            signals[SIGNALS.index("visual_lookback")] = 0.0  # for the rule too
        drawn.take([one.token_ids for one in answers])
        at = end
        if at == steps or not drawn.alive:
            break
        found = [complete(one) for one in drawn.continuations(signals)]
        drawn.end(rule.decide(at, drawn.drafts(found)).ends)
    return drawn.continuations(signals)


async def _segment(
    client: Client,
    prompt: Prompt,
    asking: Asking,
    index: int,
    done: list[int],
    length: int,
    end_tokens: list[int],
) -> Answer:
    """The next tokens of one candidate."""
    part = replace(asking, length=length, index=index, done=len(done))
    settings: dict[str, Any] = {"max_tokens": length, "ignore_eos": True, "detokenize": False}
    (answer,) = await client.ask(
        prompt.followed_by(done), part, stop_token_ids=end_tokens, **settings
    )
    return answer


def _rows(answer: Answer) -> Any:
    """Signals, and below them those by layer."""
    if answer.by_layer is None:
        return answer.signals
    return np.concatenate([answer.signals, answer.by_layer.T])

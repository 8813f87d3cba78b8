"""Candidates that are judged while they are written: in segments, from checkpoint to checkpoint.

After a segment its signals are fetched and the rule decides who goes on. Those do so as requests
whose prompt has the tokens so far: their blocks are in the prefix cache, and their random numbers
go on where they were. So nothing is drawn that a checkpoint would have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lookback.engines.transformers.continuations import Continuation, Drawn
from lookback.engines.vllm.answers import likeliest_of
from lookback.engines.vllm.flight import together
from lookback.engines.vllm.writing import Part
from lookback.signals import SIGNALS

if TYPE_CHECKING:
    from lookback.engines.vllm.asking import Asking
    from lookback.engines.vllm.client import Client
    from lookback.engines.vllm.prompting import Prompt
    from lookback.engines.vllm.writing import Writing
    from lookback.steering.pruning import Pruning

SETTINGS: dict[str, Any] = {"ignore_eos": True, "detokenize": False}


async def draw_steered(
    client: Client,
    prompt: Prompt,
    asking: Asking,
    writing: Writing,
    end_tokens: Sequence[int],
    rule: Pruning,
    stopped: Callable[[list[int]], bool] | None,
    complete: Callable[[Continuation], Continuation],
) -> list[Continuation]:
    """Draw candidates of a prompt, some of which a rule ends early.

    Args:
        client: vLLM's.
        prompt: the prompt.
        asking: what is recorded of a candidate in all.
        writing: where their numbers go.
        end_tokens: ids that end one.
        rule: decides at its checkpoints.
        stopped: says of the tokens so far whether to end there.
        complete: what is kept of one that has ended, for the rule to judge.
    """
    _, n, steps = writing.rows.shape
    split = len(writing.rows) - 2 * writing.top
    signals = writing.rows[:split]
    drawn = Drawn(n, end_tokens, stopped)
    at = 0
    for end in [*(t for t in range(1, steps) if rule.due(t)), steps]:
        settings = {"max_tokens": end - at, "stop_token_ids": list(end_tokens)} | SETTINGS
        work = []
        for i in drawn.alive:
            request = replace(asking, length=end - at, index=i, done=at)
            part = Part(writing, i, at, last=end == steps)
            follows = prompt.followed_by(drawn.ids[i])
            work.append(client.ask(follows, request, part=part, **settings))
        answers = [one for (one,) in await together(work, len(work))]
        if prompt.blind:
            signals[SIGNALS.index("visual_lookback")] = 0.0  # for the rule too
        drawn.take([one.token_ids for one in answers])
        at = end
        if at == steps or not drawn.alive:
            break
        found = [complete(one) for one in drawn.continuations(signals)]
        drawn.end(rule.decide(at, drawn.drafts(found)).ends)
        writing.settle(drawn)
    return drawn.continuations(signals, likeliest_of(writing.rows[split:]))

"""Drawing candidates: the engine's `sample` and `search`, from a conversation to candidates."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from lookback.engines.common.continuations import (
    Continuation,
    make_candidate,
    tokens_drawn,
    without_repeated,
)
from lookback.engines.common.stops import StopTexts
from lookback.engines.common.stream import Telling
from lookback.signals import WRITING, Candidate, Candidates
from lookback.steering.search import Search

if TYPE_CHECKING:
    from lookback.conversations import Conversation, SourceLike
    from lookback.engines.common.options import Draw, Wish
    from lookback.engines.transformers.engine import TransformersEngine
    from lookback.steering.pruning import Pruning


def draw_candidates(
    engine: TransformersEngine,
    conversation: Conversation,
    source: SourceLike,
    draw: Draw,
    rule: Pruning | Search | None,
    wish: Wish,
) -> Candidates:
    """As the contract says: one pass for the prompt, which all candidates share."""
    with engine._lock:
        inputs, mask = engine._inputs(conversation, source)
        prompt_ids = inputs["input_ids"][0].tolist()
        until = StopTexts(engine._prompter, prompt_ids, draw.stop)

        def complete(one: Continuation) -> Continuation:
            return until.cut(one if wish.keep_end else one.without_end())

        def candidate(i: int, one: Continuation) -> Candidate:
            one = until.hold(one) if one.finish == WRITING else complete(one)
            return make_candidate(engine._prompter, prompt_ids, i, one)

        telling = None if wish.listen is None else Telling(wish.listen, candidate)
        drawn = engine._decoder.sample(
            engine._prefill(inputs, mask),
            draw.n,
            temperature=draw.temperature,
            top_p=draw.top_p,
            top_k=draw.top_k,
            max_new_tokens=draw.max_new_tokens,
            seed=draw.seed,
            end_tokens=engine.end_tokens,
            stopped=until.reached if draw.stop else None,
            progress=wish.progress,
            by_layer=wish.by_layer,
            steering=rule,
            complete=complete,
            top=wish.top_log_probs,
            telling=telling,
        )
        settings = asdict(draw)
        if rule is not None:
            settings[rule.kind] = rule.to_json()
            settings["tokens_drawn"] = tokens_drawn(drawn)
        found = [complete(one) for one in drawn]
        if isinstance(rule, Search):
            found = without_repeated(found)
        candidates = engine._candidates(conversation, source, prompt_ids, found, sampling=settings)
    if telling is not None:
        telling.end(candidates.items)
    return candidates

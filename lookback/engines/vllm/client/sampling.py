"""One question from its conversation to its candidates, streamed to listeners meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from lookback.engines.common.continuations import (
    Continuation,
    Drawn,
    StopTexts,
    make_candidate,
    make_candidates,
    tokens_drawn,
)
from lookback.engines.common.options import RecordOptions
from lookback.engines.common.stream import StreamNotifier
from lookback.engines.vllm.client.client import gather_ordered
from lookback.engines.vllm.client.results import blinded, checked, continuation, likeliest_of
from lookback.engines.vllm.client.stream import PartialCandidates, PartialRequest, notify_while
from lookback.engines.vllm.tap_request import TapRequest
from lookback.signals import SIGNALS, WRITING, Asked, Candidate, Candidates

if TYPE_CHECKING:
    from lookback.conversations import Conversation, SourceLike
    from lookback.engines.common.options import SampleOptions
    from lookback.engines.vllm.client.prompts import Prompt
    from lookback.engines.vllm.client.stream import CallbackBridge
    from lookback.engines.vllm.engine import VllmEngine
    from lookback.steering.pruning import Pruning


@dataclass(frozen=True)
class Question:
    """A call of `VllmEngine.sample`, validated; `callbacks` if it has a listener or progress."""

    engine: VllmEngine
    conversation: Conversation
    source: SourceLike
    draw: SampleOptions
    rule: Pruning | None = None
    wish: RecordOptions = field(default_factory=RecordOptions)
    callbacks: CallbackBridge | None = None

    async def answer(self) -> Candidates:
        prompt = await self.engine.prompts.of(self.conversation, self.source)
        return await Drawing(self, prompt).candidates()


class Drawing:
    """Draws the candidates of a question."""

    def __init__(self, question: Question, prompt: Prompt) -> None:
        self.question, self.prompt, self.wish = question, prompt, question.wish
        self.engine, self.draw = question.engine, question.draw
        self.until = StopTexts(self.engine.prompter, prompt.ids, self.draw.stop)
        self.steps = min(self.draw.max_new_tokens, self.engine.prompts.room(prompt, 1))
        listen = self.wish.listen
        self.telling = None if listen is None else StreamNotifier(listen, self._so_far)

    async def candidates(self) -> Candidates:
        """Draw them, and notify listeners meanwhile."""
        rule, callbacks = self.question.rule, self.question.callbacks
        work = self._plain() if rule is None else self._steered(rule)
        if callbacks is None:
            drawn = await work
        else:
            every = 0.0 if self.wish.listen is None else self.wish.listen.every
            drawn = await notify_while(work, self.partial, self._notify, every)
        settings = asdict(self.draw)
        if rule is not None:
            settings[rule.kind] = rule.to_json()
            settings["tokens_drawn"] = tokens_drawn(drawn)
        found = make_candidates(
            Asked(self.engine, self.question.conversation),
            self.engine.prompter,
            self.question.source,
            self.prompt.ids,
            [self._complete(checked(one, self.prompt)) for one in drawn],
            sampling=settings,
        )
        if callbacks is not None:
            await callbacks.call(self._report_end, found)
        return found

    @cached_property
    def partial(self) -> PartialCandidates:
        layers = self.engine.client.workers.layers if self.wish.by_layer else 0
        streamed = self.question.callbacks is not None
        return PartialCandidates(self.draw.n, self.steps, layers, self.wish.top_log_probs, streamed)

    @property
    def _tap_request(self) -> TapRequest:
        return TapRequest(
            "",
            self.prompt.source,
            self.steps,
            self.draw.seed,
            self.draw.temperature,
            self.draw.top_p,
            self.draw.top_k,
            by_layer=self.wish.by_layer,
            top=self.wish.top_log_probs,
        )

    async def _plain(self) -> list[Continuation]:
        """All candidates in one request."""
        stop = self.draw.stop
        answers = await self.engine.client.ask(
            self.prompt.rendered,
            self._tap_request,
            self.draw.n,
            None if self.question.callbacks is None else PartialRequest(self.partial),
            max_tokens=self.steps,
            ignore_eos=True,
            stop_token_ids=list(self.engine.end_tokens),
            stop=stop or None,
            detokenize=bool(stop),
            include_stop_str_in_output=True,
        )
        top = self.wish.top_log_probs
        return [continuation(one.token_ids, one.rows, one.finish, top) for one in answers]

    async def _steered(self, rule: Pruning) -> list[Continuation]:
        """From checkpoint to checkpoint, a request for each candidate; the rule ends some early."""
        partial, steps, end_tokens = self.partial, self.steps, self.engine.end_tokens
        split = len(partial.rows) - 2 * partial.top
        signals = partial.rows[:split]
        drawn = Drawn(self.draw.n, end_tokens, self.until.reached if self.draw.stop else None)
        at = 0
        for end in [*(t for t in range(1, steps) if rule.due(t)), steps]:
            work = [
                self.engine.client.ask(
                    self.prompt.followed_by(drawn.ids[i]),
                    replace(self._tap_request, length=end - at, index=i, done=at),
                    part=PartialRequest(partial, i, at, last=end == steps),
                    max_tokens=end - at,
                    stop_token_ids=list(end_tokens),
                    ignore_eos=True,
                    detokenize=False,
                )
                for i in drawn.alive
            ]
            answers = [answer for (answer,) in await gather_ordered(work, len(work))]
            if self.prompt.blind:
                signals[SIGNALS.index("visual_lookback")] = 0.0  # for the rule too
            drawn.take([answer.token_ids for answer in answers])
            at = end
            if at == steps or not drawn.alive:
                break
            complete = [self._complete(part) for part in drawn.continuations(signals)]
            drawn.end(rule.decide(at, drawn.drafts(complete)).ends)
            partial.settle(drawn)
        return drawn.continuations(signals, likeliest_of(partial.rows[split:]))

    def _complete(self, one: Continuation) -> Continuation:
        """Cut a candidate that has ended at its end token or stop text."""
        return self.until.cut(one if self.wish.keep_end else one.without_end())

    def _so_far(self, i: int, one: Continuation) -> Candidate:
        """What listeners see of a candidate while others, or itself, are still being written."""
        one = blinded(one, self.prompt)
        if one.finish == WRITING:
            kept = self.until.cut(one)  # it may have a stop text before the checkpoint sees it
            one = self.until.hold(one) if kept is one else replace(kept, finish=WRITING)
        else:
            one = self._complete(one)
        return make_candidate(self.engine.prompter, self.prompt.ids, i, one)

    async def _notify(self) -> None:
        """Report changes to the caller; those of the last to end, once all signals are there."""
        callbacks = self.question.callbacks
        if callbacks is None or self.partial.ended:
            return
        changed: Sequence[tuple[int, Continuation]] = ()
        if self.telling is not None:
            await self.engine.client.peek(self.partial, self.wish.by_layer)
            changed = self.partial.changed()
        await callbacks.call(self._report, changed, self.partial.steps)

    def _report(self, changed: Sequence[tuple[int, Continuation]], steps: int) -> None:
        """Call the listener, in the caller's thread, where texts are decoded too."""
        if self.telling is not None:
            self.telling.finish([self._so_far(i, one) for i, one in changed])
        if self.wish.progress is not None:
            self.wish.progress(steps, self.steps)

    def _report_end(self, found: Candidates) -> None:
        if self.telling is not None:
            self.telling.finish(found.items)
        if self.wish.progress is not None:
            self.wish.progress(self.steps, self.steps)

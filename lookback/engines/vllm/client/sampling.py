"""One question from its conversation to its candidates, which listeners may hear meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

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
from lookback.engines.vllm.client.calls import together
from lookback.engines.vllm.client.results import blinded, checked, continuation, likeliest_of
from lookback.engines.vllm.client.stream import Part, Writing, tell_meanwhile
from lookback.engines.vllm.tap_request import Asking
from lookback.signals import SIGNALS, WRITING, Candidate, Candidates

if TYPE_CHECKING:
    from lookback.conversations import Conversation, SourceLike
    from lookback.engines.common.options import SampleOptions
    from lookback.engines.vllm.client.calls import Calls
    from lookback.engines.vllm.client.client import Client
    from lookback.engines.vllm.client.prompts import Prompt
    from lookback.engines.vllm.client.stream import Writing
    from lookback.engines.vllm.engine import VllmEngine
    from lookback.engines.vllm.tap_request import Asking
    from lookback.steering.pruning import Pruning


@dataclass(frozen=True)
class Question:
    """What `VllmEngine.sample` is asked.

    Attributes:
        engine: is asked.
        conversation: the question.
        source: what A_t is measured on.
        draw: how candidates are drawn.
        rule: ends some early, if there is one.
        wish: what is kept and told of them.
        calls: how to reach those who are told, if anybody is.
    """

    engine: VllmEngine
    conversation: Conversation
    source: SourceLike
    draw: SampleOptions
    rule: Pruning | None = None
    wish: RecordOptions = field(default_factory=RecordOptions)
    calls: Calls | None = None

    async def answer(self) -> Candidates:
        """Its candidates."""
        prompt = await self.engine.prompts.of(self.conversation, self.source)
        return await Drawing(self, prompt).candidates()


class Drawing:
    """The candidates of a question with its prompt.

    Args:
        question: that.
        prompt: of its conversation.
    """

    def __init__(self, question: Question, prompt: Prompt) -> None:
        self.question, self.prompt, self.wish = question, prompt, question.wish
        self.engine, self.draw = question.engine, question.draw
        self.until = StopTexts(self.engine.prompter, prompt.ids, self.draw.stop)
        self.steps = min(self.draw.max_new_tokens, self.engine.prompts.room(prompt, 1))
        listen = self.wish.listen
        self.telling = None if listen is None else StreamNotifier(listen, self._so_far)

    async def candidates(self) -> Candidates:
        """Draw them, and tell of them meanwhile."""
        rule, calls = self.question.rule, self.question.calls
        work = self._plain() if rule is None else self._steered(rule)
        if calls is None:
            drawn = await work
        else:
            every = 0.0 if self.wish.listen is None else self.wish.listen.every
            drawn = await tell_meanwhile(work, self.writing, self._tell, every)
        settings = asdict(self.draw)
        if rule is not None:
            settings[rule.kind] = rule.to_json()
            settings["tokens_drawn"] = tokens_drawn(drawn)
        found = make_candidates(
            self.engine,
            self.engine.prompter,
            self.question.conversation,
            self.question.source,
            self.prompt.ids,
            [self._complete(checked(one, self.prompt)) for one in drawn],
            sampling=settings,
        )
        if calls is not None:
            await calls.make(self._tell_the_end, found)
        return found

    @cached_property
    def writing(self) -> Writing:
        """What is known of them while they are written."""
        layers = self.engine.client.workers.layers if self.wish.by_layer else 0
        heard = self.question.calls is not None
        return Writing(self.draw.n, self.steps, layers, self.wish.top_log_probs, heard)

    @property
    def _asking(self) -> Asking:
        return Asking(
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
            self._asking,
            self.draw.n,
            None if self.question.calls is None else Part(self.writing),
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
        """From checkpoint to checkpoint."""
        return await draw_steered(
            self.engine.client,
            self.prompt,
            self._asking,
            self.writing,
            self.engine.end_tokens,
            rule,
            self.until.reached if self.draw.stop else None,
            self._complete,
        )

    def _complete(self, one: Continuation) -> Continuation:
        """What is kept of one that has ended."""
        return self.until.cut(one if self.wish.keep_end else one.without_end())

    def _so_far(self, i: int, one: Continuation) -> Candidate:
        """What is told of one while others, or itself, are still being written."""
        one = blinded(one, self.prompt)
        if one.finish == WRITING:
            kept = self.until.cut(one)  # it may have a stop text before the checkpoint sees it
            one = self.until.hold(one) if kept is one else replace(kept, finish=WRITING)
        else:
            one = self._complete(one)
        return make_candidate(self.engine.prompter, self.prompt.ids, i, one)

    async def _tell(self) -> None:
        """Have listeners hear of what changed; of the last to end, when all that came is there."""
        calls = self.question.calls
        if calls is None or self.writing.ended:
            return
        changed: Sequence[tuple[int, Continuation]] = ()
        if self.telling is not None:
            await self.engine.client.peek(self.writing, self.wish.by_layer)
            changed = self.writing.changed()
        await calls.make(self._say, changed, self.writing.steps)

    def _say(self, changed: Sequence[tuple[int, Continuation]], steps: int) -> None:
        """In the listener's own thread, where texts are made too."""
        if self.telling is not None:
            self.telling.finish([self._so_far(i, one) for i, one in changed])
        if self.wish.progress is not None:
            self.wish.progress(steps, self.steps)

    def _tell_the_end(self, found: Candidates) -> None:
        if self.telling is not None:
            self.telling.finish(found.items)
        if self.wish.progress is not None:
            self.wish.progress(self.steps, self.steps)


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

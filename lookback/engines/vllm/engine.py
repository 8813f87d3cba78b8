"""The engine for models inside vLLM: conversations in, candidates out, many at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, cast

from lookback.engines.base import Ability, Engine, Identity, Questions
from lookback.engines.common.model_files import fingerprint, first_end_tokens
from lookback.engines.common.options import (
    GenerateRequest,
    Progress,
    SampleRequest,
    ScoreRequest,
    check_top,
)
from lookback.engines.common.prompts import Prompter
from lookback.engines.vllm.client.client import Client, gather_ordered
from lookback.engines.vllm.client.prompts import Prompts
from lookback.engines.vllm.client.sampling import Question
from lookback.engines.vllm.client.scoring import score
from lookback.engines.vllm.client.stream import AsyncCallbackBridge, CallbackBridge
from lookback.errors import UnsupportedModelError
from lookback.families import family_of, image_token_id, video_token_id
from lookback.signals import Candidates
from lookback.steering.search import Search

if TYPE_CHECKING:
    from lookback.engines.common.check_report import CheckReport

P = ParamSpec("P")
Answer = Coroutine[Any, Any, Candidates]
PACKAGES = ("torch", "transformers", "tokenizers")
OF_A_RUN = 32
"""Questions that a run has in flight unless it says otherwise."""


def takes_arguments_of(
    method: Callable[Concatenate[Any, P], Candidates],
) -> Callable[[Callable[..., Answer]], Callable[Concatenate[Any, P], Answer]]:
    """Give a coroutine function the signature of a method, which names the parameters."""

    def decorate(function: Callable[..., Answer]) -> Callable[Concatenate[Any, P], Answer]:
        vars(function)["__signature__"] = inspect.signature(method)
        return cast("Callable[Concatenate[Any, P], Answer]", function)

    return decorate


class VllmEngine(Engine):
    """An LVLM inside vLLM, in processes of its own. Made by `lookback.load(engine="vllm")`.

    Calls from several threads share vLLM's batch; `asample` and `ascore` are the same for
    coroutines.

    Attributes:
        client: vLLM's engine.
        processor: the model's processor.
        prompts: makes prompts of conversations.
        name: where it came from.
        family: its row in `lookback.families`.
    """

    abilities: frozenset[Ability] = frozenset(
        {
            "sample",
            "score",
            "generate",
            "check",
            "by_layer",
            "prune",
            "top_log_probs",
            "listen",
        }
    )
    in_flight = OF_A_RUN

    def __init__(
        self,
        client: Client,
        processor: Any,
        *,
        name: str,
        vllm: str,
        revision: str | None = None,
        prompt: str | None = None,
    ) -> None:
        self.client = client
        self.processor = processor
        self.name = name
        self._vllm = vllm
        model = client.llm.model_config
        self.config = model.hf_config
        self.family = family_of(self.config)
        self._revision = revision
        try:
            image_token = image_token_id(self.config)
        except ValueError as error:
            raise UnsupportedModelError(f"{model.architecture}: {error}") from None
        self.prompter = Prompter(
            processor, self.family, image_token, video_token_id(self.config), prompt
        )
        self.prompter.check_can_ask()
        self.prompts = Prompts(client, self.prompter)
        self._requests = _Requests(self)
        self.end_tokens = first_end_tokens(
            model.try_get_generation_config().get("eos_token_id"),
            self.config.get_text_config(decoder=True).eos_token_id,
        )

    def __repr__(self) -> str:
        return f"VllmEngine({self.name!r}, {self.family.name}, {self.client.workers.backend})"

    def close(self) -> None:
        self.client.close()

    def identity(self) -> Identity:
        model = self.client.llm.model_config
        found = {package: version(package) for package in PACKAGES}
        return Identity(
            engine="vllm",
            model=self.name,
            model_class=str(model.architecture),
            revision=self._revision,
            weights=fingerprint(Path(str(model.model))),
            processor=type(self.processor).__name__,
            dtype=str(model.dtype).removeprefix("torch."),
            device=_device(),
            versions=found | {"vllm": self._vllm},
        )

    def _sample(self, request: SampleRequest) -> Candidates:
        # One request for all n; listeners are called in the caller's thread.
        calls = CallbackBridge() if _has_callbacks(request) else None
        return self.client.run(self._question(request, calls).answer(), calls)

    @takes_arguments_of(Engine.sample)
    async def asample(self, *args: Any, **kwargs: Any) -> Candidates:
        """`sample`, with the same arguments, for a coroutine of whatever event loop.

        If it is cancelled, vLLM drops the request.
        """
        request = cast("SampleRequest", self._requests.sample(*args, **kwargs))
        calls = AsyncCallbackBridge() if _has_callbacks(request) else None
        return await self.client.from_any_loop(self._question(request, calls).answer(), calls)

    def _question(self, request: SampleRequest, calls: CallbackBridge | None) -> Question:
        check_top(request.record.top_log_probs, int(self.client.llm.model_config.get_vocab_size()))
        rule = request.steering
        assert not isinstance(rule, Search)
        return Question(
            self,
            request.conversation,
            request.source,
            request.options,
            rule,
            request.record,
            calls,
        )

    def _sample_many(
        self, questions: Questions, return_exceptions: bool, progress: Progress | None
    ) -> list[Any]:
        # All of them in flight together.
        work = (self.asample(**arguments) for arguments in questions)
        return self.client.run(gather_ordered(work, len(questions), return_exceptions, progress))

    def _score(self, request: ScoreRequest) -> Candidates:
        # Each response behind the prompt, whose blocks they share.
        return self.client.run(score(self, request))

    @takes_arguments_of(Engine.score)
    async def ascore(self, *args: Any, **kwargs: Any) -> Candidates:
        """`score`, with the same arguments, for a coroutine of whatever event loop."""
        request = cast("ScoreRequest", self._requests.score(*args, **kwargs))
        return await self.client.from_any_loop(score(self, request))

    def _generate(self, request: GenerateRequest) -> list[str]:
        # All of them in flight together.
        work = (
            Question(self, conversation, "none", request.options).answer()
            for conversation in request.conversations
        )
        answers = self.client.run(gather_ordered(work, len(request.conversations)))
        return [self._plain(candidates) for candidates in answers]

    def _plain(self, candidates: Candidates) -> str:
        """The one answer, without special tokens."""
        ids = candidates[0].token_ids.tolist()
        text: str = self.prompter.tokenizer.decode(ids, skip_special_tokens=True)
        return text.strip()

    def _check(self, progress: Progress | None) -> CheckReport:
        # The tap against a plain computation, in the workers.
        from lookback.engines.vllm.client.scoring import check

        return check(self, progress)


def _device() -> str:
    from vllm.platforms import current_platform

    return str(current_platform.device_type)


class _Requests(Engine):
    """Validates arguments as an engine does, and returns the request in place of the answer."""

    def __init__(self, engine: Engine) -> None:
        self.name, self.family, self.abilities = engine.name, engine.family, engine.abilities

    def identity(self) -> Identity:
        raise NotImplementedError

    def _sample(self, request: SampleRequest) -> Any:
        return request

    def _score(self, request: ScoreRequest) -> Any:
        return request


def _has_callbacks(request: SampleRequest) -> bool:
    return request.record.listen is not None or request.record.progress is not None

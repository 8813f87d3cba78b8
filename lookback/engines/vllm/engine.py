"""The engine for models inside vLLM: conversations in, candidates out, many at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookback.conversations import Conversation
from lookback.engines.base import Ability, Engine, Identity, UnsupportedModelError
from lookback.engines.common.model_files import fingerprint, first_end_tokens
from lookback.engines.common.options import (
    Draw,
    Progress,
    Wish,
    check_responses,
    check_sampling,
    check_top,
    draw_of,
)
from lookback.engines.common.prompts import Prompter
from lookback.engines.vllm.client.client import Client, gather_ordered
from lookback.engines.vllm.client.prompts import Prompts
from lookback.engines.vllm.client.sampling import Question
from lookback.engines.vllm.client.scoring import score
from lookback.engines.vllm.client.stream import AsyncCallbackBridge, CallbackBridge
from lookback.errors import check_flag, check_texts
from lookback.families import family_of, image_token_id, video_token_id
from lookback.signals import Candidate, Candidates
from lookback.steering.pruning import pruning_of

if TYPE_CHECKING:
    from lookback.conversations import Images, Messages, SourceLike
    from lookback.engines.common.check_report import CheckReport
    from lookback.engines.common.options import Response
    from lookback.engines.common.stream import Listener
    from lookback.io.videos import VideoLike
    from lookback.steering.pruning import Prune

PACKAGES = ("torch", "transformers", "tokenizers")
OF_A_RUN = 32
"""Questions that a run has in flight unless it says otherwise."""


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
        self.end_tokens = first_end_tokens(
            model.try_get_generation_config().get("eos_token_id"),
            self.config.get_text_config(decoder=True).eos_token_id,
        )

    def __repr__(self) -> str:
        return f"VllmEngine({self.name!r}, {self.family.name}, {self.client.workers.backend})"

    def close(self) -> None:
        """End vLLM's processes; an engine that nobody holds any more does so by itself."""
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

    def sample(
        self,
        image: Images = None,
        question: str | None = None,
        n: int = 25,
        *,
        messages: Messages | None = None,
        video: VideoLike | None = None,
        source: SourceLike = None,
        temperature: float = 1.2,
        top_p: float = 0.9,
        top_k: int | None = None,
        max_new_tokens: int = 256,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        keep_end: bool = False,
        by_layer: bool = False,
        prune: Prune = None,
        top_log_probs: int = 0,
        listen: Listener | None = None,
        progress: Progress | None = None,
    ) -> Candidates:
        # One request for all n; listeners hear in the thread that calls.
        asked: dict[str, Any] = {k: v for k, v in locals().items() if k != "self"}
        calls = None if listen is None and progress is None else CallbackBridge()
        return self.client.run(self._question(asked, calls).answer(), calls)

    async def asample(
        self,
        image: Images = None,
        question: str | None = None,
        n: int = 25,
        *,
        messages: Messages | None = None,
        video: VideoLike | None = None,
        source: SourceLike = None,
        temperature: float = 1.2,
        top_p: float = 0.9,
        top_k: int | None = None,
        max_new_tokens: int = 256,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        keep_end: bool = False,
        by_layer: bool = False,
        prune: Prune = None,
        top_log_probs: int = 0,
        listen: Listener | None = None,
        progress: Progress | None = None,
    ) -> Candidates:
        """`sample`, with the same arguments, for a coroutine of whatever event loop.

        Cancelled, it is given up in vLLM.
        """
        asked: dict[str, Any] = {k: v for k, v in locals().items() if k != "self"}
        calls = None if listen is None and progress is None else AsyncCallbackBridge()
        return await self.client.from_any_loop(self._question(asked, calls).answer(), calls)

    def _question(self, asked: Mapping[str, Any], calls: CallbackBridge | None) -> Question:
        """What `sample` is asked, if it can be answered."""
        draw = draw_of(**{one.name: asked[one.name] for one in fields(Draw)})
        rule = pruning_of(asked["prune"], draw.n, self.family.defaults)
        check_top(asked["top_log_probs"], int(self.client.llm.model_config.get_vocab_size()))
        wish = Wish(**{one.name: asked[one.name] for one in fields(Wish)})
        conversation = Conversation.of(
            asked["image"], asked["question"], asked["messages"], asked["video"]
        )
        return Question(self, conversation, asked["source"], draw, rule, wish, calls)

    def sample_many(
        self,
        questions: Sequence[Mapping[str, Any]],
        *,
        return_exceptions: bool = False,
        progress: Progress | None = None,
        **settings: Any,
    ) -> list[Any]:
        # All of them in flight together.
        work = (self.asample(**{**settings, **one}) for one in questions)
        return self.client.run(gather_ordered(work, len(questions), return_exceptions, progress))

    def score(
        self,
        image: Images = None,
        question: str | None = None,
        responses: str | Candidate | Sequence[Response] = (),
        *,
        messages: Messages | None = None,
        video: VideoLike | None = None,
        source: SourceLike = None,
        keep_end: bool = False,
        by_layer: bool = False,
        progress: Progress | None = None,
    ) -> Candidates:
        # Each response behind the prompt, whose blocks they share.
        return self.client.run(
            self.ascore(
                image,
                question,
                responses,
                messages=messages,
                video=video,
                source=source,
                keep_end=keep_end,
                by_layer=by_layer,
                progress=progress,
            )
        )

    async def ascore(
        self,
        image: Images = None,
        question: str | None = None,
        responses: str | Candidate | Sequence[Response] = (),
        *,
        messages: Messages | None = None,
        video: VideoLike | None = None,
        source: SourceLike = None,
        keep_end: bool = False,
        by_layer: bool = False,
        progress: Progress | None = None,
    ) -> Candidates:
        """`score`, with the same arguments, for a coroutine of whatever event loop."""
        given = check_responses(responses)
        check_flag("keep_end", keep_end)
        check_flag("by_layer", by_layer)
        conversation = Conversation.of(image, question, messages, video)
        work = score(self, conversation, source, given, keep_end, by_layer, progress)
        return await self.client.from_any_loop(work)

    def generate(
        self,
        image: Images = None,
        prompts: str | Sequence[str] | None = None,
        *,
        messages: Messages | None = None,
        video: VideoLike | None = None,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        # All of them in flight together.
        check_sampling(1, temperature, top_p, None, max_new_tokens, seed)
        asked: list[dict[str, Any]] = [{"messages": messages, "image": image, "question": prompts}]
        if not (isinstance(prompts, str) or prompts is None):
            if messages is not None:
                raise TypeError("give either an image and prompts, or messages, not both")
            several = check_texts("prompts", prompts)
            asked = [{"image": image, "question": one} for one in several]
        draw = draw_of(1, temperature, top_p, None, max_new_tokens, None, seed)
        work = (
            Question(self, Conversation.of(**one, video=video), "none", draw).answer()
            for one in asked
        )
        found = self.client.run(gather_ordered(work, len(asked)))
        return [self._plain(candidates) for candidates in found]

    def _plain(self, candidates: Candidates) -> str:
        """The one answer, without special tokens."""
        ids = candidates[0].token_ids.tolist()
        text: str = self.prompter.tokenizer.decode(ids, skip_special_tokens=True)
        return text.strip()

    def check(self, progress: Progress | None = None) -> CheckReport:
        # The tap against a plain computation, in the workers.
        from lookback.engines.vllm.client.scoring import check

        return check(self, progress)


def _device() -> str:
    from vllm.platforms import current_platform

    return str(current_platform.device_type)

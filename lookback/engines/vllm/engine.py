"""The engine for models inside vLLM: conversations in, candidates out, many at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.conversations import Conversation
from lookback.engines.contract import (
    Ability,
    Engine,
    Identity,
    Progress,
    UnsupportedModelError,
)
from lookback.engines.sampling import Draw, check_sampling, draw_of
from lookback.engines.transformers.candidates import make_candidates, response_ids
from lookback.engines.transformers.continuations import (
    Continuation,
    refuse_ruled_out,
    tokens_drawn,
)
from lookback.engines.transformers.logits import check_stats
from lookback.engines.transformers.prompts import Prompter
from lookback.engines.transformers.stops import StopTexts
from lookback.engines.transformers.support import fingerprint, first_end_tokens
from lookback.engines.vllm.asking import Asking
from lookback.engines.vllm.client import Answer, Client
from lookback.engines.vllm.flight import together
from lookback.engines.vllm.gathering import VllmError
from lookback.engines.vllm.prompting import Prompt, Prompts
from lookback.engines.vllm.steered import draw_steered
from lookback.families import family_of, image_token_id, video_token_id
from lookback.signals import SIGNALS, Candidate, Candidates
from lookback.steering.pruning import pruning_of

if TYPE_CHECKING:
    from lookback.conversations import Images, Messages, SourceLike
    from lookback.engines import Response
    from lookback.engines.checks import CheckReport
    from lookback.steering.pruning import Prune, Pruning
    from lookback.videos import VideoLike

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
        {"sample", "score", "generate", "check", "by_layer", "prune"}
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
        self._prompter = Prompter(
            processor, self.family, image_token, video_token_id(self.config), prompt
        )
        self._prompter.check_can_ask()
        self.prompts = Prompts(client, self._prompter)
        self._end_tokens = first_end_tokens(
            model.try_get_generation_config().get("eos_token_id"),
            self.config.get_text_config(decoder=True).eos_token_id,
        )

    def __repr__(self) -> str:
        return f"VllmEngine({self.name!r}, {self.family.name}, {self.client.workers.backend})"

    def close(self) -> None:
        """End vLLM's processes; an engine that nobody holds any more does so by itself."""
        self.client.close()

    def identity(self) -> Identity:
        """Which model this is."""
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
        progress: Progress | None = None,
    ) -> Candidates:
        """As the contract says: one request for all n."""
        asked: dict[str, Any] = {k: v for k, v in locals().items() if k not in ("self", "progress")}
        found = self.client.run(self.asample(**asked))
        if progress is not None:
            progress(1, 1)
        return found

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
    ) -> Candidates:
        """`sample` for a coroutine, of whatever event loop; cancelled, it is given up in vLLM."""
        draw = draw_of(n, temperature, top_p, top_k, max_new_tokens, stop, seed)
        rule = pruning_of(prune, n, self.family.defaults)
        conversation = Conversation.of(image, question, messages, video)
        work = self._sample(conversation, source, draw, keep_end, by_layer, rule)
        return await self.client.from_any_loop(work)

    async def _sample(
        self,
        conversation: Conversation,
        source: SourceLike,
        draw: Draw,
        keep_end: bool,
        by_layer: bool,
        rule: Pruning | None = None,
    ) -> Candidates:
        prompt = await self.prompts.of(conversation, source)
        until = StopTexts(self._prompter, prompt.ids, draw.stop)
        length = min(draw.max_new_tokens, self.prompts.room(prompt, 1))
        asking = Asking(
            "",
            prompt.source,
            length,
            draw.seed,
            draw.temperature,
            draw.top_p,
            draw.top_k,
            by_layer=by_layer,
        )

        def complete(one: Continuation) -> Continuation:
            return until.cut(one if keep_end else one.without_end())

        settings = asdict(draw)
        if rule is None:
            drawn = await self._plain_draw(prompt, asking, draw)
        else:
            stopped = until.reached if draw.stop else None
            drawn = await draw_steered(
                self.client, prompt, asking, draw, self._end_tokens, rule, stopped, complete
            )
            settings[rule.kind] = rule.to_json()
            settings["tokens_drawn"] = tokens_drawn(drawn)
        found = [complete(self._checked(one, prompt)) for one in drawn]
        return self._candidates(conversation, source, prompt.ids, found, sampling=settings)

    async def _plain_draw(self, prompt: Prompt, asking: Asking, draw: Draw) -> list[Continuation]:
        """All candidates in one request."""
        answers = await self.client.ask(
            prompt.rendered,
            asking,
            draw.n,
            max_tokens=asking.length,
            ignore_eos=True,
            stop_token_ids=self._end_tokens,
            stop=draw.stop or None,
            detokenize=bool(draw.stop),
            include_stop_str_in_output=True,
        )
        return [_continuation(one) for one in answers]

    def sample_many(
        self,
        questions: Sequence[Mapping[str, Any]],
        *,
        return_exceptions: bool = False,
        progress: Progress | None = None,
        **settings: Any,
    ) -> list[Any]:
        """As the contract says: all of them in flight together."""
        work = (self.asample(**{**settings, **one}) for one in questions)
        return self.client.run(together(work, len(questions), return_exceptions, progress))

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
        """As the contract says: each response behind the prompt, whose blocks they share."""
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
        """`score` for a coroutine, of whatever event loop."""
        given = [responses] if isinstance(responses, (str, Candidate)) else list(responses)
        if not given:
            raise ValueError("no responses given: there is nothing to score")
        conversation = Conversation.of(image, question, messages, video)
        work = self._score(conversation, source, given, keep_end, by_layer, progress)
        return await self.client.from_any_loop(work)

    async def _score(
        self,
        conversation: Conversation,
        source: SourceLike,
        given: Sequence[Response],
        keep_end: bool,
        by_layer: bool,
        progress: Progress | None,
    ) -> Candidates:
        prompt = await self.prompts.of(conversation, source)
        vocab = int(self.client.llm.model_config.get_vocab_size())
        ids = [
            response_ids(self._prompter, vocab, prompt.ids, i, one) for i, one in enumerate(given)
        ]
        end = self._end_tokens[:1] if keep_end else []
        whole = [[*one, *end] for one in ids]
        self.prompts.room(prompt, max(map(len, whole)))
        work = (self._read(prompt, one, by_layer) for one in whole)
        found = await together(work, len(whole), progress=progress)
        texts = [one if isinstance(one, str) else None for one in given]
        return self._candidates(conversation, source, prompt.ids, found, texts)

    async def _read(self, prompt: Prompt, ids: list[int], by_layer: bool) -> Continuation:
        """The signals of one response: it is read as if it were a part of the prompt.

        Rows whose keys are cached already are not worked out: then it is read once more, without
        the cache.
        """
        asking = Asking("", prompt.source, len(ids), given=ids, by_layer=by_layer)
        for settings in ({}, {"skip_reading_prefix_cache": True}):
            (answer,) = await self.client.ask(
                prompt.followed_by(ids[:-1]),
                asking,
                max_tokens=1,
                ignore_eos=True,
                detokenize=False,
                **settings,
            )
            if not np.isnan(answer.signals[:2]).any():
                break
        refuse_ruled_out(ids, answer.signals[SIGNALS.index("log_prob")])
        return self._checked(_continuation(answer, "given"), prompt)

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
        """As the contract says: all of them in flight together."""
        check_sampling(1, temperature, top_p, None, max_new_tokens, seed)
        asked: list[dict[str, Any]] = [{"messages": messages, "image": image, "question": prompts}]
        if not (isinstance(prompts, str) or prompts is None):
            if messages is not None:
                raise TypeError("give either an image and prompts, or messages, not both")
            asked = [{"image": image, "question": one} for one in prompts]
        draw = draw_of(1, temperature, top_p, None, max_new_tokens, None, seed)
        work = (
            self._sample(Conversation.of(**one, video=video), "none", draw, False, False)
            for one in asked
        )
        found = self.client.run(together(work, len(asked)))
        return [self._plain(candidates) for candidates in found]

    def _plain(self, candidates: Candidates) -> str:
        """The one answer, without special tokens."""
        ids = candidates[0].token_ids.tolist()
        text: str = self._prompter.tokenizer.decode(ids, skip_special_tokens=True)
        return text.strip()

    def check(self, progress: Progress | None = None) -> CheckReport:
        """As the contract says: the tap against a plain computation, in the workers."""
        from lookback.engines.vllm.check import check

        return check(self, progress)

    def _checked(self, one: Continuation, prompt: Prompt) -> Continuation:
        """A continuation whose every number was seen; without a source there is nothing to see.

        Raises:
            FloatingPointError: the logits were not finite.
            VllmError: the tap missed a token.
        """
        import torch

        log_prob, _, certainty, entropy = torch.from_numpy(one.signals)
        check_stats(log_prob, certainty, entropy)
        if prompt.blind:
            one.signals[1] = 0.0
            one.by_layer = None if one.by_layer is None else np.zeros_like(one.by_layer)
        elif np.isnan(one.signals[1]).any():
            raise VllmError("the tap saw no attention for a token of this response")
        return one

    def _candidates(
        self,
        conversation: Conversation,
        source: SourceLike,
        prompt_ids: list[int],
        found: list[Continuation],
        texts: Sequence[str | None] | None = None,
        sampling: dict[str, Any] | None = None,
    ) -> Candidates:
        return make_candidates(
            self, self._prompter, conversation, source, prompt_ids, found, texts, sampling
        )


def _continuation(one: Answer, finish: str | None = None) -> Continuation:
    """An answer as the other engines have it."""
    if finish is None:
        finish = "length"
        if one.finish == "stop":
            finish = "stop" if isinstance(one.stop, str) else "end"
    return Continuation(one.token_ids, one.signals, finish, one.by_layer)


def _device() -> str:
    from vllm.platforms import current_platform

    return str(current_platform.device_type)

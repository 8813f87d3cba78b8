"""The engine for models of the transformers library: requests in, candidates out."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, StoppingCriteria, StoppingCriteriaList

from lookback.conversations import Conversation, SourceError
from lookback.engines import ABILITIES, Ability, Engine, Identity
from lookback.engines.base import PREFIX_BYTES
from lookback.engines.common.compat import alone_settings
from lookback.engines.common.continuations import (
    Continuation,
    StopTexts,
    make_candidate,
    make_candidates,
    response_ids,
    tokens_drawn,
    with_end,
    without_repeated,
)
from lookback.engines.common.fair_lock import lock_for
from lookback.engines.common.model_files import fingerprint
from lookback.engines.common.options import (
    GenerateRequest,
    KnockoutRequest,
    LookRequest,
    Progress,
    SampleRequest,
    ScoreRequest,
    check_top,
)
from lookback.engines.common.prompts import Prompter
from lookback.engines.common.sources import source_mask
from lookback.engines.common.stream import StreamNotifier
from lookback.engines.transformers.attention.tap import Unread, reading
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.decoding.prefix import Prefix
from lookback.engines.transformers.decoding.prefix_cache import PrefixCache
from lookback.engines.transformers.decoding.session import ModelSession
from lookback.engines.transformers.decoding.source_attention import knockout, look
from lookback.engines.transformers.support import end_token_ids, is_checked, suggest_check
from lookback.errors import check_whole
from lookback.families import family_of, video_token_id
from lookback.signals import WRITING, Asked, Candidate, Candidates
from lookback.steering.search import Search

if TYPE_CHECKING:
    from lookback.conversations import SourceLike
    from lookback.engines.common.check_report import CheckReport
    from lookback.engines.common.options import Response
    from lookback.looks.look import Look

Inputs = dict[str, Any]
PACKAGES = ("torch", "transformers", "tokenizers")


class TransformersEngine(Engine):
    """A transformers LVLM with its processor. Made by `lookback.load`.

    Calls from several threads take turns, step by step, first come first served; what each returns
    is what it returns alone. Between calls the model is as it was given: it can be used for
    anything else.

    Attributes:
        model: the transformers model.
        processor: its processor.
        name: where it came from.
        family: its row in `lookback.families`.
        decoder: the passes over the model.
        prompter: makes prompts and spells responses.
        lock: held while the engine uses the model.
        prefixes: the prompts that `keep_prefixes` keeps; None if it keeps none.
    """

    abilities: frozenset[Ability] = frozenset(ABILITIES)

    def __init__(
        self,
        model: PreTrainedModel,
        processor: Any,
        *,
        name: str | None = None,
        revision: str | None = None,
        prompt: str | None = None,
    ) -> None:
        self.decoder = Decoder(model)
        self.model = model
        self.processor = processor
        self.name = name or model.name_or_path or type(model).__name__
        self.family = family_of(model.config)
        self._revision = revision
        self.prompter = Prompter(
            processor, self.family, self.decoder.image_token, video_token_id(model.config), prompt
        )
        self.prompter.check_can_ask()
        self.prompter.check_fits(model)
        self.end_tokens = end_token_ids(model)
        self.lock = lock_for(model)
        self.prefixes: PrefixCache | None = None

    def __repr__(self) -> str:
        return f"TransformersEngine({self.name!r}, {self.family.name}, {self.model.device})"

    def identity(self) -> Identity:
        return Identity(
            engine="transformers",
            model=self.name,
            model_class=type(self.model).__name__,
            revision=self._revision,
            weights=fingerprint(Path(self.model.name_or_path)),
            processor=type(self.processor).__name__,
            dtype=str(self.model.dtype).removeprefix("torch."),
            device=self.model.device.type,
            versions={package: version(package) for package in PACKAGES},
        )

    def keep_prefixes(self, most: int, limit: int = PREFIX_BYTES) -> PrefixCache:
        check_whole("most", most, 0)
        check_whole("limit", limit, 0)
        media = list(self.prompter.media_tokens.values())
        prefixes = PrefixCache(self.decoder, media, most, limit)
        with self.lock:
            self.prefixes = prefixes if most else None
        return prefixes

    def inputs(
        self, conversation: Conversation, source: SourceLike = None
    ) -> tuple[Inputs, Tensor]:
        """Return what the model takes, and which of the prompt's tokens are the source, (P,)."""
        conversation.source(source)  # a source that is not there is an error before images are read
        inputs = self.prompter.inputs(
            [conversation], [self.prompter.text(conversation)], self.model
        )
        ids = inputs["input_ids"][0].tolist()
        return inputs, source_mask(self.prompter, conversation, ids, source)

    def _sample(self, request: SampleRequest) -> Candidates:
        # One pass for the prompt, which all candidates share; forks copy their own tokens' keys.
        options, record, steering = request.options, request.record, request.steering
        check_top(record.top_log_probs, self.decoder.vocab)
        with self.lock:
            inputs, mask = self.inputs(request.conversation, request.source)
            prompt_ids = inputs["input_ids"][0].tolist()
            stops = StopTexts(self.prompter, prompt_ids, options.stop)

            def complete(continuation: Continuation) -> Continuation:
                return stops.cut(continuation if record.keep_end else continuation.without_end())

            def candidate(i: int, continuation: Continuation) -> Candidate:
                writing = continuation.finish == WRITING
                shown = stops.hold(continuation) if writing else complete(continuation)
                return make_candidate(self.prompter, prompt_ids, i, shown)

            listen = record.listen
            notifier = None if listen is None else StreamNotifier(listen, candidate)
            drawn = self.decoder.sample(
                self._prefill(inputs, mask),
                options.n,
                temperature=options.temperature,
                top_p=options.top_p,
                top_k=options.top_k,
                max_new_tokens=options.max_new_tokens,
                seed=options.seed,
                end_tokens=self.end_tokens,
                stopped=stops.reached if options.stop else None,
                progress=record.progress,
                by_layer=record.by_layer,
                steering=steering,
                complete=complete,
                top=record.top_log_probs,
                notifier=notifier,
            )
            sampling = asdict(options)
            if steering is not None:
                sampling[steering.kind] = steering.to_json()
                sampling["tokens_drawn"] = tokens_drawn(drawn)
            continuations = [complete(continuation) for continuation in drawn]
            if isinstance(steering, Search):
                continuations = without_repeated(continuations)
            candidates = self._candidates(request, prompt_ids, continuations, sampling=sampling)
        if notifier is not None:
            notifier.finish(candidates.items)
        return candidates

    _search = _sample

    def _score(self, request: ScoreRequest) -> Candidates:
        # One pass for the prompt, one for all responses.
        record = request.record

        def work(inputs: Inputs, mask: Tensor, ids: list[list[int]]) -> list[Continuation]:
            if record.keep_end:
                ids = [with_end(self.prompter, tokens, self.end_tokens) for tokens in ids]
            prefix = self._prefill(inputs, mask)
            return self.decoder.score(prefix, ids, record.progress, by_layer=record.by_layer)

        return self._read(request, work)

    def _knockout(self, request: KnockoutRequest) -> Candidates:
        # One pass for the prompt, one over the responses to see what they look at, one with that
        # hidden as keys in every layer; for all rows, the prompt's pass again for each response.
        layers = self._vauq_layers(request.layers)

        def work(inputs: Inputs, mask: Tensor, ids: list[list[int]]) -> list[Continuation]:
            if not mask.any():
                raise ValueError("there is no image, so there are no vision tokens to hide")

            def prefill_hidden(hidden: Tensor) -> Prefix:
                return self.decoder.prefill(inputs, mask, hidden=hidden)

            prefix = self._prefill(inputs, mask)
            again = prefill_hidden if request.rows == "all" else None
            return knockout(
                self.decoder, prefix, ids, layers, request.share, request.progress, again
            )

        return self._read(request, work)

    def _read(
        self,
        request: ScoreRequest | KnockoutRequest,
        work: Callable[[Inputs, Tensor, list[list[int]]], list[Continuation]],
    ) -> Candidates:
        """Return candidates of what `work` makes of a prompt, its source and responses' ids."""
        responses = request.responses
        with self.lock:
            inputs, mask = self.inputs(request.conversation, request.source)
            prompt_ids = inputs["input_ids"][0].tolist()
            ids = [self._response_ids(prompt_ids, i, one) for i, one in enumerate(responses)]
            continuations = work(inputs, mask, ids)
            texts = [one if isinstance(one, str) else None for one in responses]
            return self._candidates(request, prompt_ids, continuations, texts)

    def _look(self, request: LookRequest) -> Look:
        # One pass for the prompt and one for the response; for a baseline the same again.
        from lookback.engines.transformers.layouts import pictures
        from lookback.looks.look import Look

        conversation, source, response = request.conversation, request.source, request.response
        every = (0, self.decoder.layers)
        layers = self._check_layers(every if request.layers is None else request.layers)
        with self.lock:
            if not conversation.source(source):
                raise SourceError('source = "none": there is nothing that a response could look at')
            if request.relative_to is not None:
                _check_kept(conversation, source)
            inputs, mask = self.inputs(conversation, source)
            prompt_ids = inputs["input_ids"][0].tolist()
            ids = self._response_ids(prompt_ids, 0, response)
            shown = pictures(self.prompter, conversation, inputs, mask, self.model.config)
            passes = 1 if request.relative_to is None else 2
            progress = _part_of(request.progress, 0, passes * len(ids))
            weights = look(self.decoder, inputs, mask, ids, layers, progress)
            baseline = None
            if request.relative_to is not None:
                other = conversation.with_question(request.relative_to)
                progress = _part_of(request.progress, len(ids), passes * len(ids))
                read = look(self.decoder, *self.inputs(other, source), ids, layers, progress)
                baseline = read.cpu().numpy()
            suggest_check(self.model, self.name)
            spelled = response if isinstance(response, str) else None
            return Look(
                text=self.prompter.decode(prompt_ids, ids) if spelled is None else spelled,
                token_ids=np.array(ids),
                tokens=tuple(self.prompter.pieces(prompt_ids, ids)),
                weights=weights.cpu().numpy(),
                pictures=shown,
                layers=layers,
                baseline=baseline,
            )

    def _generate(self, request: GenerateRequest) -> list[str]:
        # One batch, padded on the left.
        options, conversations = request.options, request.conversations
        settings: dict[str, Any] = {"do_sample": False}
        if options.temperature > 0:
            settings = {"do_sample": True, "top_p": options.top_p, "top_k": 0}
            settings["temperature"] = options.temperature
        settings["max_new_tokens"] = options.max_new_tokens
        with self.lock:
            texts = [self.prompter.text(conversation) for conversation in conversations]
            inputs = self.prompter.inputs(conversations, texts, self.model)
            out = plain_generate(self.model, inputs, options.seed, **settings)
        new = out[:, inputs["input_ids"].shape[1] :]
        answers: list[str] = self.prompter.tokenizer.batch_decode(new, skip_special_tokens=True)
        return [answer.strip() for answer in answers]

    def _check(self, progress: Progress | None) -> CheckReport:
        # Against the model's own step-by-step decoding, with eager maps.
        from lookback.engines.transformers.check import check

        is_checked(self.model)
        return check(self, progress)

    def _vauq_layers(self, layers: tuple[int, int] | None) -> tuple[int, int]:
        depth = self.decoder.layers
        if layers is None and self.family.vauq_layers is None:
            layers = depth // 4, depth - depth // 4
            warnings.warn(
                f"no VAUQ layers are known for {self.family.name}: taking the middle half, "
                f"{layers[0]}-{layers[1]} of {depth}",
                stacklevel=4,
            )
        return self._check_layers(layers or self.family.vauq_layers or (0, 0))

    def _check_layers(self, layers: tuple[int, int]) -> tuple[int, int]:
        depth = self.decoder.layers
        try:
            first, last = (index(layer) for layer in layers if not isinstance(layer, bool))
        except (TypeError, ValueError):
            raise ValueError(
                f"layers = {layers!r:.60}: the first and the end (exclusive), e.g. (0, {depth})"
            ) from None
        if not 0 <= first < last <= depth:
            raise ValueError(
                f"layers {first}-{last} (end exclusive): this model has {depth} attention layers; "
                "say which to read, e.g. layers=(0, 2)"
            )
        return first, last

    def _prefill(self, inputs: Inputs, mask: Tensor) -> Prefix:
        cache = self.decoder if self.prefixes is None else self.prefixes
        return cache.prefill(inputs, mask)

    def _response_ids(self, prompt_ids: list[int], i: int, response: Response) -> list[int]:
        return response_ids(self.prompter, self.decoder.vocab, prompt_ids, i, response)

    def _candidates(
        self,
        request: SampleRequest | ScoreRequest | KnockoutRequest,
        prompt_ids: list[int],
        continuations: list[Continuation],
        texts: Sequence[str | None] | None = None,
        sampling: dict[str, Any] | None = None,
    ) -> Candidates:
        suggest_check(self.model, self.name)
        return make_candidates(
            Asked(self, request.conversation),
            self.prompter,
            request.source,
            prompt_ids,
            continuations,
            texts,
            sampling,
        )


def _check_kept(conversation: Conversation, source: SourceLike) -> None:
    """Raise SourceError if the source has text of the question, which `relative_to` replaces."""
    texts = len(conversation.parts("text"))
    own = sum(part.kind == "text" for part in conversation.turns[-1].parts)
    if any(number >= texts - own for number in conversation.source(source).texts):
        raise SourceError(
            "relative_to asks something else about the same source, but the question's own text is "
            "part of the source"
        )


def _part_of(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Report one of several passes as a part of all of them."""
    return None if progress is None else lambda done, _: progress(before + done, total)


def plain_generate(
    model: PreTrainedModel, inputs: Mapping[str, Any], seed: int, **settings: Any
) -> Tensor:
    """Return what the model's own `generate` makes of a batch of prompts, with its own random
    numbers; other threads may use the model between its steps."""
    settings |= alone_settings(model.generate)
    generator = _SeededGenerator(seed)
    session = ModelSession(model, around=generator.active)
    with reading(Unread()), torch.no_grad(), session:
        if "stopping_criteria" in inspect.signature(model.generate).parameters:
            settings["stopping_criteria"] = StoppingCriteriaList([_YieldTurn(session)])
        out: Tensor = model.generate(**inputs, **settings)
    return out


class _YieldTurn(StoppingCriteria):
    """Never stops, but lets others use the model after each step."""

    def __init__(self, session: ModelSession) -> None:
        self._session = session

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        self._session.yield_turn()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


class _SeededGenerator:
    """Random numbers from a seed instead of torch's global ones, continued where they were."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._state: tuple[Tensor, list[Tensor]] | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Draw from these inside the block; then torch's global ones are as they were."""
        with torch.random.fork_rng():
            if self._state is None:
                torch.manual_seed(self._seed)
            else:
                torch.random.set_rng_state(self._state[0])
                if self._state[1]:
                    torch.cuda.set_rng_state_all(self._state[1])
            try:
                yield
            finally:
                on_cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
                self._state = torch.random.get_rng_state(), on_cuda

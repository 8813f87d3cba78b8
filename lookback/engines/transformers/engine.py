"""The engine for models of the transformers library: conversations in, candidates out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from lookback.conversations import Conversation
from lookback.engines import ABILITIES, Ability, Engine, Identity, check_rows, check_sampling
from lookback.engines.common.continuations import (
    Continuation,
    make_candidates,
    response_ids,
    with_end,
)
from lookback.engines.common.fair_lock import lock_for
from lookback.engines.common.model_files import fingerprint
from lookback.engines.common.options import Progress, Wish, check_responses, check_top, draw_of
from lookback.engines.common.prompts import Prompter
from lookback.engines.common.sources import source_mask
from lookback.engines.transformers.answering import answer
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.decoding.prefix import Prefix
from lookback.engines.transformers.decoding.prefix_cache import BYTES, Prefixes
from lookback.engines.transformers.drawing import draw_candidates
from lookback.engines.transformers.support import end_token_ids, is_checked, suggest_check
from lookback.errors import check_flag, check_share, check_texts, check_whole
from lookback.families import family_of, video_token_id
from lookback.signals import Candidate, Candidates
from lookback.steering.pruning import Prune, pruning_of
from lookback.steering.search import Search

if TYPE_CHECKING:
    from lookback.conversations import Images, Messages, SourceLike
    from lookback.engines import Rows
    from lookback.engines.common.check_report import CheckReport
    from lookback.engines.common.options import Response
    from lookback.engines.common.stream import Listener
    from lookback.io.videos import VideoLike
    from lookback.looks.look import Look
    from lookback.steering import Watch

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
        self._decoder = Decoder(model)
        self.model = model
        self.processor = processor
        self.name = name or model.name_or_path or type(model).__name__
        self.family = family_of(model.config)
        self._revision = revision
        self._prompter = Prompter(
            processor, self.family, self._decoder.image_token, video_token_id(model.config), prompt
        )
        self._prompter.check_can_ask()
        self._prompter.check_fits(model)
        self.end_tokens = end_token_ids(model)
        self._lock = lock_for(model)
        self._prefixes: Prefixes | None = None

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
        # One pass for the prompt, one for all responses.
        given = check_responses(responses)
        check_flag("keep_end", keep_end)
        check_flag("by_layer", by_layer)

        def work(inputs: Inputs, mask: torch.Tensor, ids: list[list[int]]) -> list[Continuation]:
            if keep_end:
                ids = [with_end(self._prompter, one, self.end_tokens) for one in ids]
            prefix = self._prefill(inputs, mask)
            return self._decoder.score(prefix, ids, progress, by_layer=by_layer)

        conversation = Conversation.of(image, question, messages, video)
        return self._given(conversation, source, given, work)

    def knockout(
        self,
        image: Images = None,
        question: str | None = None,
        responses: Sequence[Response] = (),
        *,
        messages: Messages | None = None,
        video: VideoLike | None = None,
        source: SourceLike = None,
        layers: tuple[int, int] | None = None,
        share: float | None = None,
        rows: Rows = "response",
        progress: Progress | None = None,
    ) -> Candidates:
        # One pass for the prompt, one over the responses to see what they look at, one with that
        # hidden as keys in every layer; for all rows, the prompt's pass again for each response.
        check_rows(rows)
        given = check_responses(responses)
        share = self.family.vauq_k if share is None else share
        check_share("share", share)
        chosen = self._vauq_layers(layers)

        def work(inputs: Inputs, mask: torch.Tensor, ids: list[list[int]]) -> list[Continuation]:
            if not mask.any():
                raise ValueError("there is no image, so there are no vision tokens to hide")

            def again(hidden: torch.Tensor) -> Prefix:
                return self._decoder.prefill(inputs, mask, hidden=hidden)

            prefix = self._prefill(inputs, mask)
            anew = again if rows == "all" else None
            return self._decoder.knockout(prefix, ids, chosen, share, progress, anew)

        conversation = Conversation.of(image, question, messages, video)
        return self._given(conversation, source, given, work)

    def look(
        self,
        image: Images = None,
        question: str | None = None,
        response: Response = "",
        *,
        messages: Messages | None = None,
        video: VideoLike | None = None,
        source: SourceLike = None,
        layers: tuple[int, int] | None = None,
        relative_to: str | None = None,
        progress: Progress | None = None,
    ) -> Look:
        # One pass for the prompt and one for the response.
        from lookback.engines.transformers.looking import look

        conversation = Conversation.of(image, question, messages, video)
        chosen = self._check_layers((0, self._decoder.layers) if layers is None else layers)
        with self._lock:
            return look(self, conversation, response, source, chosen, relative_to, progress)

    def _given(
        self,
        conversation: Conversation,
        source: SourceLike,
        given: Sequence[Response],
        work: Callable[[Inputs, torch.Tensor, list[list[int]]], list[Continuation]],
    ) -> Candidates:
        """Candidates of what `work` makes of a prompt, its source and given responses' ids."""
        with self._lock:
            inputs, mask = self._inputs(conversation, source)
            prompt_ids = inputs["input_ids"][0].tolist()
            ids = [self._response_ids(prompt_ids, i, one) for i, one in enumerate(given)]
            found = work(inputs, mask, ids)
            texts = [one if isinstance(one, str) else None for one in given]
            return self._candidates(conversation, source, prompt_ids, found, texts)

    def _vauq_layers(self, layers: tuple[int, int] | None) -> tuple[int, int]:
        depth = self._decoder.layers
        if layers is None and self.family.vauq_layers is None:
            layers = depth // 4, depth - depth // 4
            warnings.warn(
                f"no VAUQ layers are known for {self.family.name}: taking the middle half, "
                f"{layers[0]}-{layers[1]} of {depth}",
                stacklevel=3,
            )
        return self._check_layers(layers or self.family.vauq_layers or (0, 0))

    def _check_layers(self, layers: tuple[int, int]) -> tuple[int, int]:
        depth = self._decoder.layers
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
        # One pass for the prompt, which all candidates share.
        draw = draw_of(n, temperature, top_p, top_k, max_new_tokens, stop, seed)
        rule = pruning_of(prune, n, self.family.defaults)
        conversation = Conversation.of(image, question, messages, video)
        check_top(top_log_probs, self._decoder.vocab)
        wish = Wish(keep_end, by_layer, top_log_probs, listen, progress)
        return draw_candidates(self, conversation, source, draw, rule, wish)

    def search(
        self,
        image: Images = None,
        question: str | None = None,
        width: int = 25,
        keep: int = 5,
        every: int = 16,
        *,
        messages: Messages | None = None,
        video: VideoLike | None = None,
        source: SourceLike = None,
        scorer: str = "lookback",
        settings: Mapping[str, Any] | None = None,
        temperature: float = 1.2,
        top_p: float = 0.9,
        top_k: int | None = None,
        max_new_tokens: int = 256,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        keep_end: bool = False,
        by_layer: bool = False,
        watch: Watch | None = None,
        progress: Progress | None = None,
    ) -> Candidates:
        # Forks share the prompt, and copy their own tokens' keys.
        draw = draw_of(width, temperature, top_p, top_k, max_new_tokens, stop, seed)
        rule = Search(
            width, keep, every, scorer=scorer, settings=dict(settings or {}), watch=watch
        ).of(self.family.defaults)
        conversation = Conversation.of(image, question, messages, video)
        wish = Wish(keep_end, by_layer, progress=progress)
        return draw_candidates(self, conversation, source, draw, rule, wish)

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
        # One batch, padded on the left.
        check_sampling(1, temperature, top_p, None, max_new_tokens, seed)
        if isinstance(prompts, str) or prompts is None:
            conversations = [Conversation.of(image, prompts, messages, video)]
        elif messages is not None:
            raise TypeError("give either an image and prompts, or messages, not both")
        else:
            several = check_texts("prompts", prompts)
            conversations = [Conversation.of(image, one, video=video) for one in several]
        if not conversations:
            return []
        sampling: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": 0}
        with self._lock:
            texts = [self._prompter.text(one) for one in conversations]
            inputs = self._prompter.inputs(conversations, texts, self.model)
            out = answer(self.model, inputs, seed, max_new_tokens=max_new_tokens, **sampling)
        new = out[:, inputs["input_ids"].shape[1] :]
        answers: list[str] = self._prompter.tokenizer.batch_decode(new, skip_special_tokens=True)
        return [answer.strip() for answer in answers]

    def check(self, progress: Progress | None = None) -> CheckReport:
        # Against the model's own step-by-step decoding, with eager maps.
        from lookback.engines.transformers.check import check

        is_checked(self.model)
        return check(self, progress)

    def _inputs(
        self, conversation: Conversation, source: SourceLike = None
    ) -> tuple[dict[str, Any], torch.Tensor]:
        """What the model takes, and which of the prompt's tokens are the source, (P,)."""
        conversation.source(source)  # what is not there is said before any image is read
        inputs = self._prompter.inputs(
            [conversation], [self._prompter.text(conversation)], self.model
        )
        ids = inputs["input_ids"][0].tolist()
        return inputs, source_mask(self._prompter, conversation, ids, source)

    def keep_prefixes(self, most: int, limit: int = BYTES) -> Prefixes:
        """Keep what the last prompts left behind, for `sample`, `search`, `score` and `knockout`.

        A prompt that is asked again does not go through the model, and one with the same images and
        another question behind them only from where it differs: the first time this is compared
        with the plain way, and left if it does not agree. Nothing is kept unless this is called.
        A change of the model (weights, adapters, settings, hooks) drops what was kept; call it
        again after a few weights were set through `.data`, which may go unseen.

        Args:
            most: how many prompts; 0 keeps none from now on.
            limit: of how many bytes together.

        Returns:
            What is kept, which counts what it saves.
        """
        check_whole("most", most, 0)
        check_whole("limit", limit, 0)
        media = list(self._prompter.media_tokens.values())
        found = Prefixes(self._decoder, media, most, limit)
        with self._lock:
            self._prefixes = found if most else None
        return found

    def _prefill(self, inputs: dict[str, Any], mask: torch.Tensor) -> Prefix:
        source = self._decoder if self._prefixes is None else self._prefixes
        return source.prefill(inputs, mask)

    def _response_ids(self, prompt_ids: list[int], i: int, response: Response) -> list[int]:
        return response_ids(self._prompter, self._decoder.vocab, prompt_ids, i, response)

    def _candidates(
        self,
        conversation: Conversation,
        source: SourceLike,
        prompt_ids: list[int],
        found: list[Continuation],
        texts: Sequence[str | None] | None = None,
        sampling: dict[str, Any] | None = None,
    ) -> Candidates:
        suggest_check(self.model, self.name)
        return make_candidates(
            self, self._prompter, conversation, source, prompt_ids, found, texts, sampling
        )

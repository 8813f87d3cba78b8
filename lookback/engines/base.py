"""The contract of every engine, and what an engine can do of it.

An engine is a model that can be asked. `Engine` has the public methods: they validate what they are
given, check that the engine has the ability, and hand one frozen request (`common/options.py`) to
the engine's own `_sample`, `_score` and so on. Runs, scorers, the server and commands use nothing
but the public methods. `tests/engines/contract.py` tests every engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from lookback.conversations import Conversation
from lookback.engines.common.options import (
    GenerateRequest,
    KnockoutRequest,
    LookRequest,
    Progress,
    RecordOptions,
    Rows,
    SampleOptions,
    SampleRequest,
    ScoreRequest,
    check_one,
    check_responses,
    check_rows,
)
from lookback.errors import check_share, check_texts, check_whole
from lookback.families import Family
from lookback.signals import Candidate, Candidates
from lookback.steering.pruning import Prune, pruning_of
from lookback.steering.search import Search

if TYPE_CHECKING:
    from lookback.conversations import Images, Messages, SourceLike
    from lookback.engines.common.check_report import CheckReport
    from lookback.engines.common.options import Response
    from lookback.engines.common.stream import Listener
    from lookback.engines.dual_encoder import DualEncoder
    from lookback.io.videos import VideoLike
    from lookback.looks.look import Look
    from lookback.steering import Watch


Ability = Literal[
    "sample",
    "score",
    "knockout",
    "look",
    "generate",
    "check",
    "search",
    "by_layer",
    "prune",
    "top_log_probs",
    "listen",
]
ABILITIES: dict[Ability, str] = {
    "sample": "draw candidates",
    "score": "score given responses",
    "knockout": "hide vision tokens from a response (knock-out)",
    "look": "tell where a response looked (look)",
    "generate": "answer prompts",
    "check": "compare its numbers with slow ones (check)",
    "search": "fork the best candidates while they are written (search)",
    "by_layer": "read A_t layer by layer (by_layer)",
    "prune": "end the worst candidates while they are written (prune)",
    "top_log_probs": "keep the likeliest tokens of each step (top_log_probs)",
    "listen": "tell of candidates while they are written (listen)",
}
"""What an engine may be able to do, in words: its methods, and options of `sample` and `score`."""
Questions = Sequence[Mapping[str, Any]]
"""Arguments of `Engine.sample` by name, for each question."""
PREFIX_BYTES = 2**30
"""Memory for the keys of prompts that are kept, unless another limit is given."""


class AbilityError(ValueError):
    """Something needs what an engine cannot do; the message names both."""


@dataclass(frozen=True)
class Identity:
    """Which model answers, as far as its numbers depend on it: what a run's manifest keeps.

    Attributes:
        engine: the engine's registered name.
        model: where the model comes from: a hub id, a folder, "embedded".
        model_class: its class.
        revision: of the hub id, as far as it is known.
        weights: a fingerprint of the weights, where they lie in a folder.
        processor: the class of its processor.
        dtype: of the weights, e.g. "float32".
        device: where it runs, e.g. "cpu".
        versions: of the libraries that compute the numbers. They do not tell two models apart.
    """

    engine: str
    model: str
    model_class: str
    revision: str | None = None
    weights: str | None = None
    processor: str | None = None
    dtype: str | None = None
    device: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


class PrefixCounts(Protocol):
    """What `Engine.keep_prefixes` counts.

    Attributes:
        same: prompts that were kept already.
        continued: prompts that began as a kept one.
        new: prompts that went through the model whole.
        saved: tokens of prompts that did not go through the model.
    """

    same: int
    continued: int
    new: int
    saved: int


class Engine(ABC):
    """A model that can draw candidates, score given ones, and answer questions.

    A question is either an image and a text, or `messages`: turns of text, images and videos, in
    the chat format (`lookback.conversations`). `source` says what A_t is measured on.

    To write an engine, derive from this class, declare `name`, `family` and `abilities`, define
    `identity`, and for each ability that is a method the method of the same name with an underscore
    before it. It gets one validated request (`lookback.engines.common.options`).

    Attributes:
        name: where the model came from; candidates and runs carry it.
        family: what is known of models like it.
        abilities: what it can do.
        in_flight: how many questions to give `sample_many` at once; 1 for an engine that answers
            one after another.
        end_tokens: ids that end a response and are no part of it, as far as the engine knows any.
    """

    name: str
    family: Family
    abilities: frozenset[Ability]
    in_flight: int = 1
    end_tokens: Sequence[int] = ()

    @abstractmethod
    def identity(self) -> Identity:
        """Return which model this is."""

    def close(self) -> None:  # noqa: B027 - most engines have nothing to release
        """Release what the engine holds outside this object: vLLM's processes, for instance.

        A closed engine cannot be used again. One that is garbage-collected closes itself.
        """

    def keep_prefixes(self, most: int, limit: int = PREFIX_BYTES) -> PrefixCounts | None:
        """Keep the keys and values of the last prompts, for all methods but `look` and `generate`.

        A prompt that is asked again does not go through the model, and one with the same images and
        another question behind them only from where it differs: the first time this is compared
        with the plain way, and left if it does not agree. Nothing is kept unless this is called.
        A change of the model (weights, adapters, settings, hooks) drops what was kept; call it
        again after a few weights were set through `.data`, which may go unseen.

        Args:
            most: how many prompts; 0 keeps none from now on.
            limit: of how many bytes together.

        Returns:
            Counters of what it saves; None from an engine that has no such cache, or, as vLLM, one
            that needs no asking for.
        """
        check_whole("most", most, 0)
        check_whole("limit", limit, 0)
        return None

    def require(self, needed: Iterable[Ability], who: str) -> None:
        """Raise AbilityError, naming `who`, if the engine lacks an ability that it needs."""
        require(self, needed, who)

    def dual_encoder(self, name: str | None = None) -> DualEncoder:
        """Return the encoder of image and text that CLIPScore uses, loaded once.

        Args:
            name: a hub id, a folder, or "embedded"; by default the family's.
        """
        from lookback.engines.dual_encoder import DualEncoder

        return DualEncoder.load(self.family.clip if name is None else name)

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
        """Draw n candidates and record their signals on the way.

        The defaults are the paper's. Candidate i is fixed by (seed, i) and the settings: the first
        5 of 25 are the 5 of a smaller draw.

        Args:
            image: a path, URL, bytes, PIL image, NumPy array or tensor (uint8, height x width x 3),
                or a list of these; None for no image, which needs another source.
            question: what is asked, without any image placeholder.
            n: how many candidates.
            messages: instead of image and question: a conversation in the chat format.
            video: beside or instead of an image: a file, or frames as a list of images.
            source: what A_t is measured on; by default every vision token. See
                `lookback.conversations`.
            temperature: of the sampling; 0 takes the most likely token. Signals are untempered.
            top_p: sample from the likeliest tokens that hold this much probability together.
            top_k: sample from at most this many of the likeliest tokens.
            max_new_tokens: the longest response.
            stop: text (or texts) at which a response ends; it is not part of the response.
            seed: None draws one, which is `sampling["seed"]` of the result.
            keep_end: let the end-of-turn token be part of each response.
            by_layer: keep A_t in each attention layer too, `candidate.by_layer` of shape (T, L).
            prune: end the worst early: "half", or pairs (tokens, candidates to keep), e.g.
                [(16, 12), (32, 6)], or a `Pruning` with a scorer and settings of its own. Those
                that end have `finish="pruned"`, no score, and the signals that they got; the others
                are what they are without pruning.
            top_log_probs: keep this many of the likeliest tokens of each step with their untempered
                log-probabilities, `candidate.top`.
            listen: called while candidates are written, see `lookback.engines.common.stream`.
            progress: called with (steps done, total). What it raises, or `listen`
                does, ends the draw and is raised here.

        Raises:
            AbilityError: the engine cannot do this, or not with this option.
        """
        require(self, ["sample"], "sample()")
        self._require_options(by_layer, prune, top_log_probs, listen)
        options = SampleOptions.of(n, temperature, top_p, top_k, max_new_tokens, stop, seed)
        rule = None if prune is None else pruning_of(prune, n, self.family.defaults)
        conversation = Conversation.of(image, question, messages, video)
        record = RecordOptions(keep_end, by_layer, top_log_probs, listen, progress)
        return self._sample(SampleRequest(conversation, source, options, record, rule))

    def sample_many(
        self,
        questions: Questions,
        *,
        return_exceptions: bool = False,
        progress: Progress | None = None,
        **settings: Any,
    ) -> list[Any]:
        """Draw candidates for many questions: what `sample` returns for each, in their order.

        An engine that can have many in flight has them; others answer one after another.

        Args:
            questions: what `sample` takes for each, by name: {"image": ..., "question": ...}, or
                {"messages": ...}; and settings of its own, e.g. its `seed`.
            return_exceptions: return the error of a question in its place, and answer the others;
                else it is raised.
            progress: called with (questions done, total).
            settings: as for `sample`, of all questions.
        """
        arguments = [{**settings, **question} for question in questions]
        return self._sample_many(arguments, return_exceptions, progress)

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
        """Draw candidates, and every few tokens continue from the best: a beam of segments.

        At each checkpoint the best `keep` go on, the others that are still being written end as
        "pruned", and forks of the best, each with random numbers of its own, take the free places.
        A finished candidate stays, and competes by its full score. Candidates that say the same are
        merged. In the result a fork has `parent` and `forked_at`.

        All other arguments are those of `sample`.

        Args:
            width: how many candidates there are at a time.
            keep: how many are kept at a checkpoint; a finished one among them is not forked.
            every: the tokens from one checkpoint to the next.
            scorer: which scorer judges what was written so far: any that is arithmetic on signals.
            settings: its settings; the family's by default.
            watch: called at each checkpoint, see `lookback.steering`.
        """
        require(self, ["search"], "search()")
        self._require_options(by_layer)
        options = SampleOptions.of(width, temperature, top_p, top_k, max_new_tokens, stop, seed)
        rule = Search(
            width, keep, every, scorer=scorer, settings=dict(settings or {}), watch=watch
        ).of(self.family.defaults)
        conversation = Conversation.of(image, question, messages, video)
        record = RecordOptions(keep_end, by_layer, progress=progress)
        return self._search(SampleRequest(conversation, source, options, record, rule))

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
        """Record the signals of responses that exist already.

        All other arguments are those of `sample`.

        Args:
            responses: texts, candidates (whose token ids are taken as they are), or token ids:
                lists, arrays or tensors of whole numbers.
            progress: called with (responses done, total).
        """
        require(self, ["score"], "score()")
        self._require_options(by_layer)
        checked = check_responses(responses)
        record = RecordOptions(keep_end, by_layer, progress=progress)
        conversation = Conversation.of(image, question, messages, video)
        return self._score(ScoreRequest(conversation, source, checked, record))

    def knockout(
        self,
        image: Images = None,
        question: str | None = None,
        responses: str | Candidate | Sequence[Response] = (),
        *,
        layers: tuple[int, int] | None = None,
        share: float | None = None,
        rows: Rows = "response",
        messages: Messages | None = None,
        video: VideoLike | None = None,
        source: SourceLike = None,
        progress: Progress | None = None,
    ) -> Candidates:
        """Record responses again with the source tokens hidden that each looks at most.

        For VAUQ, where they are vision tokens. All other arguments are those of `score`.

        Args:
            layers: the decoder's attention layers that decide what is looked at, end exclusive; by
                default the family's, for families without any the middle half, with a warning.
            share: of the source tokens to hide, above 0 and at most 1; by default the family's.
            rows: from which rows to hide them: those that predict the "response", after a prompt
                that saw all, which is shared; or "all", the prompt's too, so that neither the
                question nor the other vision tokens can have read them: one more pass of the prompt
                per response. Positions stay what they are.
        """
        require(self, ["knockout"], "knockout()")
        check_rows(rows)
        checked = check_responses(responses)
        share = self.family.vauq_k if share is None else share
        check_share("share", share)
        conversation = Conversation.of(image, question, messages, video)
        return self._knockout(
            KnockoutRequest(conversation, source, checked, layers, share, rows, progress)
        )

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
        """Return where a response looked: the attention of each token on each source token.

        With all layers, what a token pays to all of them together is its A_t. All other arguments
        are those of `sample`; there must be a source.

        Args:
            response: one response: text, token ids, or a candidate.
            layers: the decoder's attention layers to read, end exclusive; by default all of them.
            relative_to: another question about the same images, e.g. "Describe the image.": the
                same tokens' attention after it is kept as `Look.baseline`.
            progress: called with (tokens done, total).
        """
        require(self, ["look"], "look()")
        checked = check_one(response)
        conversation = Conversation.of(image, question, messages, video)
        return self._look(LookRequest(conversation, source, checked, layers, relative_to, progress))

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
        """Return plain answers, without signals, to prompts about one image or to messages.

        All other arguments are those of `sample`.

        Args:
            prompts: what to ask.
            messages: instead of both: a conversation in the chat format; it has one answer.
        """
        require(self, ["generate"], "generate()")
        options = SampleOptions.of(1, temperature, top_p, None, max_new_tokens, None, seed)
        if isinstance(prompts, str) or prompts is None:
            conversations = [Conversation.of(image, prompts, messages, video)]
        elif messages is not None:
            raise TypeError("give either an image and prompts, or messages, not both")
        else:
            several = check_texts("prompts", prompts)
            conversations = [Conversation.of(image, prompt, video=video) for prompt in several]
        return self._generate(GenerateRequest(conversations, options)) if conversations else []

    def check(self, progress: Progress | None = None) -> CheckReport:
        """Validate the model on this machine: compare its signals with slow reference ones.

        Args:
            progress: called with (checks done, total).
        """
        require(self, ["check"], "check()")
        return self._check(progress)

    # What an engine defines, as far as it has the ability.

    def _sample(self, request: SampleRequest) -> Candidates:
        raise _missing(self, "sample")

    def _sample_many(
        self, questions: Questions, return_exceptions: bool, progress: Progress | None
    ) -> list[Any]:
        """Answer one after another; `questions` are arguments of `sample`."""
        results: list[Any] = []
        for arguments in questions:
            try:
                results.append(self.sample(**arguments))
            except Exception as error:
                if not return_exceptions:
                    raise
                results.append(error)
            if progress is not None:
                progress(len(results), len(questions))
        return results

    def _search(self, request: SampleRequest) -> Candidates:
        raise _missing(self, "search")

    def _score(self, request: ScoreRequest) -> Candidates:
        raise _missing(self, "score")

    def _knockout(self, request: KnockoutRequest) -> Candidates:
        raise _missing(self, "knockout")

    def _look(self, request: LookRequest) -> Look:
        raise _missing(self, "look")

    def _generate(self, request: GenerateRequest) -> list[str]:
        raise _missing(self, "generate")

    def _check(self, progress: Progress | None) -> CheckReport:
        raise _missing(self, "check")

    def _require_options(
        self, by_layer: Any, prune: Any = None, top_log_probs: Any = 0, listen: Any = None
    ) -> None:
        wanted: dict[Ability, bool] = {
            "by_layer": bool(by_layer),
            "prune": prune is not None,
            "top_log_probs": bool(top_log_probs),
            "listen": listen is not None,
        }
        for ability, is_wanted in wanted.items():
            if is_wanted:
                require(self, [ability], f"{ability}={'True' if ability == 'by_layer' else ''}")


def _missing(engine: Engine, ability: Ability) -> NotImplementedError:
    return NotImplementedError(
        f"{type(engine).__name__} has the ability {ability!r} and does not define _{ability}()"
    )


def refuse(engine: Engine, ability: Ability, who: str | None = None) -> NoReturn:
    """Raise the error that says that an engine cannot do what somebody needs.

    Raises:
        AbilityError: always.
    """
    can = [name for name in ABILITIES if name in engine.abilities and name != ability]
    raise AbilityError(
        f"{who or f'{ability}()'} needs an engine that can {ABILITIES[ability]}: {engine.name!r} "
        f"({type(engine).__name__}) cannot, it can {', '.join(can) or 'nothing'}"
    )


def require(engine: Engine, needed: Iterable[Ability], who: str) -> None:
    """Check that an engine can do what `who` needs.

    Raises:
        AbilityError: it cannot; the message names all three.
    """
    for ability in needed:
        if ability not in engine.abilities:
            refuse(engine, ability, who)


def optional_settings(engine: Engine, wanted: Mapping[Ability, Any]) -> dict[str, Any]:
    """Return the options of a command that are given, by name, if the engine has the abilities.

    Args:
        engine: the engine.
        wanted: options by the ability that each needs; None and False are not given.

    Raises:
        AbilityError: the engine lacks one; the message names the option.
    """
    given: dict[str, Any] = {}
    for ability, value in wanted.items():
        if value is not None and value is not False:
            require(engine, [ability], f"--{ability.replace('_', '-')}")
            given[ability] = value
    return given

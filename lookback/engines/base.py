"""What every engine must offer: the contract, and what it can do of it.

An engine is a model that can be asked. What it must offer is `Engine`; what it can do of it is in
`abilities`, and the rest refuses by itself if the class derives from `Engine`. Runs, scorers and
commands use nothing else. `tests/engines/contract.py` holds every engine to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, get_args, runtime_checkable

from lookback.engines.common.options import Progress
from lookback.families import Family
from lookback.signals import Candidate, Candidates

if TYPE_CHECKING:
    from lookback.conversations import Images, Messages, SourceLike
    from lookback.engines.common.check_report import CheckReport
    from lookback.engines.common.options import Response
    from lookback.engines.common.stream import Listener
    from lookback.engines.dual_encoder import DualEncoder
    from lookback.io.videos import VideoLike
    from lookback.looks.look import Look
    from lookback.steering import Watch
    from lookback.steering.pruning import Prune


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
Rows = Literal["response", "all"]
"""The rows of a pass from which a knock-out hides tokens."""
ROWS: tuple[Rows, ...] = get_args(Rows)
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
"""What an engine may be able to do, in words: its methods, and what they can be asked for."""


class UnsupportedModelError(ValueError):
    """A model whose visual lookback cannot be read; the message says why."""


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


@runtime_checkable
class Engine(Protocol):
    """A model that can draw candidates, score given ones, and answer questions.

    What is asked is either an image and a question, or `messages`: turns of text, images and
    videos, in the chat format (`lookback.conversations`). `source` says what A_t is measured on.

    Attributes:
        name: where the model came from; candidates and runs carry it.
        family: what is known of models like it.
        abilities: what it can do.
        in_flight: how many questions `sample_many` should be given at once; 1 for an engine that
            answers one after another.
        end_tokens: ids that end a response and are no part of it, as far as the engine knows any.
    """

    name: str
    family: Family
    abilities: frozenset[Ability]
    in_flight: int = 1
    end_tokens: Sequence[int] = ()

    def identity(self) -> Identity:
        """Which model this is."""
        ...

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
            top_k: and from at most so many.
            max_new_tokens: the longest response.
            stop: text (or texts) at which a response ends; it is not part of the response.
            seed: None draws one, which `sampling["seed"]` of the result tells.
            keep_end: let the end-of-turn token be part of each response.
            by_layer: keep A_t in each attention layer too, `candidate.by_layer` of shape (T, L); an
                engine without this ability refuses.
            prune: end the worst early: "half", or pairs (after so many tokens, so many go on), e.g.
                [(16, 12), (32, 6)], or a `Pruning` with a scorer and settings of its own. Those
                that end have `finish="pruned"`, no score, and the signals that they got; the others
                are what they are without pruning. An engine without this ability refuses.
            top_log_probs: keep the so many likeliest tokens of each step with their untempered
                log-probabilities, `candidate.top`; an engine without this ability refuses.
            listen: called while candidates are written, see `lookback.engines.common.stream`;
                an engine without this ability refuses.
            progress: called with (steps done, of at most so many). What it raises, or `listen`
                does, ends the draw and is raised here.
        """
        refuse(self, "sample")

    def sample_many(
        self,
        questions: Sequence[Mapping[str, Any]],
        *,
        return_exceptions: bool = False,
        progress: Progress | None = None,
        **settings: Any,
    ) -> list[Any]:
        """Draw candidates for many questions: what `sample` gives for each, in their order.

        An engine that can have many in flight has them; others answer one after another, as here.

        Args:
            questions: what `sample` takes for each, by name: {"image": ..., "question": ...}, or
                {"messages": ...}; and settings of its own, e.g. its `seed`.
            return_exceptions: what goes wrong with one question stands in its place, and the others
                are answered; else it is raised.
            progress: called with (questions done, of so many).
            settings: as for `sample`, of all questions.
        """
        found: list[Any] = []
        for one in questions:
            try:
                found.append(self.sample(**{**settings, **one}))
            except Exception as error:
                if not return_exceptions:
                    raise
                found.append(error)
            if progress is not None:
                progress(len(found), len(questions))
        return found

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
        """Draw candidates, and every few tokens go on from the best: a beam of segments.

        At each checkpoint the best `keep` go on, the others that are still being written end as
        "pruned", and forks of the best, each with random numbers of its own, take the free places.
        A finished candidate stays, and competes by its full score. Candidates that say the same are
        merged. The result tells the tree: a fork has `parent` and `forked_at`.

        Args:
            image: as for `sample`.
            question: as for `sample`.
            width: how many candidates there are at a time.
            keep: how many are kept at a checkpoint; a finished one among them is not forked.
            every: the tokens from one checkpoint to the next.
            messages: as for `sample`.
            video: as for `sample`.
            source: as for `sample`.
            scorer: who judges what was written so far: any that is arithmetic on signals.
            settings: its settings; the family's by default.
            temperature: as for `sample`.
            top_p: as for `sample`.
            top_k: as for `sample`.
            max_new_tokens: as for `sample`.
            stop: as for `sample`.
            seed: as for `sample`.
            keep_end: as for `sample`.
            by_layer: as for `sample`.
            watch: called at each checkpoint, see `lookback.steering`.
            progress: called with (steps done, of at most so many).
        """
        refuse(self, "search")

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

        Args:
            image: a path, URL, bytes, PIL image, NumPy array or tensor (uint8, height x width x 3),
                or a list of these; None for no image, which needs another source.
            question: what was asked, without any image placeholder.
            responses: texts, candidates (whose token ids are taken as they are), or token ids:
                lists, arrays or tensors of whole numbers.
            messages: instead of image and question: a conversation in the chat format.
            video: beside or instead of an image: a file, or frames as a list of images.
            source: what A_t is measured on; by default every vision token. See
                `lookback.conversations`.
            keep_end: let the end-of-turn token be part of each response.
            by_layer: keep A_t in each attention layer too, `candidate.by_layer` of shape (T, L); an
                engine without this ability refuses.
            progress: called with (responses done, of so many).
        """
        refuse(self, "score")

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
        """Record them again with the source tokens hidden that each response looks at most.

        For VAUQ, where they are vision tokens.

        Args:
            image: as for `score`.
            question: as for `score`.
            responses: as for `score`.
            messages: as for `score`.
            video: as for `score`.
            source: as for `score`.
            layers: the decoder's attention layers that tell what is looked at, end exclusive; by
                default the family's, for families without any the middle half, with a warning.
            share: of the source tokens to hide, above 0 and at most 1; by default the family's.
            rows: from which rows to hide them: those that predict the "response", after a prompt
                that saw all, which is shared; or "all", the prompt's too, so that neither the
                question nor the other vision tokens can have read them: one more pass of the prompt
                per response. Positions stay what they are.
            progress: as for `score`.
        """
        refuse(self, "knockout")

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
        """Where a response looked: the attention of each of its tokens on each source token.

        With all layers, what a token pays to all of them together is its A_t.

        Args:
            image: as for `score`.
            question: as for `score`.
            response: one response: text, token ids, or a candidate.
            messages: as for `score`.
            video: as for `score`.
            source: as for `score`; there must be one.
            layers: the decoder's attention layers to read, end exclusive; by default all of them.
            relative_to: another question about the same images, e.g. "Describe the image.": the
                same tokens' attention after it is kept as `Look.baseline`.
            progress: called with (tokens done, of so many).
        """
        refuse(self, "look")

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
        """Plain answers, without signals: to several prompts about one image, or to messages.

        Args:
            image: as for `sample`; None for no image.
            prompts: what to ask.
            messages: instead of both: a conversation in the chat format; it has one answer.
            video: beside or instead of an image: a file, or frames as a list of images.
            max_new_tokens: the longest answer.
            temperature: of the sampling; 0 takes the most likely token.
            top_p: sample from the likeliest tokens that hold this much probability together.
            seed: of the sampling.
        """
        refuse(self, "generate")

    def check(self, progress: Progress | None = None) -> CheckReport:
        """Is all this true for this model, here? Compare it with the model's own slow way.

        Args:
            progress: called with (checks done, of so many).
        """
        refuse(self, "check")

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


def check_rows(rows: str) -> None:
    """Check from which rows tokens are to be hidden.

    Raises:
        ValueError: it is no such word.
    """
    if rows not in ROWS:
        raise ValueError(f"rows = {rows!r:.60}: hide from 'response' or from 'all' of them")


def refuse(engine: Engine, ability: Ability, who: str | None = None) -> NoReturn:
    """Say that an engine cannot do what somebody needs.

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
    """What a command gives `sample` or `score` beside what every engine knows: only what is wanted.

    So an engine that does not know of such a setting can do all else.

    Args:
        engine: is to be asked.
        wanted: settings by the ability that each needs; None and False are not wanted.

    Raises:
        AbilityError: one is wanted that the engine does not know; it names the option.
    """
    given: dict[str, Any] = {}
    for ability, value in wanted.items():
        if value is not None and value is not False:
            require(engine, [ability], f"--{ability.replace('_', '-')}")
            given[ability] = value
    return given

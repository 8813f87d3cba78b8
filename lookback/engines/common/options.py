"""Options of sampling and scoring, their validation, and the requests that engines are given."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from lookback.errors import check_flag, check_texts, check_whole, is_number
from lookback.io.json_values import check_text
from lookback.signals import MOST_NEW_TOKENS, Candidate

if TYPE_CHECKING:
    from lookback.conversations import Conversation, SourceLike
    from lookback.engines.common.stream import Listener
    from lookback.steering.pruning import Pruning
    from lookback.steering.search import Search

    Response = str | Sequence[int] | Candidate

Progress = Callable[[int, int], None]
"""Called with (done, total) while something long runs."""
Rows = Literal["response", "all"]
"""The rows of a pass from which a knock-out hides tokens."""
ROWS: tuple[Rows, ...] = get_args(Rows)

MOST_CANDIDATES = 10_000
MOST_TOKENS = 2**26
"""Of all candidates together: a random number is drawn for each beforehand, half a gigabyte."""
MOST_TOP = 1000
"""Likeliest tokens of each step; their log-probabilities are kept for every step that may come."""
SEEDS = 2**64
"""A stream of random numbers has a key of 64 bits."""
TEMPERATURES = (1e-6, 1e6)
"""Beyond these, logits divided by it may be infinite or all alike in float32."""


@dataclass(frozen=True)
class SampleOptions:
    """How candidates are drawn, validated, as `Candidates.sampling` keeps it."""

    n: int
    temperature: float
    top_p: float
    top_k: int | None
    max_new_tokens: int
    stop: list[str]
    seed: int

    @classmethod
    def of(
        cls,
        n: int,
        temperature: float,
        top_p: float,
        top_k: int | None,
        max_new_tokens: int,
        stop: str | Sequence[str] | None,
        seed: int | None,
    ) -> SampleOptions:
        """Validate the arguments of `Engine.sample`, and draw a seed if there is none.

        Raises:
            ValueError: one is out of range.
        """
        check_sampling(n, temperature, top_p, top_k, max_new_tokens, seed)
        stops = [] if stop is None else check_texts("stop", stop)
        for text in stops:
            check_text(text, "stop")
        seed = secrets.randbits(32) if seed is None else seed
        return cls(
            n=_to_python(n),
            temperature=_to_python(temperature),
            top_p=_to_python(top_p),
            top_k=_to_python(top_k),
            max_new_tokens=_to_python(max_new_tokens),
            stop=stops,
            seed=_to_python(seed),
        )


@dataclass(frozen=True)
class RecordOptions:
    """What to record of candidates, and whom to call while they are written or scored."""

    keep_end: bool = False
    by_layer: bool = False
    top_log_probs: int = 0
    listen: Listener | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_flag("keep_end", self.keep_end)
        check_flag("by_layer", self.by_layer)
        check_top(self.top_log_probs)


@dataclass(frozen=True)
class SampleRequest:
    """What `Engine._sample` and `Engine._search` are given.

    Attributes:
        conversation: the question.
        source: what A_t is measured on, as the caller named it.
        options: how candidates are drawn.
        record: what is recorded of them.
        steering: ends or forks some of them: for `_sample` a `Pruning` or None, for `_search` a
            `Search`.
    """

    conversation: Conversation
    source: SourceLike
    options: SampleOptions
    record: RecordOptions
    steering: Pruning | Search | None = None


@dataclass(frozen=True)
class ScoreRequest:
    """What `Engine._score` is given: `responses` are texts, candidates or lists of token ids."""

    conversation: Conversation
    source: SourceLike
    responses: list[Response]
    record: RecordOptions


@dataclass(frozen=True)
class KnockoutRequest:
    """What `Engine._knockout` is given; `layers` None stands for the family's."""

    conversation: Conversation
    source: SourceLike
    responses: list[Response]
    layers: tuple[int, int] | None
    share: float
    rows: Rows
    progress: Progress | None


@dataclass(frozen=True)
class LookRequest:
    """What `Engine._look` is given; `layers` None stands for all of them."""

    conversation: Conversation
    source: SourceLike
    response: Response
    layers: tuple[int, int] | None
    relative_to: str | None
    progress: Progress | None


@dataclass(frozen=True)
class GenerateRequest:
    """What `Engine._generate` is given: each conversation wants one answer (`options.n` is 1)."""

    conversations: list[Conversation]
    options: SampleOptions


def _to_python(value: Any) -> Any:
    """Return a number of NumPy's as Python's own: JSON, in which results are kept, has no other."""
    return value.item() if isinstance(value, np.generic) else value


def check_top(count: int, vocab: int = MOST_TOP) -> None:
    """Check how many of the likeliest tokens of each step are to be kept.

    Raises:
        ValueError: fewer than none, or more than there are or than `MOST_TOP`.
    """
    check_whole("top_log_probs", count, 0, min(vocab, MOST_TOP))


def check_rows(rows: str) -> None:
    """Check from which rows tokens are to be hidden.

    Raises:
        ValueError: it is no such word.
    """
    if rows not in ROWS:
        raise ValueError(f"rows = {rows!r:.60}: hide from 'response' or from 'all' of them")


def check_sampling(
    n: int,
    temperature: float,
    top_p: float,
    top_k: int | None,
    max_new_tokens: int,
    seed: int | None = None,
) -> None:
    """Check the settings that every engine draws with.

    `seed` None stands for one that is still to be drawn.

    Raises:
        ValueError: one is out of range; the message names it.
    """
    check_whole("n", n, 1, MOST_CANDIDATES)
    check_whole("max_new_tokens", max_new_tokens, 1, MOST_NEW_TOKENS)
    if n * max_new_tokens > MOST_TOKENS:
        raise ValueError(
            f"n = {n}, max_new_tokens = {max_new_tokens}: together they must be at most "
            f"{MOST_TOKENS} tokens"
        )
    if top_k is not None:
        check_whole("top_k", top_k, 1)
    if seed is not None:
        check_whole("seed", seed, 0, SEEDS - 1)
    lowest, highest = TEMPERATURES
    if not is_number(temperature) or not (temperature == 0 or lowest <= temperature <= highest):
        raise ValueError(
            f"temperature = {temperature}: must be 0, which is greedy, or from {lowest:g} to "
            f"{highest:g}"
        )
    if not is_number(top_p) or not 0 < top_p <= 1:
        raise ValueError(f"top_p = {top_p}: must be above 0 and at most 1")


def check_responses(responses: Any) -> list[Response]:
    """Return responses as a list of texts, candidates and lists of token ids.

    Args:
        responses: one text or candidate; or several responses, each of which may also be token
            ids: a list, or a one-dimensional array or tensor, of whole numbers.

    Raises:
        ValueError: there are none, or one is something else.
    """
    if isinstance(responses, (str, Candidate)):
        return [responses]
    several = _from_array(responses)
    if isinstance(several, (bytes, bytearray, Mapping, Set)) or not isinstance(several, Iterable):
        raise ValueError(f"responses = {several!r:.60}: must be a text, a candidate, or a list")
    checked = [_check(f"response {i}", response) for i, response in enumerate(several)]
    if not checked:
        raise ValueError("no responses given: there is nothing to score")
    return checked


def check_one(response: Any) -> Response:
    """Return one response as text, a candidate or a list of token ids.

    Raises:
        ValueError: these are several, or it is something else.
    """
    response = _from_array(response)
    several = isinstance(response, Sequence) and not isinstance(response, str)
    if several and any(isinstance(item, (str, list, Candidate)) for item in response):
        raise ValueError(
            f"look() takes one response, got {len(response)}: call it once for each of them"
        )
    return _check("the response", response)


def check_ids(where: str, ids: Any) -> list[int]:
    """Return token ids as whole numbers of Python's.

    Raises:
        ValueError: they are something else; it begins with `where`.
    """
    ids = _from_array(ids)
    if not isinstance(ids, Sequence) or isinstance(ids, (str, bytes, bytearray)):
        hint = ", e.g. [[1, 2]] for one of two tokens" if isinstance(ids, int) else ""
        raise ValueError(
            f"{where} is {ids!r:.60}: must be text, a candidate, or a list of token ids{hint}"
        )
    tokens = [_from_array(token) for token in ids]
    for token in tokens:
        if not isinstance(token, int) or isinstance(token, bool):
            raise ValueError(f"{where}: token id {token!r:.60} is not a whole number")
    return tokens


def _check(where: str, response: Any) -> Response:
    return response if isinstance(response, (str, Candidate)) else check_ids(where, response)


def _from_array(value: Any) -> Any:
    """Return an array or tensor, or a number of one, as Python's own lists and numbers."""
    return value.tolist() if hasattr(value, "tolist") else value

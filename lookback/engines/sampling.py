"""The settings that candidates are drawn with: one check for commands, runs and every engine."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.plain import check_text

if TYPE_CHECKING:
    from lookback.engines.contract import Progress
    from lookback.engines.listening import Listener

MOST_CANDIDATES = 10_000
MOST_NEW_TOKENS = 2**17
MOST_TOKENS = 2**26
"""Of all candidates together: a random number is drawn for each beforehand, half a gigabyte."""
MOST_TOP = 1000
"""Likeliest tokens of each step; their log-probabilities are kept for every step that may come."""
SEEDS = 2**64
"""A stream of random numbers has a key of 64 bits."""
TEMPERATURES = (1e-6, 1e6)
"""Beyond these, logits divided by it may be infinite or all alike in float32."""


@dataclass(frozen=True)
class Draw:
    """How candidates are drawn, as `Candidates.sampling` keeps it."""

    n: int
    temperature: float
    top_p: float
    top_k: int | None
    max_new_tokens: int
    stop: list[str]
    seed: int


@dataclass(frozen=True)
class Wish:
    """What is to be kept and told of a draw, as `Engine.sample` takes it."""

    keep_end: bool = False
    by_layer: bool = False
    top_log_probs: int = 0
    listen: Listener | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_flag("keep_end", self.keep_end)
        check_flag("by_layer", self.by_layer)


def draw_of(
    n: int,
    temperature: float,
    top_p: float,
    top_k: int | None,
    max_new_tokens: int,
    stop: str | Sequence[str] | None,
    seed: int | None,
) -> Draw:
    """How candidates are drawn with settings as `Engine.sample` takes them.

    Raises:
        ValueError: one is out of range.
    """
    check_sampling(n, temperature, top_p, top_k, max_new_tokens, seed)
    stops = [] if stop is None else check_texts("stop", stop)
    for text in stops:
        check_text(text, "stop")
    seed = secrets.randbits(32) if seed is None else seed
    return Draw(
        _to_python(n),
        _to_python(temperature),
        _to_python(top_p),
        _to_python(top_k),
        _to_python(max_new_tokens),
        stops,
        _to_python(seed),
    )


def _to_python(value: Any) -> Any:
    """Return a number of NumPy's as Python's own: JSON, in which results are kept, has no other."""
    return value.item() if isinstance(value, np.generic) else value


def check_top(count: int, vocab: int) -> None:
    """Check how many of the likeliest tokens of each step are to be kept.

    Raises:
        ValueError: fewer than none, or more than there are or than `MOST_TOP`.
    """
    check_whole("top_log_probs", count, 0, min(vocab, MOST_TOP))


def check_sampling(
    n: int,
    temperature: float,
    top_p: float,
    top_k: int | None,
    max_new_tokens: int,
    seed: int | None = None,
) -> None:
    """Check the settings that every engine draws with.

    Args:
        n, temperature, top_p, max_new_tokens: as `Engine.sample` takes them.
        top_k: None for no such limit.
        seed: None for one that is still to be drawn.

    Raises:
        ValueError: it names the one that is out of range.
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
    if not _is_number(temperature) or not (temperature == 0 or lowest <= temperature <= highest):
        raise ValueError(
            f"temperature = {temperature}: must be 0, which is greedy, or from {lowest:g} to "
            f"{highest:g}"
        )
    if not _is_number(top_p) or not 0 < top_p <= 1:
        raise ValueError(f"top_p = {top_p}: must be above 0 and at most 1")


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Check a whole number.

    Raises:
        ValueError: it is none, or out of range.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(f"{name} = {value!r:.60}: must be a whole number")
    if int(value) < least:
        raise ValueError(f"{name} = {value}: must be at least {least}")
    if most is not None and int(value) > most:
        raise ValueError(f"{name} = {value}: must be at most {most}")


def check_share(name: str, value: Any) -> None:
    """Check a share of something.

    Raises:
        ValueError: it is none, or nothing at all.
    """
    if not _is_number(value) or not 0 < value <= 1:
        raise ValueError(f"{name} = {value!r:.60}: must be above 0 and at most 1")


def check_flag(name: str, value: Any) -> None:
    """Check a truth value.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} = {value!r:.60}: must be True or False")


def check_texts(name: str, texts: Any) -> list[str]:
    """Return one text, or several, as a list.

    Raises:
        ValueError: it has something else in it.
    """
    if isinstance(texts, str):
        return [texts]
    several = isinstance(texts, Iterable) and not isinstance(texts, (bytes, bytearray))
    found = list(texts) if several else [texts]
    for text in found:
        if not isinstance(text, str):
            raise ValueError(f"{name} = {texts!r:.60}: {text!r:.60} is not text")
    return [str(text) for text in found]


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)

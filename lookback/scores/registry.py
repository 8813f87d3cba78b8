"""One registry of scorers: what each is called, what it computes, which settings it has.

A scorer is a function from a ragged batch of signals to one number a response, higher is better:

    @scorer("mean_log_prob")
    def mean_log_prob(batch):
        return batch.mean(batch.log_prob)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.scores.formula import Array, concatenate, ragged_starts
from lookback.signals import SIGNALS, Signals


@dataclass(frozen=True, eq=False)
class SignalBatch:
    """The signals of R responses: their tokens one after another, and each response's length."""

    lengths: NDArray[np.intp]
    log_prob: Array
    lookback: Array
    self_certainty: Array
    entropy: Array

    @classmethod
    def of(cls, signals: Sequence[Signals]) -> SignalBatch:
        """The batch of some responses' signals."""
        if not signals:
            raise ValueError("there are no candidates to score")
        flat = {name: concatenate([getattr(s, name) for s in signals]) for name in SIGNALS}
        return cls(flat[SIGNALS[0]][1], **{name: values for name, (values, _) in flat.items()})

    def mean(self, values: Array) -> Array:
        """The mean of a per-token array over each response."""
        starts = ragged_starts(self.lengths, len(values))
        return np.asarray(np.add.reduceat(values, starts) / self.lengths)

    def without_empty(self) -> SignalBatch:
        """The same batch with empty responses left out (they own no tokens)."""
        signals = {name: getattr(self, name) for name in SIGNALS}
        return SignalBatch(self.lengths[self.lengths > 0], **signals)


@dataclass(frozen=True)
class Scorer:
    """A registered scorer: its name, its function, and a line on what it is."""

    name: str
    function: Callable[..., Array]
    about: str

    @property
    def params(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(inspect.signature(self.function).parameters)[1:]

    def scores(
        self, batch: SignalBatch, defaults: Mapping[str, float], params: Mapping[str, Any]
    ) -> Array:
        """One score a response, higher is better, NaN for an empty one.

        Args:
            batch: the responses.
            defaults: the model family's settings; those the scorer does not have are ignored.
            params: the caller's settings; one the scorer does not have is an error.
        """
        unknown = set(params) - set(self.params)
        if unknown:
            has = ", ".join(self.params) or "none"
            raise TypeError(f"scorer {self.name!r} has no setting {min(unknown)!r}; it has: {has}")
        settings = {k: v for k, v in defaults.items() if k in self.params} | dict(params)
        scores = np.full(len(batch.lengths), np.nan)
        filled = batch.lengths > 0
        if filled.any():
            scores[filled] = self.function(batch.without_empty(), **settings)
        return scores


_SCORERS: dict[str, Scorer] = {}


def scorer(name: str) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Register a function as the scorer `name`; the first line of its docstring describes it."""

    def register(function: Callable[..., Array]) -> Callable[..., Array]:
        if name in _SCORERS and _SCORERS[name].function is not function:
            raise ValueError(f"there is already a scorer named {name!r}")
        about = (inspect.getdoc(function) or "").split("\n")[0]
        _SCORERS[name] = Scorer(name, function, about)
        return function

    return register


def get_scorer(name: str) -> Scorer:
    """The scorer called `name`; an unknown name lists the known ones."""
    try:
        return scorers()[name]
    except KeyError:
        raise ValueError(f"no scorer named {name!r}; there are: {', '.join(scorers())}") from None


def scorers() -> dict[str, Scorer]:
    """Every registered scorer by name."""
    import lookback.scores  # noqa: F401  (registers the built-in ones)

    return dict(_SCORERS)


def best_first(scores: Array) -> NDArray[np.intp]:
    """Indices from the highest score to the lowest; ties keep their order and NaN comes last."""
    # Highest first: sort by (is it NaN, -score, place).
    return np.lexsort((np.arange(len(scores)), -np.nan_to_num(scores), np.isnan(scores)))

"""Responses to one question or to many as one ragged batch: what scorers work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookback.scores.formula import Array, concatenate, ragged_starts
from lookback.signals import SIGNALS, Signals


@dataclass(frozen=True, eq=False)
class SignalBatch:
    """The responses to one question or to many: their tokens' signals one after another.

    Attributes:
        lengths: (R,), the number of tokens of each response.
        sizes: the number of responses to each question; they stand together.
        texts: the R responses.
        log_prob, visual_lookback, self_certainty, entropy: the signals of all tokens.
        quality: (R,), how good each response is, where that is known.
    """

    lengths: NDArray[np.intp]
    sizes: NDArray[np.intp]
    texts: tuple[str, ...]
    log_prob: Array
    visual_lookback: Array
    self_certainty: Array
    entropy: Array
    quality: Array | None = None

    @classmethod
    def of(
        cls,
        signals: Sequence[Signals],
        texts: Sequence[str] | None = None,
        sizes: Sequence[int] | None = None,
        quality: Sequence[float] | None = None,
    ) -> SignalBatch:
        """The batch of some responses.

        Args:
            signals: one record per response.
            texts: the responses; by default what their tokens say.
            sizes: how many responses each question has; by default it is one question.
            quality: how good each response is.
        """
        if not signals:
            raise ValueError("there are no candidates to score")
        flat = {name: concatenate([getattr(s, name) for s in signals]) for name in SIGNALS}
        said = ["".join(s.tokens) for s in signals] if texts is None else texts
        counts = np.asarray([len(signals)] if sizes is None else sizes, dtype=np.intp)
        known = None if quality is None else np.asarray(quality, dtype=np.float64)
        for name, got in (("texts", len(said)), ("sizes", counts.sum())):
            if got != len(signals):
                raise ValueError(f"{name} are of {got} responses, signals of {len(signals)}")
        if known is not None and known.shape != (len(signals),):
            raise ValueError(f"quality has {known.size} values for {len(signals)} responses")
        arrays = {name: values for name, (values, _) in flat.items()}
        return cls(flat[SIGNALS[0]][1], counts, tuple(said), **arrays, quality=known)

    def mean(self, values: Array) -> Array:
        """The mean of a per-token array over each response."""
        return self.sum(values) / self.lengths

    def sum(self, values: Array) -> Array:
        """The sum of a per-token array over each response."""
        starts = ragged_starts(self.lengths, len(values))
        return np.asarray(np.add.reduceat(values, starts))

    def questions(self) -> list[slice]:
        """The responses of each question, as a slice of the batch."""
        ends = np.cumsum(self.sizes).tolist()
        return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def without_empty(self) -> SignalBatch:
        """The same batch with empty responses left out (they own no tokens)."""
        filled = self.lengths > 0
        if filled.all():
            return self
        sizes = np.array([filled[part].sum() for part in self.questions()], dtype=np.intp)
        return SignalBatch(
            self.lengths[filled],
            sizes,
            tuple(t for t, kept in zip(self.texts, filled, strict=True) if kept),
            **{name: getattr(self, name) for name in SIGNALS},
            quality=None if self.quality is None else self.quality[filled],
        )

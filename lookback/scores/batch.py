"""Responses to one question or to many as one ragged batch: what scorers work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
        pruned: (R,), which were ended before they were complete: they have no score. None: none.
    """

    lengths: NDArray[np.intp]
    sizes: NDArray[np.intp]
    texts: tuple[str, ...]
    log_prob: Array
    visual_lookback: Array
    self_certainty: Array
    entropy: Array
    quality: Array | None = None
    pruned: NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls,
        signals: Sequence[Signals],
        texts: Sequence[str] | None = None,
        sizes: Sequence[int] | None = None,
        quality: Sequence[float] | None = None,
        pruned: Sequence[bool] | None = None,
    ) -> SignalBatch:
        """Return the batch of some responses.

        Args:
            signals: one record per response.
            texts: the responses; by default what their tokens say.
            sizes: how many responses each question has; by default it is one question.
            quality: how good each response is.
            pruned: which were ended before they were complete; by default none.
        """
        if not signals:
            raise ValueError("there are no candidates to score")
        flat = {name: concatenate([getattr(s, name) for s in signals]) for name in SIGNALS}
        words = ["".join(s.tokens) for s in signals] if texts is None else texts
        counts = np.asarray([len(signals)] if sizes is None else sizes, dtype=np.intp)
        for name, got in (("texts", len(words)), ("sizes", counts.sum())):
            if got != len(signals):
                raise ValueError(f"{name} are of {got} responses, signals of {len(signals)}")
        arrays = {name: values for name, (values, _) in flat.items()}
        ended = None if pruned is None else np.asarray(pruned, dtype=np.bool_)
        batch = cls(flat[SIGNALS[0]][1], counts, tuple(words), **arrays, quality=None, pruned=ended)
        return batch if quality is None else batch.with_quality(quality)

    @classmethod
    def of_arrays(cls, lengths: NDArray[np.intp], signals: NDArray[np.float32]) -> SignalBatch:
        """Return responses to one question from signals alone, (4, tokens of all)."""
        arrays = dict(zip(SIGNALS, np.asarray(signals, dtype=np.float64), strict=True))
        sizes = np.array([len(lengths)], dtype=np.intp)
        return cls(lengths, sizes, ("",) * len(lengths), **arrays)

    def with_quality(self, quality: Sequence[float]) -> SignalBatch:
        """Return the batch with the quality of each response.

        Raises:
            ValueError: there is not one finite number, or truth value, per response.
        """
        return replace(self, quality=check_quality(quality, len(self.lengths)))

    def mean(self, values: Array) -> Array:
        """Return the mean of a per-token array over each response."""
        return self.sum(values) / self.lengths

    def sum(self, values: Array) -> Array:
        """Return the sum of a per-token array over each response."""
        starts = ragged_starts(self.lengths, len(values))
        return np.asarray(np.add.reduceat(values, starts))

    def questions(self) -> list[slice]:
        """Return the responses of each question, as a slice of the batch."""
        ends = np.cumsum(self.sizes).tolist()
        return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    @property
    def scorable(self) -> NDArray[np.bool_]:
        """(R,), which responses have a score: neither empty nor pruned."""
        filled: NDArray[np.bool_] = self.lengths > 0
        return filled if self.pruned is None else filled & ~self.pruned

    def only_scorable(self) -> SignalBatch:
        """Return the batch without empty and pruned responses."""
        kept = self.scorable
        return self if kept.all() else self.take(kept)

    def take(self, kept: NDArray[np.bool_]) -> SignalBatch:
        """Return the responses of a mask (R,), as a batch of the same questions."""
        tokens = np.repeat(kept, self.lengths)
        log_prob, lookback, certainty, entropy = (getattr(self, name)[tokens] for name in SIGNALS)
        return SignalBatch(
            self.lengths[kept],
            np.array([kept[part].sum() for part in self.questions()], dtype=np.intp),
            tuple(text for text, stays in zip(self.texts, kept, strict=True) if stays),
            log_prob,
            lookback,
            certainty,
            entropy,
            None if self.quality is None else self.quality[kept],
            None if self.pruned is None else self.pruned[kept],
        )


def check_quality(quality: Sequence[float], count: int) -> Array:
    """Return the quality of `count` responses as an array.

    Raises:
        ValueError: there is not one finite number, or truth value, per response.
    """
    known = np.asarray(quality)
    if known.shape != (count,):
        raise ValueError(f"quality has {known.size} values for {count} responses")
    if known.dtype.kind not in "biuf" or not np.isfinite(known).all():
        raise ValueError(f"quality = {quality!r:.60}: must be finite numbers")
    return np.asarray(known, dtype=np.float64)

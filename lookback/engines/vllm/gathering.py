"""What the workers recorded of a response, put together: ranks have heads, stages have layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.engines.vllm.ledger import Packed

Floats = NDArray[np.float32]


class VllmError(RuntimeError):
    """vLLM did not do what it was asked; the message says what."""


@dataclass(frozen=True)
class Workers:
    """The workers of an engine, and what their taps read.

    Attributes:
        count: how many there are.
        stages: pipeline stages, each with some of the layers.
        layers: in how many layers the decoder attends.
        heads: in all of them together.
        backend: their attention backend.
    """

    count: int
    stages: int
    layers: int
    heads: int
    backend: str

    @classmethod
    def of(cls, installed: Sequence[Mapping[str, Any]], stages: int) -> Workers:
        """From what `lookback_install` said on each."""
        layers = sum(int(one["layers"]) for one in installed) * stages // len(installed)
        heads = sum(int(one["heads"]) for one in installed)
        return cls(len(installed), stages, layers, heads, str(installed[0]["backend"]))

    def rows(
        self, records: Sequence[Packed | None], by_layer: bool = False, top: int = 0
    ) -> Floats:
        """All numbers of one response, (4 + L + 2 k, T).

        They are the signals, A_t by layer if it was kept, and of the k likeliest tokens log p and
        ids.
        """
        signals, layers = self.signals(records, by_layer)
        said = _with_logits([one for one in records if one is not None])
        likeliest = np.frombuffer(said[2], np.float32).reshape(signals.shape[1], 2 * top)
        return np.concatenate([signals, *([] if layers is None else [layers.T]), likeliest.T])

    def signals(
        self, records: Sequence[Packed | None], by_layer: bool = False
    ) -> tuple[Floats, Floats | None]:
        """The signals (4, T) of one response, in the order of `SIGNALS`, and A_t by layer (T, L).

        T is as many tokens as there was room for; NaN where nothing was recorded.

        Args:
            records: what `lookback_take` or `lookback_peek` said on each worker.
            by_layer: whether the layers were kept apart.

        Raises:
            VllmError: no worker knows the response.
        """
        there = [one for one in records if one is not None]
        if not there:
            raise VllmError("the tap has no record of this response: was it forgotten?")
        said = _stats(_with_logits(there))
        length = len(said)
        parts = [np.frombuffer(one[0], np.float32).reshape(length, -1) for one in there]
        # Workers come stage by stage: those of one stage have heads of the same layers.
        ranks = len(parts) // self.stages if by_layer else len(parts)
        starts = range(0, len(parts), ranks)
        sums = [np.stack(parts[k : k + ranks]).sum(0, dtype=np.float64) for k in starts]
        looks = np.concatenate(sums, 1)
        a_t = looks.sum(1) / self.layers
        signals = np.stack([said[:, 0], a_t, said[:, 1], said[:, 2]]).astype(np.float32)
        layers: Floats = np.asarray(looks, np.float32)
        return signals, layers if by_layer else None


def _stats(record: Packed) -> Floats:
    return np.frombuffer(record[1], np.float32).reshape(-1, 3)


def _with_logits(records: Sequence[Packed]) -> Packed:
    """The record of a worker that sees logits: stages before the last do not."""
    return next((one for one in records if not np.isnan(_stats(one)).all()), records[0])

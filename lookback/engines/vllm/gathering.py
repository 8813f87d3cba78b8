"""What the workers recorded of a response, put together: ranks have heads, stages have layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    def signals(
        self, records: Sequence[tuple[bytes, bytes] | None], by_layer: bool = False
    ) -> tuple[Floats, Floats | None]:
        """The signals (4, T) of one response, in the order of `SIGNALS`, and A_t by layer (T, L).

        T is as many tokens as there was room for; NaN where nothing was recorded.

        Args:
            records: what `lookback_take` said on each worker.
            by_layer: whether the layers were kept apart.

        Raises:
            VllmError: no worker knows the response.
        """
        there = [one for one in records if one is not None]
        if not there:
            raise VllmError("the tap has no record of this response: was it forgotten?")
        stats = [np.frombuffer(one, np.float32).reshape(-1, 3) for _, one in there]
        length = len(stats[0])
        parts = [np.frombuffer(one, np.float32).reshape(length, -1) for one, _ in there]
        apart = by_layer and self.stages > 1
        looks = np.concatenate(parts, 1) if apart else np.stack(parts).sum(0, dtype=np.float64)
        # Stages before the last have no logits.
        said = next((one for one in stats if not np.isnan(one).all()), stats[0])
        a_t = looks.sum(1) / self.layers
        signals = np.stack([said[:, 0], a_t, said[:, 1], said[:, 2]]).astype(np.float32)
        layers: Floats = np.asarray(looks, np.float32)
        return signals, layers if by_layer else None

"""Signals of a response, gathered from the workers of all ranks and stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lookback.engines.common.continuations import Continuation, Likeliest
from lookback.engines.common.logits import check_stats
from lookback.engines.vllm.worker.ledger import Packed

if TYPE_CHECKING:
    from lookback.engines.vllm.client.prompts import Prompt

Floats = NDArray[np.float32]


@dataclass
class Answer:
    """One candidate of a request; `rows` as `Workers.rows` returns them, (4 + L + 2 k, T)."""

    token_ids: list[int]
    rows: Floats
    finish: str


def finish_of(output: Any) -> str:
    """Return why a candidate ended, from vLLM's output."""
    if output.finish_reason != "stop":
        return "length"
    return "stop" if isinstance(output.stop_reason, str) else "end"


def likeliest_of(rows: Floats) -> Likeliest | None:
    """Return the k likeliest tokens from (2 k, ...): log p, then ids; None if k is 0."""
    if not len(rows):
        return None
    log_prob, ids = np.split(np.moveaxis(rows, 0, -1), 2, axis=-1)
    return Likeliest(np.nan_to_num(ids).astype(np.int64), log_prob.copy())


def continuation(token_ids: Sequence[int], rows: Floats, finish: str, top: int = 0) -> Continuation:
    """Return tokens with their signals, of rows (4 + L + 2 k, T or more); `top`: k."""
    split = len(rows) - 2 * top
    result = Continuation.of(token_ids, rows[:split], finish)
    result.top = likeliest_of(rows[split:, : len(token_ids)])
    return result


def blinded(response: Continuation, prompt: Prompt) -> Continuation:
    """Set A_t to 0 if the prompt has no source."""
    if prompt.blind:
        response.signals[1] = 0.0
        layers = response.by_layer
        response.by_layer = None if layers is None else np.zeros_like(layers)
    return response


def checked(response: Continuation, prompt: Prompt) -> Continuation:
    """Return a response, `blinded`, if all its signals are there.

    Raises:
        FloatingPointError: the logits were not finite.
        VllmError: the tap missed a token.
    """
    import torch

    log_prob, _, certainty, entropy = torch.from_numpy(response.signals)
    check_stats(log_prob, certainty, entropy)
    response = blinded(response, prompt)
    if np.isnan(response.signals[1]).any():
        raise VllmError("the tap saw no attention for a token of this response")
    if response.top is not None and np.isnan(response.top.log_prob).any():
        raise VllmError("the tap kept no likeliest tokens for a token of this response")
    return response


class VllmError(RuntimeError):
    """vLLM did not do what it was asked; the message says what."""


@dataclass(frozen=True)
class Workers:
    """The workers of an engine.

    Attributes:
        count: how many there are.
        stages: pipeline stages, each with some of the layers.
        layers: attention layers of the decoder.
        heads: attention heads of all layers together.
        backend: the name of their attention backend.
    """

    count: int
    stages: int
    layers: int
    heads: int
    backend: str

    @classmethod
    def of(cls, installed: Sequence[Mapping[str, Any]], stages: int) -> Workers:
        """Make it from what `lookback_install` returned on each."""
        layers = sum(int(worker["layers"]) for worker in installed) * stages // len(installed)
        heads = sum(int(worker["heads"]) for worker in installed)
        return cls(len(installed), stages, layers, heads, str(installed[0]["backend"]))

    def rows(
        self, records: Sequence[Packed | None], by_layer: bool = False, top: int = 0
    ) -> Floats:
        """Return all numbers of one response, (4 + L + 2 k, T).

        They are the signals, A_t by layer if it was kept, and of the k likeliest tokens log p and
        ids.
        """
        signals, layers = self.signals(records, by_layer)
        record = _with_logits([record for record in records if record is not None])
        likeliest = np.frombuffer(record[2], np.float32).reshape(signals.shape[1], 2 * top)
        return np.concatenate([signals, *([] if layers is None else [layers.T]), likeliest.T])

    def signals(
        self, records: Sequence[Packed | None], by_layer: bool = False
    ) -> tuple[Floats, Floats | None]:
        """Return the signals (4, T) of one response, as `SIGNALS`, and A_t by layer (T, L).

        T is as many tokens as there was room for; NaN where nothing was recorded.

        Args:
            records: what `lookback_take` or `lookback_peek` returned on each worker.
            by_layer: whether the layers were kept apart.

        Raises:
            VllmError: no worker has a record of the response.
        """
        known = [record for record in records if record is not None]
        if not known:
            raise VllmError("the tap has no record of this response: was it forgotten?")
        stats = _stats(_with_logits(known))
        parts = [np.frombuffer(record[0], np.float32).reshape(len(stats), -1) for record in known]
        # Workers come stage by stage: those of one stage have heads of the same layers.
        ranks = len(parts) // self.stages if by_layer else len(parts)
        starts = range(0, len(parts), ranks)
        sums = [np.stack(parts[k : k + ranks]).sum(0, dtype=np.float64) for k in starts]
        looks = np.concatenate(sums, 1)
        a_t = looks.sum(1) / self.layers
        signals = np.stack([stats[:, 0], a_t, stats[:, 1], stats[:, 2]]).astype(np.float32)
        layers: Floats = np.asarray(looks, np.float32)
        return signals, layers if by_layer else None


def _stats(record: Packed) -> Floats:
    return np.frombuffer(record[1], np.float32).reshape(-1, 3)


def _with_logits(records: Sequence[Packed]) -> Packed:
    """Return the record of a worker that sees logits: stages before the last do not."""
    return next((record for record in records if not np.isnan(_stats(record)).all()), records[0])

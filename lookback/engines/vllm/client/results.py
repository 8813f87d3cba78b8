"""What the workers recorded of a response, gathered from ranks and stages, as continuations."""

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


@dataclass
class Answer:
    """What came of one candidate of a request.

    Attributes:
        token_ids: its tokens; of a given response, those that were given.
        rows: (4 + L + 2 k, T): its numbers, as `Workers.rows` puts them together.
        finish: why it ended.
    """

    token_ids: list[int]
    rows: NDArray[np.float32]
    finish: str


def finish_of(output: Any) -> str:
    """Why a candidate ended, of what vLLM says of it."""
    if output.finish_reason != "stop":
        return "length"
    return "stop" if isinstance(output.stop_reason, str) else "end"


def likeliest_of(rows: NDArray[np.float32]) -> Likeliest | None:
    """The k likeliest tokens, of (2 k, ...): log p, then ids; None if there are none."""
    if not len(rows):
        return None
    log_prob, ids = np.split(np.moveaxis(rows, 0, -1), 2, axis=-1)
    return Likeliest(np.nan_to_num(ids).astype(np.int64), log_prob.copy())


def continuation(
    token_ids: Sequence[int], rows: NDArray[np.float32], finish: str, top: int = 0
) -> Continuation:
    """Tokens with their numbers, (4 + L + 2 k, T or more); `top`: k."""
    split = len(rows) - 2 * top
    one = Continuation.of(token_ids, rows[:split], finish)
    one.top = likeliest_of(rows[split:, : len(token_ids)])
    return one


def blinded(one: Continuation, prompt: Prompt) -> Continuation:
    """Without what was seen of a source that nobody asked about."""
    if prompt.blind:
        one.signals[1] = 0.0
        one.by_layer = None if one.by_layer is None else np.zeros_like(one.by_layer)
    return one


def checked(one: Continuation, prompt: Prompt) -> Continuation:
    """A continuation whose every number was seen; without a source there is nothing to see.

    Raises:
        FloatingPointError: the logits were not finite.
        VllmError: the tap missed a token.
    """
    import torch

    log_prob, _, certainty, entropy = torch.from_numpy(one.signals)
    check_stats(log_prob, certainty, entropy)
    one = blinded(one, prompt)
    if np.isnan(one.signals[1]).any():
        raise VllmError("the tap saw no attention for a token of this response")
    if one.top is not None and np.isnan(one.top.log_prob).any():
        raise VllmError("the tap kept no likeliest tokens for a token of this response")
    return one


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

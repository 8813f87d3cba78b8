"""What came of a request, as the other engines have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lookback.engines.transformers.continuations import Continuation, Likeliest
from lookback.engines.transformers.logits import check_stats
from lookback.engines.vllm.gathering import VllmError

if TYPE_CHECKING:
    from lookback.engines.vllm.prompting import Prompt


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

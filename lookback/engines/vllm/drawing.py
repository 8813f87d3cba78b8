"""The sampler in a vLLM worker: the project's own random streams, and what the logits say.

Candidate i of a question draws from the stream (seed, i), as in every engine of the project,
whatever else is in the batch. Requests of others are vLLM's own sampler's, untouched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookback.engines.transformers.logits import draw, next_token_probs, streams, token_stats
from lookback.engines.vllm.asking import Asking

if TYPE_CHECKING:
    from lookback.engines.vllm.ledger import Record
    from lookback.engines.vllm.tap import Request, Tap

Drawn = tuple[int, "Request", int]
"""A row of the batch, whose it is, and the place of the token that it predicts."""


class Sampling:
    """Wraps a sampler.

    Args:
        tap: knows the step.
        sampler: vLLM's.
    """

    def __init__(self, tap: Tap, sampler: Any) -> None:
        self.tap = tap
        self._sample = sampler.forward
        sampler.forward = self._forward

    @staticmethod
    def stream(asking: Asking, index: int) -> NDArray[np.float64] | None:
        """The random numbers of a candidate."""
        if asking.seed is None or asking.given is not None:
            return None
        found: NDArray[np.float64] = streams(asking.seed, 1, asking.length, index)[0]
        return found

    def _forward(self, logits: Tensor, sampling_metadata: Any, *args: Any, **kwargs: Any) -> Any:
        """Tokens for every row of the batch."""
        from vllm.v1.outputs import SamplerOutput

        step, self.tap.step = self.tap.step, None
        rows = [] if step is None else self._rows(step)
        drawn, tokens = self._draw(logits, rows)
        asks = sampling_metadata.max_num_logprobs, sampling_metadata.logprob_token_ids
        if step is not None and len(drawn) == len(logits) and not any(map(_given, asks)):
            found = SamplerOutput(tokens.int()[:, None], None)
        else:
            raw = logits.clone() if rows else logits  # the sampler writes into its logits
            found = self._sample(logits, sampling_metadata, *args, **kwargs)
            logits = raw
            if drawn:
                where = torch.tensor([row for row, _, _ in drawn], device=logits.device)
                found.sampled_token_ids[where, 0] = tokens.to(found.sampled_token_ids.dtype)
        self._file(logits, rows, found.sampled_token_ids[:, 0])
        return found

    def _rows(self, step: Any) -> list[Drawn]:
        """The rows whose token is kept: not those of a prompt that is still being read."""
        ends = self.tap.runner.optimistic_seq_lens_cpu[: len(step.requests)].tolist()
        unfinished = self.tap.runner.discard_request_mask.np
        return [
            (row, one, end - 1 - one.first)
            for row, (one, end) in enumerate(zip(step.requests, ends, strict=True))
            if one.record is not None and not unfinished[row]
        ]

    def _draw(self, logits: Tensor, rows: list[Drawn]) -> tuple[list[Drawn], Tensor]:
        """The tokens of the rows that draw from streams of ours."""
        ours = [one for one in rows if one[1].uniform is not None]
        tokens = torch.empty(len(ours), dtype=torch.long, device=logits.device)
        alike: dict[tuple[Any, ...], list[int]] = {}
        for i, (_, request, _) in enumerate(ours):
            asking = request.asking
            assert asking is not None
            settings = (asking.temperature, asking.top_p, asking.top_k)
            alike.setdefault(settings, []).append(i)
        for settings, members in alike.items():
            chosen = [ours[i] for i in members]
            uniform = np.array([one.uniform[place] for _, one, place in chosen], np.float32)  # type: ignore[index]
            part = _take(logits, [row for row, _, _ in chosen])
            point = torch.from_numpy(uniform).to(logits.device)
            found = draw(next_token_probs(part, *settings), point)
            tokens[torch.tensor(members, device=logits.device)] = found
        return ours, tokens

    def _file(self, logits: Tensor, rows: list[Drawn], tokens: Tensor) -> None:
        """What the raw logits say of the tokens that were taken."""
        kept: list[tuple[int, tuple[Record, int]]] = [
            (row, (one.record, place))
            for row, one, place in rows
            if one.record is not None and _recorded(one, place)
        ]
        if not kept:
            return
        numbers = [row for row, _ in kept]
        stats = token_stats(_take(logits, numbers), _take(tokens, numbers).long())
        self.tap.ledger.file("stats", [place for _, place in kept], torch.stack(stats, 1))


def _recorded(request: Request, place: int) -> bool:
    """A given response's rows are read with the others', before its one token is drawn."""
    asking = request.asking
    return asking is not None and asking.given is None and place < asking.length


def _take(values: Tensor, rows: list[int]) -> Tensor:
    if rows == list(range(len(values))):
        return values
    return values[torch.tensor(rows, device=values.device)]


def _given(value: Any) -> bool:
    return value is not None and value != {}

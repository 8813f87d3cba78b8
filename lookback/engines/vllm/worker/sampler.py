"""The sampler in a vLLM worker: LookBack's random streams, and statistics of the logits.

Candidate i of a question draws from the stream (seed, i), as in every engine of LookBack, whatever
else is in the batch. Other requests go to vLLM's own sampler unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookback.engines.common.logits import draw, likeliest, next_token_probs, token_stats

if TYPE_CHECKING:
    from lookback.engines.vllm.worker.ledger import Place
    from lookback.engines.vllm.worker.tap import Step, Tap


class TapSampler:
    """Wraps vLLM's sampler."""

    def __init__(self, tap: Tap, sampler: Any) -> None:
        self.tap = tap
        self._sampler = sampler
        self._sample = sampler.forward

    def install(self) -> None:
        self._sampler.forward = self._forward

    def remove(self) -> None:
        del self._sampler.forward

    def _forward(self, logits: Tensor, sampling_metadata: Any, *args: Any, **kwargs: Any) -> Any:
        """Return tokens for every row of the batch, and file their statistics."""
        from vllm.v1.outputs import SamplerOutput

        step, self.tap.step = self.tap.step, None
        if step is None or not step.wanted:
            return self._sample(logits, sampling_metadata, *args, **kwargs)
        rows, tokens = self._draw(logits, step)
        asks = sampling_metadata.max_num_logprobs, sampling_metadata.logprob_token_ids
        if len(rows) == len(logits) and asks[0] is None and not asks[1]:
            output = SamplerOutput(tokens.int()[:, None], None)
        else:
            raw = logits.clone()  # the sampler writes into its logits
            output = self._sample(logits, sampling_metadata, *args, **kwargs)
            logits = raw
            if len(rows):
                where = torch.from_numpy(rows).to(logits.device)
                output.sampled_token_ids[where, 0] = tokens.to(output.sampled_token_ids.dtype)
        self._file(logits, step, output.sampled_token_ids[:, 0])
        return output

    def _draw(self, logits: Tensor, step: Step) -> tuple[NDArray[np.intp], Tensor]:
        """Return the rows that draw from LookBack's streams and their tokens, in batch order.

        Of a prompt that is still being read, the token is not used.
        """
        tokens = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
        groups = step.batch.drawing
        for settings, rows, numbers in groups:
            place = step.ends[rows] - 1 - step.batch.firsts[rows]
            place = place.clip(0, numbers.shape[1] - 1)
            uniform = torch.from_numpy(numbers[np.arange(len(rows)), place]).to(logits.device)
            part = _take(logits, rows)
            drawn = draw(next_token_probs(part, *settings), uniform)
            tokens[torch.from_numpy(rows).to(logits.device)] = drawn
        if not groups:
            return np.empty(0, np.intp), tokens[:0]
        ours = np.sort(np.concatenate([rows for _, rows, _ in groups]))
        return ours, _take(tokens, ours)

    def _file(self, logits: Tensor, step: Step, tokens: Tensor) -> None:
        """File statistics of the raw logits for the drawn tokens.

        Those of a given response were filed after the pass.
        """
        unfinished = self.tap.runner.discard_request_mask.np
        places: list[Place] = []
        rows: list[int] = []
        requests = step.batch.requests
        for row, place in enumerate(step.batch.places(step.ends)):
            if place is not None and not unfinished[row] and not requests[row].given:
                places.append(place)
                rows.append(row)
        if rows:
            kept = np.array(rows)
            stats = token_stats(_take(logits, kept), _take(tokens, kept).long())
            self.tap.ledger.file("stats", places, torch.stack(stats, 1))
            self._file_top(logits, rows, places)

    def _file_top(self, logits: Tensor, rows: list[int], places: list[Place]) -> None:
        """File the likeliest tokens of the rows whose records want them."""
        most = max(record.top.shape[1] // 2 for record, _ in places)
        if most == 0:
            return
        wanted = [i for i, (record, _) in enumerate(places) if record.top.shape[1]]
        ids, log_prob = likeliest(_take(logits, np.array([rows[i] for i in wanted])), most)
        values = torch.stack([log_prob, ids.float()], 1)
        self.tap.ledger.file("top", [places[i] for i in wanted], values)


def _take(values: Tensor, rows: NDArray[np.intp]) -> Tensor:
    if len(rows) == len(values):  # they are in order, and each is there once
        return values
    return values[torch.from_numpy(rows).to(values.device)]

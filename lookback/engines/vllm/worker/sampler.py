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

from lookback.engines.common.logits import draw, likeliest, next_token_probs, token_stats

if TYPE_CHECKING:
    from lookback.engines.vllm.worker.ledger import Place
    from lookback.engines.vllm.worker.tap import Step, Tap


class Sampling:
    """Wraps a sampler.

    Args:
        tap: knows the step.
        sampler: vLLM's.
    """

    def __init__(self, tap: Tap, sampler: Any) -> None:
        self.tap = tap
        self._sampler = sampler
        self._sample = sampler.forward

    def open(self) -> None:
        """Put it in."""
        self._sampler.forward = self._forward

    def close(self) -> None:
        """Take it out."""
        del self._sampler.forward

    def _forward(self, logits: Tensor, sampling_metadata: Any, *args: Any, **kwargs: Any) -> Any:
        """Tokens for every row of the batch."""
        from vllm.v1.outputs import SamplerOutput

        step, self.tap.step = self.tap.step, None
        if step is None or not step.wanted:
            return self._sample(logits, sampling_metadata, *args, **kwargs)
        rows, tokens = self._draw(logits, step)
        asks = sampling_metadata.max_num_logprobs, sampling_metadata.logprob_token_ids
        if len(rows) == len(logits) and asks[0] is None and not asks[1]:
            found = SamplerOutput(tokens.int()[:, None], None)
        else:
            raw = logits.clone()  # the sampler writes into its logits
            found = self._sample(logits, sampling_metadata, *args, **kwargs)
            logits = raw
            if len(rows):
                where = torch.from_numpy(rows).to(logits.device)
                found.sampled_token_ids[where, 0] = tokens.to(found.sampled_token_ids.dtype)
        self._file(logits, step, found.sampled_token_ids[:, 0])
        return found

    def _draw(self, logits: Tensor, step: Step) -> tuple[NDArray[np.intp], Tensor]:
        """The rows that draw from streams of ours, and their tokens, in the order of the batch.

        Of a prompt that is still being read, the token is nobody's.
        """
        tokens = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
        groups = step.batch.drawing
        for settings, rows, numbers in groups:
            place = step.ends[rows] - 1 - step.batch.firsts[rows]
            place = place.clip(0, numbers.shape[1] - 1)
            uniform = torch.from_numpy(numbers[np.arange(len(rows)), place]).to(logits.device)
            part = _take(logits, rows)
            found = draw(next_token_probs(part, *settings), uniform)
            tokens[torch.from_numpy(rows).to(logits.device)] = found
        if not groups:
            return np.empty(0, np.intp), tokens[:0]
        ours = np.sort(np.concatenate([rows for _, rows, _ in groups]))
        return ours, _take(tokens, ours)

    def _file(self, logits: Tensor, step: Step, tokens: Tensor) -> None:
        """What the raw logits say of the tokens that were taken.

        A given response's rows were read with the others', before its one token was drawn.
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
        """The likeliest tokens, of those rows whose records want them."""
        most = max(record.top.shape[1] // 2 for record, _ in places)
        if most == 0:
            return
        asked = [i for i, (record, _) in enumerate(places) if record.top.shape[1]]
        ids, log_prob = likeliest(_take(logits, np.array([rows[i] for i in asked])), most)
        found = torch.stack([log_prob, ids.float()], 1)
        self.tap.ledger.file("top", [places[i] for i in asked], found)


def _take(values: Tensor, rows: NDArray[np.intp]) -> Tensor:
    if len(rows) == len(values):  # they are in order, and each is there once
        return values
    return values[torch.from_numpy(rows).to(values.device)]

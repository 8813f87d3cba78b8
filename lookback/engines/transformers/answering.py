"""Plain answers by the model's own `generate`, with turns for others between its steps."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, StoppingCriteria, StoppingCriteriaList

from lookback.engines.common.compat import alone_settings
from lookback.engines.transformers.attention.tap import Unread, reading
from lookback.engines.transformers.decoding.session import Loan


def answer(model: PreTrainedModel, inputs: Mapping[str, Any], seed: int, **settings: Any) -> Tensor:
    """What `generate` makes of a batch of prompts, with random numbers of its own."""
    settings |= alone_settings(model.generate)
    chance = _Chance(seed)
    with reading(Unread()), torch.no_grad(), Loan(model, around=chance.own) as loan:
        if "stopping_criteria" in inspect.signature(model.generate).parameters:
            settings["stopping_criteria"] = StoppingCriteriaList([_Offering(loan)])
        out: Tensor = model.generate(**inputs, **settings)
    return out


class _Offering(StoppingCriteria):
    """Is asked after each step whether to stop: never, but others may come first."""

    def __init__(self, loan: Loan) -> None:
        self._loan = loan

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        self._loan.offer()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


class _Chance:
    """Random numbers from a seed in the place of everybody's, taken up again where they were."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._reached: tuple[Tensor, list[Tensor]] | None = None

    @contextmanager
    def own(self) -> Iterator[None]:
        """Draw from these inside the block; then everybody's are as they were."""
        with torch.random.fork_rng():
            if self._reached is None:
                torch.manual_seed(self._seed)
            else:
                torch.random.set_rng_state(self._reached[0])
                if self._reached[1]:
                    torch.cuda.set_rng_state_all(self._reached[1])
            try:
                yield
            finally:
                on_cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
                self._reached = torch.random.get_rng_state(), on_cuda

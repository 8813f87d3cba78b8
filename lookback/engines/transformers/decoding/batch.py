"""The batch of a draw on the device: a row for each continuation that is still being written.

What has ended leaves the batch, and forks enter it. Continuations keep their numbers: number i
draws from the stream (seed, i), whatever row it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookback.engines.common.continuations import Likeliest, check_signals, stack_signals
from lookback.engines.common.logits import draw, likeliest, next_token_probs, streams, token_stats
from lookback.engines.transformers.decoding.prefix import Prefix, SharedCache

MULTIPLE = 8
"""A batch has a multiple of so many rows, some of which may have no continuation.

A CPU's product of matrices adds up in another order where there are fewer rows than its kernel
takes at a time. With whole eights a continuation's numbers are the same to the last bit whoever
else is in the batch: a larger n, others' ends or pruning do not change them. (In a mixture of
experts each expert's product has as many rows as it is given: there the last bits may differ.)
"""

Forward = Callable[[Tensor, SharedCache], tuple[Tensor, Tensor]]
"""A pass of the model: tokens (B, 1) to logits (B, 1, V) and A_t (1 or 1 + L, B, 1)."""


class Rows:
    """The rows of n continuations of a prompt, as they are drawn token by token.

    Args:
        prefix: the prompt.
        signals: room for those of rows without a continuation, and of n continuations,
            (numbers, 1 + n, steps).
        shares: how many shares of attention a token has.
        seed: of the random numbers.
        forward: sends tokens through the model.
        top: how many of the likeliest tokens of each step to keep.
    """

    def __init__(
        self,
        prefix: Prefix,
        signals: Tensor,
        shares: int,
        seed: int,
        forward: Forward,
        top: int = 0,
    ) -> None:
        n = signals.shape[1] - 1
        size = _whole(n)
        self._seed, self._forward = seed, forward
        self._signals = signals
        self._top: tuple[Tensor, Tensor] | None = None
        if top:
            kept = signals.new_zeros(*signals.shape[1:], top)
            self._top = kept.long(), kept
        self._uniform = torch.zeros_like(signals[0])
        self._uniform[1:] = self._streams(0, n)
        self._cache = SharedCache(prefix, size)
        self._logits = prefix.logits.expand(size, -1)
        self._lookback = prefix.lookback[:shares].expand(-1, size, 1)
        self._token = torch.empty(0)
        self._fresh: list[Tensor] = []  # tokens that were not read yet
        self._set([*range(n), *[None] * (size - n)])
        self.steps = 0

    def _streams(self, first: int, n: int) -> Tensor:
        steps = self._signals.shape[2]
        return torch.from_numpy(streams(self._seed, n, steps, first)).to(self._uniform)

    def _set(self, numbers: list[int | None]) -> None:
        """Assign rows to continuations."""
        self._numbers = numbers
        places = [0 if number is None else 1 + number for number in numbers]
        self._index = torch.tensor(places, device=self._signals.device)

    @property
    def fresh(self) -> int:
        """How many tokens of each continuation were not read yet."""
        return len(self._fresh)

    def draw(self, temperature: float, top_p: float, top_k: int | None) -> None:
        """Draw the next token of every row, and record its signals."""
        probs = next_token_probs(self._logits, temperature, top_p, top_k)
        self._token = draw(probs, self._uniform[self._index, self.steps])
        stats = token_stats(self._logits, self._token)
        self._signals[:, self._index, self.steps] = stack_signals(stats, self._lookback[..., 0])
        if self._top is not None:
            for kept, new in zip(
                self._top, likeliest(self._logits, self._top[0].shape[-1]), strict=True
            ):
                kept[self._index, self.steps] = new
        self._fresh.append(self._token)
        self.steps += 1

    def read(self) -> list[list[int]]:
        """Return the tokens of each continuation that were not read yet, in the rows' order.

        Raises:
            FloatingPointError: the signals of one are not finite.
        """
        rows = [row for row, number in enumerate(self._numbers) if number is not None]
        here = self._signals[:, self._index, self.steps - self.fresh : self.steps]
        tokens = torch.stack(self._fresh, 1)
        if len(rows) < len(self._numbers):
            kept = torch.tensor(rows, device=tokens.device)
            here, tokens = here[:, kept], tokens[kept]
        check_signals(here)
        self._fresh = []
        return list(tokens.tolist())

    def arrange(self, numbers: Sequence[int], parents: Mapping[int, int] | None = None) -> None:
        """Continue with these continuations; a new one of them begins where its parent is.

        Those that were there must be in the same order as before.
        """
        row = {number: row for row, number in enumerate(self._numbers) if number is not None}
        size = _whole(len(numbers))
        if not parents and size == len(self._numbers):
            left = set(numbers)
            self._set([number if number in left else None for number in self._numbers])
            return
        parents = parents or {}
        self._grow(parents)
        rows = [row[parents.get(number, number)] for number in numbers]
        places = torch.tensor(rows + rows[-1:] * (size - len(rows)), device=self._token.device)
        self._cache.reorder_cache(places)
        self._token = self._token[places]
        self._set([*numbers, *[None] * (size - len(rows))])

    def _grow(self, parents: Mapping[int, int]) -> None:
        """Make room for new continuations, which so far are as their parents."""
        if not parents:
            return
        first = self._signals.shape[1] - 1
        assert list(parents) == list(range(first, first + len(parents)))
        copied = torch.tensor([1 + parent for parent in parents.values()])
        copied = copied.to(self._signals.device)
        self._signals = torch.cat([self._signals, self._signals[:, copied]], 1)
        self._uniform = torch.cat([self._uniform, self._streams(first, len(parents))])

    def step(self) -> None:
        """Send the tokens that were drawn through the model."""
        logits, self._lookback = self._forward(self._token[:, None], self._cache)
        self._logits = logits[:, -1]

    def signals(self) -> NDArray[np.float32]:
        """Return what was recorded of each, (numbers, n, steps), beyond its end too."""
        signals: NDArray[np.float32] = self._signals[:, 1:].cpu().numpy()
        return signals

    def top(self) -> Likeliest | None:
        """Return the likeliest tokens of each continuation's steps, if any were to be kept."""
        if self._top is None:
            return None
        return Likeliest(*(kept[1:].cpu().numpy() for kept in self._top))


def _whole(rows: int) -> int:
    return -(-rows // MULTIPLE) * MULTIPLE

"""Cascade attention for candidates of one prompt: its shared blocks are read once for all of them.

A kernel that is called for 25 candidates one by one reads their prompt 25 times. Here one call is
over the blocks that they share, with a row for each candidate, and one over the rest of each. Two
softmaxes over different keys cannot be joined unless something relates them: the first block of
the prompt, the *anchor*, is among the keys of both. With W its mass before normalising,

    W / Z_shared  and  W / (W + Z_own)

are both outputs of the kernel, sums of positive numbers and so precise however small they are, and
they tell Z_shared and Z_own in units of W. The mass on the source follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookback.engines.vllm.worker.backends import Backend, Tail

if TYPE_CHECKING:
    from lookback.engines.vllm.worker.batch import Batch

LEAST = 2
"""Blocks that must be shared: the anchor alone gains nothing."""
OTHERS, ANCHOR, BOTH = 0, 1, 2
"""What a slot of the indicator says in its first three numbers: that its token is of the source and
not of the anchor, of the anchor, of both."""


def marks(source: Tensor, positions: NDArray[Any], size: int) -> Tensor:
    """Return the marks of tokens, (tokens, 3); `size`: tokens per block."""
    anchor = torch.from_numpy(positions < size)
    return torch.stack([source & ~anchor, anchor, source & anchor], 1)


def plain_share(out: Tensor) -> Tensor:
    """Return the mass on the source, (rows, heads), of rows that attended to all their keys."""
    return out[..., OTHERS] + out[..., BOTH]


@dataclass
class Groups:
    """Which rows of a batch share blocks, and how many.

    Attributes:
        rows: those that share some, group by group, (R,).
        sizes: of each group, (G,).
        leaders: a row of each group, (G,).
        shared: blocks that each row of the batch shares with others, (B,); 0 for none.
    """

    rows: NDArray[np.intp]
    sizes: NDArray[np.int32]
    leaders: NDArray[np.intp]
    shared: NDArray[np.int64]

    @classmethod
    def of(cls, tables: NDArray[Any], whole: NDArray[Any]) -> Groups | None:
        """Make it from block tables (B, blocks) and the number of full blocks of each prompt."""
        by_blocks: dict[tuple[int, ...], list[int]] = {}
        for row in np.flatnonzero(whole >= LEAST):
            by_blocks.setdefault(tuple(tables[row, :LEAST].tolist()), []).append(int(row))
        shared = np.zeros(len(tables), np.int64)
        groups = []
        for members in by_blocks.values():
            if len(members) < 2:
                continue
            least = int(whole[members].min())
            same = (tables[members, :least] == tables[members[0], :least]).all(0)
            shared[members] = least if same.all() else int(same.argmin())
            groups.append(members)
        if not groups:
            return None
        return cls(
            np.concatenate([np.array(members) for members in groups]),
            np.array([len(members) for members in groups], np.int32),
            np.array([members[0] for members in groups]),
            shared,
        )


class Cascade:
    """The two calls of one step, for every layer of it.

    Args:
        batch: the requests.
        groups: who shares what; the step has one row for each request.
        table: of blocks, (B, blocks).
        lengths: of the requests, (B,).
        size: tokens of a block.
        before: that of the step before, of the same groups, whose shared part is reused.
    """

    def __init__(
        self,
        batch: Batch,
        groups: Groups,
        table: Tensor,
        lengths: Tensor,
        size: int,
        before: Cascade | None = None,
    ) -> None:
        device = table.device
        self.batch, self.groups = batch, groups
        self.rows: Tensor
        self.shared: Tail
        shared = torch.from_numpy(groups.shared).to(device)
        skipped = (shared - 1).clamp(min=0)
        places = torch.arange(table.shape[1], device=device)
        # The first block stays, the others that are shared are left out.
        wanted = (places + skipped[:, None] * (places > 0)).clamp_(max=table.shape[1] - 1)
        starts = torch.arange(len(table) + 1, dtype=torch.int32, device=device)
        self.own = Tail(
            None,
            starts,
            1,
            table.gather(1, wanted),
            (lengths - skipped * size).to(lengths.dtype),
        )
        if before is not None:
            self.rows, self.shared = before.rows, before.shared
            return
        leaders = torch.from_numpy(groups.leaders).to(device)
        begins = np.concatenate([[0], np.cumsum(groups.sizes)]).astype(np.int32)
        self.rows = torch.from_numpy(groups.rows).to(device)
        self.shared = Tail(
            self.rows,
            torch.from_numpy(begins).to(device),
            int(groups.sizes.max()),
            table[leaders].contiguous(),
            (shared[leaders] * size).to(lengths.dtype),
            causal=False,
        )

    @staticmethod
    def fits(layer: Any, metadata: Any) -> bool:
        """Whether a layer attends to all keys alike, and adds nothing to its softmax."""
        impl = layer.impl
        window = impl.sliding_window
        plain = window in (None, -1) or (isinstance(window, tuple) and window[0] < 0)
        return (
            plain
            and impl.sinks is None
            and impl.alibi_slopes is None
            and getattr(metadata, "dynamic_causal", None) is None
        )

    def read(
        self, backend: Backend, layer: Any, query: Tensor, kv_cache: Tensor, metadata: Any
    ) -> Tensor:
        """Return the mass on the source, (rows, heads); NaN where the anchor has no weight."""
        own = backend.attend(layer, query, kv_cache, metadata, self.own)
        shared = backend.attend(layer, query[self.rows], kv_cache, metadata, self.shared)
        mass = plain_share(own).float()
        mass[self.rows] = join(shared, own[self.rows])
        return mass


def join(shared: Tensor, own: Tensor) -> Tensor:
    """Return the mass on the source, (rows, heads), from both calls, (rows, heads, 3 or more)."""
    shared, own = shared[..., :3].float(), own[..., :3].float()
    z_shared, z_own = 1 / shared[..., ANCHOR], 1 / own[..., ANCHOR]  # in units of the anchor
    source = plain_share(shared) * z_shared + own[..., OTHERS] * z_own
    return source / (z_shared + z_own - 1)

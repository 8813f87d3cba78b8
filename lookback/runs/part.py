"""Views of a run: some of its items or candidates, as a run of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lookback.runs.run import Run
from lookback.scores.formula import Array
from lookback.signals import SIGNALS, Floats


class RunView(Run):
    """Some of a run, whose folder and manifest are the run's.

    It is not opened again: in an object store that is a request per shard.
    """

    def __init__(self, run: Run) -> None:
        self.path, self.folders, self.manifest = run.path, run.folders, run.manifest
        self._parts, self._folder_of = run._parts, run._folder_of
        self._shards, self._verified = run._shards, run._verified
        self._clear()
        self._whole = run

    @cached_property
    def steered(self) -> bool:
        return self._whole.steered


class Part(RunView):
    """A run's candidates and scores of some of its items.

    Args:
        run: the whole.
        positions: in the split, of the items to keep.
    """

    def __init__(self, run: Run, positions: NDArray[np.int64]) -> None:
        super().__init__(run)
        self._kept = np.isin(run.head["item"].to_numpy(), positions)  # (R,)

    @cached_property
    def n(self) -> int:
        return self._whole.n if self.steered else super().n

    @cached_property
    def index(self) -> NDArray[np.intp]:
        return np.asarray(self._whole.index[self._kept])

    @cached_property
    def head(self) -> pa.Table:
        return self._whole.head.filter(pa.array(self._kept))

    def tokens(self) -> pa.ListArray:
        return self._whole.tokens().filter(pa.array(self._kept))

    def signals(self, names: Sequence[str] = SIGNALS) -> dict[str, Array]:
        of_tokens = np.repeat(self._kept, self._whole.lengths)
        return {name: values[of_tokens] for name, values in self._whole.signals(names).items()}

    @cached_property
    def _by_layer(self) -> Floats:
        return np.asarray(self._whole.by_layer()[np.repeat(self._kept, self._whole.lengths)])

    def _table_of(self, name: str) -> dict[int, dict[str, Any]]:
        kept = set(self.places.tolist())
        return {at: row for at, row in self._whole._table_of(name).items() if at in kept}


class Complete(Part):
    """A run without its pruned candidates; the others keep their places, and theirs are empty.

    So nobody who counts, reads or ranks candidates has to know of pruning: studies are given this.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run, run.places)
        self._kept = ~run.pruned


class Shard(RunView):
    """The items of one shard: the tokens of a long run need not be in memory at once.

    Args:
        run: the whole, which says how many candidates an item has and which scorers are recorded.
        shard: its number.
    """

    def __init__(self, run: Run, shard: int) -> None:
        super().__init__(run)
        self._shards = {
            table: [shard] if shard in numbers else [] for table, numbers in run._shards.items()
        }

    @cached_property
    def n(self) -> int:
        return self._whole.n

    @property
    def recorded(self) -> list[str]:
        return self._whole.recorded


def by_shard(run: Run) -> Iterator[Run]:
    """Yield a run's complete shards in their order, each as a run of its own items."""
    for shard in run._shards["items"]:
        yield Shard(run, shard)


def items_with_quality(run: Run) -> Run:
    """Return the items all of whose candidates have a quality; the run itself if all have."""
    first = np.cumsum(run.sizes) - run.sizes
    unknown = np.isnan(run.head["quality"].to_numpy().astype(np.float64))
    known = np.add.reduceat(unknown, first) == 0 if len(first) else np.ones(0, dtype=bool)
    return run if known.all() else Part(run, run.places[known])

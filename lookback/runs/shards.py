"""A run shard by shard: the tokens of a long one need not be in memory at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from lookback.runs.run import Run


class ShardOf(Run):
    """The items of one shard, as a run; how many candidates there are is what the whole says.

    Args:
        run: the whole.
        shard: its number.
    """

    def __init__(self, run: Run, shard: int) -> None:
        # Not opened again: in an object store that is a request per shard.
        self.path, self.folders, self.manifest = run.path, run.folders, run.manifest
        self._parts, self._folder_of, self._verified = run._parts, run._folder_of, run._verified
        self._shards = {
            table: [shard] if shard in numbers else [] for table, numbers in run._shards.items()
        }
        self._clear()
        self._whole = run

    @cached_property
    def n(self) -> int:
        """How many candidates an item of the whole has, at most."""
        return self._whole.n

    @cached_property
    def steered(self) -> bool:
        """As the whole is."""
        return self._whole.steered

    @property
    def recorded(self) -> list[str]:
        """Those of the whole."""
        return self._whole.recorded


def by_shard(run: Run) -> Iterator[Run]:
    """A run's complete shards in their order, each as a run of its own items."""
    for shard in run._shards["items"]:
        yield ShardOf(run, shard)

"""The most memory that tensors took at one time, counted: the same on every device, every time."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor

from lookback.engines.transformers.compat import TorchDispatchMode, tree_iter


class PeakMemory(TorchDispatchMode):
    """Adds up the tensors that operations inside the block make, for as long as they are alive.

    What a kernel needs for itself, and gives back before it returns, is not seen.

    Attributes:
        peak: bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._now = 0
        self._alive: dict[int, int] = {}  # storage to bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, and count what is new."""
        given = {_storage(one) for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)}
        out = func(*args, **(kwargs or {}))
        for one in tree_iter(out):
            if isinstance(one, Tensor) and _storage(one) not in given:
                self._count(one)
        return out

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        place = storage._cdata
        if place in self._alive:
            return
        self._alive[place] = storage.nbytes()
        self._now += storage.nbytes()
        self.peak = max(self.peak, self._now)
        weakref.finalize(storage, self._free, place)

    def _free(self, place: int) -> None:
        self._now -= self._alive.pop(place, 0)


def _storage(tensor: Tensor) -> int:
    place: int = tensor.untyped_storage()._cdata
    return place

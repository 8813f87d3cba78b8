"""The signals of requests in one worker, until they are fetched.

Attention is filed when a step's pass ends, statistics of the logits when its tokens are drawn. Both
are filed by the token's position in its response: a step that is done twice (for a request that was
preempted) is filed twice in one place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

MOST = 2**17
"""Responses that are kept; beyond that, the oldest is dropped. More than can be in flight."""
EVERY = 32
"""Steps whose signals may wait on the device."""
Floats = NDArray[np.float32]


@dataclass
class Record:
    """What one worker recorded of one response.

    Attributes:
        looks: (T,) or (T, L): this worker's part of the attention on the source, a mean over all
            heads of each layer, summed over its layers or for each of them.
        stats: (T, 3): log p, self-certainty, entropy.
        top: (T, 2 k): log p of the k likeliest tokens, and their ids, which float32 holds exactly
            as long as a vocabulary has fewer than 2^24.
    """

    looks: Floats
    stats: Floats
    top: Floats

    @classmethod
    def empty(cls, length: int, layers: int | None, top: int = 0) -> Record:
        """Make a record of NaN."""
        shapes = ((length,) if layers is None else (length, layers), (length, 3), (length, 2 * top))
        return cls(*(np.full(shape, np.nan, np.float32) for shape in shapes))

    def at(self, token: int) -> Place | None:
        """Return the place of a token; None before the response begins, or beyond its room."""
        return (self, token) if 0 <= token < len(self.stats) else None

    def to_bytes(self, tokens: slice = slice(None)) -> Packed:
        """Return looks, stats and top of some of its tokens."""
        return (
            self.looks[tokens].tobytes(),
            self.stats[tokens].tobytes(),
            self.top[tokens].tobytes(),
        )


Packed = tuple[bytes, bytes, bytes]
Place = tuple[Record, int]
"""Where signals go: the record, and which token of the response."""


class Ledger:
    """Records by name."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._waiting: list[tuple[str, list[Place], Tensor]] = []

    def __len__(self) -> int:
        return len(self._records)

    def open(self, name: str, length: int, layers: int | None, top: int = 0) -> Record:
        """Return the record of a response, made if there is none."""
        if name not in self._records:
            while len(self._records) >= MOST:
                self._records.popitem(last=False)
            self._records[name] = Record.empty(length, layers, top)
        return self._records[name]

    def file(self, kind: str, places: list[Place], values: Tensor) -> None:
        """File values for tokens: `looks` (R, L), `stats` (R, 3) or `top` (R, 2, k).

        They may stay on the device. A record that wants fewer likeliest tokens takes the first.
        """
        self._waiting.append((kind, places, values))
        if len(self._waiting) >= 2 * EVERY:
            self._settle()

    def _settle(self) -> None:
        for kind, places, values in self._waiting:
            host = values.float().cpu().numpy()
            if kind == "stats":
                for (record, place), row in zip(places, host, strict=True):
                    record.stats[place] = row
                continue
            if kind == "top":
                for (record, place), row in zip(places, host, strict=True):
                    record.top[place] = row[:, : record.top.shape[1] // 2].reshape(-1)
                continue
            total = host.sum(1)
            for (record, place), row, whole in zip(places, host, total, strict=True):
                record.looks[place] = whole if record.looks.ndim == 1 else row
        self._waiting = []

    def take(self, names: Sequence[str]) -> dict[str, Packed]:
        """Remove records and return them as bytes, as far as they are there."""
        self._settle()
        return {name: self._records.pop(name).to_bytes() for name in names if name in self._records}

    def peek(self, spans: Mapping[str, Sequence[int]]) -> dict[str, Packed]:
        """Return some tokens, (start, end), of records that stay, as far as they are there."""
        self._settle()
        return {
            name: self._records[name].to_bytes(slice(*span))
            for name, span in spans.items()
            if name in self._records
        }

    def drop(self, key: str) -> None:
        """Drop all candidates of a request."""
        for name in [name for name in self._records if name.startswith(f"{key}/")]:
            del self._records[name]

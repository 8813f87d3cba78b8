"""The same candidates with another image, or with none, beside those of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lookback.runs import Run
from lookback.scores.formula import Array

COMPARED = ("log_prob", "visual_lookback")
"""The signals that are shown of a control: those of the formula."""


class Control:
    """A run's candidates, scored again with another image.

    Args:
        run: whose candidates they are.
        other: the run that scored them again.
    """

    def __init__(self, run: Run, other: Run) -> None:
        self.image = other.image
        self._about = {row["item"]: row for row in _heads(other).to_pylist()}
        self._own, self._other = _spans(run), _spans(other)
        self._ids = token_ids(run), token_ids(other)
        self._signals = other.signals(COMPARED)

    def of(self, place: int, count: int) -> tuple[dict[str, Any], dict[str, list[Array]]]:
        """What the page says of an item here, and the signals of the candidates that it has.

        Args:
            place: the item's position in the split.
            count: how many candidates the run has of it.
        """
        spans = [self._span(place, index) for index in range(count)]
        found = [span for span in spans if span is not None]
        numbers = {name: [values[span] for span in found] for name, values in self._signals.items()}
        row = self._about.get(place, {})
        about = {
            "source": row.get("image"),
            "scored": [span is not None for span in spans],
            "missing": "" if len(found) == count else self._reason(row),
        }
        return about, numbers

    def _span(self, place: int, index: int) -> slice | None:
        """Where the tokens of a candidate are; None where the control has not the same ones."""
        own, other = self._own[place, index], self._other.get((place, index))
        if other is None or not np.array_equal(self._ids[0][own], self._ids[1][other]):
            return None
        return other

    def _reason(self, row: dict[str, Any]) -> str:
        if not row:
            return "the control has not come to this item"
        return row["error"] or "the control has other tokens for this candidate, or none"


def token_ids(run: Run) -> NDArray[Any]:
    """Of all tokens of all candidates."""
    column = run.table("candidates", ["token_ids"])["token_ids"].combine_chunks()
    ids: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
    return ids


def _heads(run: Run) -> pa.Table:
    return run.items.select(["item", "image", "error"])


def _spans(run: Run) -> dict[tuple[int, int], slice]:
    """By an item's position and a candidate's index: where its tokens are among all."""
    ends = np.cumsum(run.lengths)
    starts = (ends - run.lengths).tolist()
    keys = zip(run.head["item"].to_pylist(), run.head["index"].to_pylist(), strict=True)
    spans = map(slice, starts, ends.tolist())
    return dict(zip(keys, spans, strict=True))

"""What the model was shown, once more: conversations of a run's items with their images.

They come from the benchmark again; an image whose hash is another than the run's is not taken.
"""

from __future__ import annotations

from typing import Any

from lookback.benchmarks.base import Item
from lookback.conversations import Conversation
from lookback.exports.entries import Row
from lookback.runs import Run
from lookback.runs.again import Again
from lookback.runs.layout import RunError

HASHED = "sha256:"


class Shown:
    """The conversations of a run's items."""

    def __init__(self, run: Run) -> None:
        self._again = Again(run)
        places, names = (run.items[column].to_pylist() for column in ("item", "id"))
        self._places: dict[str, int] = dict(zip(names, places, strict=True))

    def of(self, row: Row) -> Conversation | str:
        """What was asked of an item, with images (those of another item in a control with random
        images); or why they cannot be had.
        """
        if self._again.reason:
            return self._again.reason
        try:
            own = self._item(row["id"]).conversation
            if row["image"] is None:
                shown = own.with_images(None)
            elif row["image"] == row["id"]:
                shown = own
            else:
                shown = own.with_images(self._item(row["image"]).conversation.images)
            shown.images  # noqa: B018  (read now)
        except (OSError, ValueError, IndexError, KeyError) as error:
            return str(error)
        return _difference(shown, row["messages"]) or shown

    def needed(self, row: Row) -> Conversation:
        """The same.

        Raises:
            RunError: the images cannot be had.
        """
        shown = self.of(row)
        if isinstance(shown, str):
            raise RunError(f"no image of {row['id']!r}: {shown}; --no-images goes without")
        return shown

    def _item(self, name: str) -> Item:
        return self._again.item(self._places[name])


def _difference(shown: Conversation, recorded: Any) -> str | None:
    """Why this is not what was recorded; None if it is. (Format 1 recorded nothing.)"""
    if recorded is None:
        return None
    now, then = _parts(shown.to_json()), _parts(recorded)
    if [kind for kind, _ in now] != [kind for kind, _ in then]:
        return "the benchmark asks it otherwise than the run did"
    for (kind, value), (_, before) in zip(now, then, strict=True):
        if kind == "text" and value != before:
            return "the benchmark asks it with other words than the run did"
        if kind != "text" and str(before).startswith(HASHED) and value != before:
            return f"the benchmark has {kind} {value}, the run was shown {before}"
    return None


def _parts(messages: Any) -> list[tuple[str, Any]]:
    return [(one["type"], one[one["type"]]) for turn in messages for one in turn["content"]]

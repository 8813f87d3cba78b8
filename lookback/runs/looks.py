"""Where the picks of a run's first items looked: rows of the table `looks`, and back.

A row per look, of a candidate of an item; weights keep `lookback.looks.look.BITS` bits of their
fraction. Images are not in a run: a look that is read has those of the benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.looks.look import Look, Picture, rounded
from lookback.runs.items import ItemLookup
from lookback.runs.layout import RunError
from lookback.scores.base import get_scorer

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.conversations import Conversation
    from lookback.runs.run import Run
    from lookback.signals import Candidate, Candidates

METHODS = ("lookback", "self_certainty")
"""Whose picks are looked at: the paper's, and what it is compared with most."""


def find_picks(candidates: Candidates) -> dict[int, list[str]]:
    """Return the candidates to look at, by index, with the methods that pick them."""
    picks: dict[int, list[str]] = {}
    for name in METHODS:
        scores = get_scorer(name).of_candidates(candidates, {})
        if not np.isnan(scores).all():
            picks.setdefault(int(np.nanargmax(scores)), []).append(name)
    return picks


def look_row(
    place: int, index: int, methods: Sequence[str], look: Look, conversation: Conversation
) -> dict[str, Any]:
    """Return the table's row of a look: of an item's candidate, which some methods pick."""
    return empty_row(place, index, methods) | {
        "layers": list(look.layers),
        "pictures": [picture.name for picture in look.pictures],
        "frames": [_frame(picture, conversation) for picture in look.pictures],
        "columns": [picture.columns.tolist() for picture in look.pictures],
        "boxes": [
            None if picture.boxes is None else picture.boxes.ravel() for picture in look.pictures
        ],
        "grids": [[grid.tolist() for grid in picture.grids] for picture in look.pictures],
        "weights": list(rounded(look.weights)),
    }


def empty_row(place: int, index: int, methods: Sequence[str]) -> dict[str, Any]:
    """Return the row of a look that failed."""
    names = ("layers", "pictures", "frames", "columns", "boxes", "grids", "weights", "error")
    return {"item": place, "index": index, "methods": list(methods)} | dict.fromkeys(names)


def read_look(row: dict[str, Any], candidate: Candidate, conversation: Conversation) -> Look:
    """Return the look of a row, given its candidate and what was asked."""
    pictures = [
        Picture(
            name,
            _image(conversation, name, row["frames"][i]),
            np.array(row["columns"][i]),
            None if row["boxes"][i] is None else np.array(row["boxes"][i]).reshape(-1, 4),
            tuple(np.array(grid) for grid in row["grids"][i]),
        )
        for i, name in enumerate(row["pictures"])
    ]
    first, stop = row["layers"]
    return Look(
        candidate.text,
        candidate.token_ids,
        candidate.tokens,
        np.array(row["weights"], dtype=np.float32),
        tuple(pictures),
        (first, stop),
    )


def _number(name: str) -> tuple[str, int]:
    """Return what "image:0" and "video:0/3" belong to: the kind, and which of them."""
    kind, _, rest = name.partition(":")
    return kind, int(rest.partition("/")[0])


def _frame(picture: Picture, conversation: Conversation) -> int | None:
    """Return which frame of its video a picture is.

    A model need not see each, so its name does not tell.
    """
    kind, number = _number(picture.name)
    if kind == "image":
        return None
    shown = picture.image.size, picture.image.tobytes()
    for frame, image in enumerate(conversation.videos[number]):
        if (image.size, image.tobytes()) == shown:
            return frame
    raise ValueError(f"{picture.name} is no frame of the video that was shown")


def _image(conversation: Conversation, name: str, frame: int | None) -> Image:
    _, number = _number(name)
    return conversation.images[number] if frame is None else conversation.videos[number][frame]


class Looks:
    """The looks of a run, by the items' positions and the candidates' indices."""

    def __init__(self, run: Run) -> None:
        self._run = run
        rows = run.table("looks").to_pylist() if run.manifest.looks else []
        self._rows = {(row["item"], row["index"]): row for row in rows if row["error"] is None}
        self._lookup: ItemLookup | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, place: int) -> list[int]:
        """Return the candidates of an item that have one."""
        return sorted(index for item, index in self._rows if item == place)

    def methods(self, place: int, index: int) -> list[str]:
        """Return those that pick this candidate."""
        return list(self._rows[place, index]["methods"])

    def read(self, place: int, index: int) -> Look:
        """Return where a candidate looked, on the benchmark's images.

        Raises:
            RunError: there is no such look, or the benchmark has another item there.
            OSError, ValueError: its data cannot be read.
        """
        if (place, index) not in self._rows:
            raise RunError(
                f"{self._run.path} has no look of candidate {index} of item {place}: "
                f"`lookback run --look N` keeps those of the picks of the first N items"
            )
        if self._lookup is None:
            self._lookup = ItemLookup(self._run)
        conversation = self._lookup.item(place).conversation
        candidate = self._run.candidates_at(place)[index]
        return read_look(self._rows[place, index], candidate, conversation)

"""Where the picks of a run's first items looked: rows of the table `looks`, and back.

A row per look, of a candidate of an item. Its weights have `lookback.looks.look.BITS` bits of their
fraction. Images are not in a run: a look that is read has those of the benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.looks.look import Look, Picture, rounded
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
    """The candidates to look at, by index, with the methods that pick them; no empty ones."""
    found: dict[int, list[str]] = {}
    for name in METHODS:
        scores = get_scorer(name).of_candidates(candidates, {})
        if not np.isnan(scores).all():
            found.setdefault(int(np.nanargmax(scores)), []).append(name)
    return found


def look_row(
    place: int, index: int, methods: Sequence[str], look: Look, conversation: Conversation
) -> dict[str, Any]:
    """A look as the table has it.

    Args:
        place, index: of the item and its candidate.
        methods: those that pick it.
        look: where it looked.
        conversation: what was asked.
    """
    return empty_row(place, index, methods) | {
        "layers": list(look.layers),
        "pictures": [one.name for one in look.pictures],
        "frames": [_frame(one, conversation) for one in look.pictures],
        "columns": [one.columns.tolist() for one in look.pictures],
        "boxes": [None if one.boxes is None else one.boxes.ravel() for one in look.pictures],
        "grids": [[grid.tolist() for grid in one.grids] for one in look.pictures],
        "weights": list(rounded(look.weights)),
    }


def empty_row(place: int, index: int, methods: Sequence[str]) -> dict[str, Any]:
    """The row of a look that there is not."""
    names = ("layers", "pictures", "frames", "columns", "boxes", "grids", "weights", "error")
    return {"item": place, "index": index, "methods": list(methods)} | dict.fromkeys(names)


def read_look(row: dict[str, Any], candidate: Candidate, conversation: Conversation) -> Look:
    """A look from its row, its candidate, and what was asked."""
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
    """What "image:0" and "video:0/3" are of: the kind, and which of them."""
    kind, _, rest = name.partition(":")
    return kind, int(rest.partition("/")[0])


def _frame(picture: Picture, conversation: Conversation) -> int | None:
    """Which frame of its video a picture is; a model need not see each, so its name does not tell.

    Raises:
        ValueError: it is none of them.
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
    """The image or the frame that a look is on."""
    _, number = _number(name)
    return conversation.images[number] if frame is None else conversation.videos[number][frame]


class Looks:
    """The looks of a run, by the items' positions and the candidates' indices.

    Args:
        run: whose they are; one without any has none here.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        rows = run.table("looks").to_pylist() if run.manifest.looks else []
        self._rows = {(row["item"], row["index"]): row for row in rows if row["error"] is None}
        self._items: Any = None

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, place: int) -> list[int]:
        """The candidates of an item that have one."""
        return sorted(index for item, index in self._rows if item == place)

    def methods(self, place: int, index: int) -> list[str]:
        """Those that pick this candidate."""
        return list(self._rows[place, index]["methods"])

    def read(self, place: int, index: int) -> Look:
        """Where a candidate looked, on the benchmark's images.

        Raises:
            RunError: there is no such look, or the benchmark has another item there.
            OSError, ValueError: its data cannot be read.
        """
        if (place, index) not in self._rows:
            raise RunError(
                f"{self._run.path} has no look of candidate {index} of item {place}: "
                f"`lookback run --look N` keeps those of the picks of the first N items"
            )
        conversation = self._conversation(place)
        candidate = self._run.candidates_at(place)[index]
        return read_look(self._rows[place, index], candidate, conversation)

    def _conversation(self, place: int) -> Conversation:
        from lookback.benchmarks.base import get_benchmark

        run = self._run
        if self._items is None:
            benchmark = get_benchmark(run.benchmark, run.manifest.data)
            self._items = benchmark.items(str(run.settings["split"]))
        item = self._items[place]
        rows = run.items.select(["item", "id"]).to_pylist()
        name = next(row["id"] for row in rows if row["item"] == place)
        if item.id != name:
            raise RunError(f"the benchmark has {item.id} where the run has {name}")
        found: Conversation = item.conversation
        return found

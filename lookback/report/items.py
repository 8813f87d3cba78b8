"""A run's items, in blocks: questions, candidates, pictures, and what controls recorded.

A block (see pages/blocks.py) has of each item: truth [[name, text]], image (a position among the
page's, or null), reason (why there is none), candidates [tokens, quality or null, finish] each, as
drawn, and

controls   by the image it was scored with ("random", "none"): image, reason, source (the id of the
           item whose image it was, or null), scored (of each candidate: whether its numbers are
           here), and missing (why they are not, where they are not)

looks      by a candidate's index, for those that have one: see pages/look.py; the picture is
           the item's

Its numbers are the signals of all tokens of the block; "random.log_prob" those of a control, and
"look.weights" those of looks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lookback.io.json_values import facts, finite
from lookback.pages import image_uri
from lookback.pages.blocks import pack
from lookback.pages.look import look_head, look_numbers
from lookback.runs import Run
from lookback.runs.items import item_images
from lookback.scores.formula import Array
from lookback.signals import SIGNALS
from lookback.studies import Runs

if TYPE_CHECKING:
    from lookback.looks.look import Look

SHOWN = "image:0"
"""The picture that is shown of an item, as looks name it."""
CONTROLS = {"random": "another image", "none": "no image"}
"""The controls that are compared, and what they are called."""
COMPARED = ("log_prob", "visual_lookback")
"""The signals that are shown of a control: those of the formula."""
ITEMS = 20
"""How many items a block has: few, so that it opens at once; many, so that it compresses."""
LARGEST = 384
"""Pixels of a picture's longer side, at most."""


@dataclass
class ItemBlocks:
    """The first items of a run.

    Attributes:
        controls: the names of the controls that it has, by image.
        blocks: as `pack` makes them.
        texts: of each item, those of its candidates.
    """

    controls: dict[str, str]
    blocks: list[str] = field(default_factory=list)
    texts: list[list[str]] = field(default_factory=list)


class Pictures:
    """The pictures of a page as data URIs, each once, whichever runs and items show it."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self._positions: dict[tuple[Any, ...], int] = {}

    @property
    def size(self) -> int:
        """Characters that they take in the page."""
        return sum(map(len, self.uris))

    def of(self, run: Run) -> Callable[[int, str], tuple[int | None, str]]:
        """Return a function from an item's position in the split and its id to its picture.

        That is a position among `uris` and ""; or None and why there is none.
        """
        image_at = item_images(run)

        def find(place: int, name: str) -> tuple[int | None, str]:
            key = (run.benchmark, run.settings["split"], run.settings.get("items"), name)
            if key not in self._positions:
                image = image_at(place)
                if isinstance(image, str):
                    return None, image
                self.uris.append(image_uri(image, LARGEST))
                self._positions[key] = len(self.uris) - 1
            return self._positions[key], ""

        return find


class Items:
    """All items of a run that have candidates.

    Args:
        run: whose they are.
        runs: among which its controls are.
        pictures: to which theirs are added.
    """

    def __init__(self, run: Run, runs: Runs, pictures: Pictures) -> None:
        self._run, self._pictures = run, pictures
        controls = [(image, runs.control(run, image)) for image in CONTROLS]
        self._controls = {
            image: Control(run, control) for image, control in controls if control is not None
        }
        self._about = {row["item"]: row for row in run.items.drop_columns("prompt_ids").to_pylist()}
        self._places = {row["id"]: place for place, row in self._about.items()}
        self._picture = pictures.of(run)
        self._rows = np.concatenate([[0], np.cumsum(run.sizes)]).tolist()
        self._ends = np.concatenate([[0], np.cumsum(run.lengths)]).tolist()
        self._tokens, self._signals = run.tokens(), run.signals()

    def read(self, items: int | None, budget: int) -> ItemBlocks:
        """Return the first items.

        Args:
            items: how many; None for all that fit into the budget.
            budget: characters of blocks and new pictures, after which the last block is made.
        """
        made = ItemBlocks({image: CONTROLS[image] for image in self._controls})
        count = len(self._run.places[:items])
        before = self._pictures.size
        for start in range(0, count, ITEMS):
            block, numbers = self._block(range(start, min(count, start + ITEMS)))
            made.blocks.append(pack(block, numbers))
            made.texts += [["".join(c[0]) for c in item["candidates"]] for item in block]
            spent = sum(map(len, made.blocks)) + self._pictures.size - before
            if items is None and spent > budget:
                break
        return made

    def _block(self, rows: range) -> tuple[list[dict[str, Any]], dict[str, Array]]:
        """Return the items in some rows, and the numbers of their tokens."""
        tokens = slice(*(self._ends[self._rows[row]] for row in (rows.start, rows.stop)))
        numbers: dict[str, list[Any]]
        numbers = {name: [self._signals[name][tokens]] for name in SIGNALS}
        items = []
        for row in rows:
            item = self._item(row)
            for image, control in self._controls.items():
                about, values = control.of(int(self._run.places[row]), len(item["candidates"]))
                item["controls"][image] = about | self._picture_of(about["source"])
                for name in COMPARED:
                    numbers.setdefault(f"{image}.{name}", []).extend(values[name])
            for index, look in self._looks(row, item["image"]).items():
                item["looks"][index] = look_head(look)
                for name, parts in look_numbers(look).items():
                    numbers.setdefault(f"look.{name}", []).append(parts)
            items.append(item)
        return items, {name: np.concatenate([np.empty(0), *v]) for name, v in numbers.items()}

    def _item(self, row: int) -> dict[str, Any]:
        about = self._about[int(self._run.places[row])]
        candidates = slice(self._rows[row], self._rows[row + 1])
        heads = self._run.head[candidates]
        image, reason = self._picture(about["item"], about["id"])
        columns = (self._tokens[candidates], heads["quality"], heads["finish"])
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return {
            "truth": facts(json.loads(about["truth"])),
            "image": image,
            "reason": reason,
            "candidates": [[tokens, finite(quality), finish] for tokens, quality, finish in rows],
            "controls": {},
            "looks": {},
        }

    def _looks(self, row: int, image: int | None) -> dict[int, Look]:
        """Return where candidates of an item looked in the picture that is shown, if any."""
        place = int(self._run.places[row])
        if image is None:
            return {}
        looks = {index: self._run.looks.read(place, index) for index in self._run.looks.of(place)}
        return {
            index: replace(look, pictures=(shown,))
            for index, look in looks.items()
            for shown in look.pictures
            if shown.name == SHOWN
        }

    def _picture_of(self, source: str | None) -> dict[str, Any]:
        """Return the picture of the item that a control took it from."""
        if source is None:
            return {"image": None, "reason": ""}
        if source not in self._places:
            return {"image": None, "reason": f"it is that of {source}, which is not in this run"}
        image, reason = self._picture(self._places[source], source)
        return {"image": image, "reason": reason}


class Control:
    """A run's candidates, scored again with another image or none.

    Args:
        run: whose candidates they are.
        other: the run that scored them again.
    """

    def __init__(self, run: Run, other: Run) -> None:
        heads = other.items.select(["item", "image", "error"]).to_pylist()
        self._about = {row["item"]: row for row in heads}
        self._own, self._other = _spans(run), _spans(other)
        self._ids = _token_ids(run), _token_ids(other)
        self._signals = other.signals(COMPARED)

    def of(self, place: int, count: int) -> tuple[dict[str, Any], dict[str, list[Array]]]:
        """Return the control's part of an item, and the signals of the candidates that it has.

        Args:
            place: the item's position in the split.
            count: how many candidates the run has of it.
        """
        spans = [self._span(place, index) for index in range(count)]
        scored = [span for span in spans if span is not None]
        numbers = {
            name: [values[span] for span in scored] for name, values in self._signals.items()
        }
        row = self._about.get(place, {})
        about = {
            "source": row.get("image"),
            "scored": [span is not None for span in spans],
            "missing": "" if len(scored) == count else self._reason(row),
        }
        return about, numbers

    def _span(self, place: int, index: int) -> slice | None:
        """Return where a candidate's tokens are; None if the control does not have the same."""
        own, other = self._own[place, index], self._other.get((place, index))
        if other is None or not np.array_equal(self._ids[0][own], self._ids[1][other]):
            return None
        return other

    def _reason(self, row: dict[str, Any]) -> str:
        if not row:
            return "the control has not come to this item"
        return row["error"] or "the control has other tokens for this candidate, or none"


def _token_ids(run: Run) -> NDArray[Any]:
    column = run.table("candidates", ["token_ids"])["token_ids"].combine_chunks()
    ids: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
    return ids


def _spans(run: Run) -> dict[tuple[int, int], slice]:
    """Return where a candidate's tokens are among all, by an item's position and its index."""
    ends = np.cumsum(run.lengths)
    starts = (ends - run.lengths).tolist()
    keys = zip(run.head["item"].to_pylist(), run.head["index"].to_pylist(), strict=True)
    spans = map(slice, starts, ends.tolist())
    return dict(zip(keys, spans, strict=True))

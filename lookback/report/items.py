"""A run's items, in blocks: what each was asked, what its candidates say, what controls add.

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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.io.json_values import facts, finite
from lookback.pages.blocks import pack
from lookback.pages.look import look_head, look_numbers
from lookback.report.controls import COMPARED, Control
from lookback.report.pictures import Pictures
from lookback.runs import Run
from lookback.scores.formula import Array
from lookback.signals import SIGNALS
from lookback.studies import Runs

if TYPE_CHECKING:
    from lookback.looks.look import Look

SHOWN = "image:0"
"""The picture that is shown of an item, as looks name it."""
CONTROLS = {"random": "another image", "none": "no image"}
"""The controls that are compared, and what they are called."""
ITEMS = 20
"""How many items a block has: few, so that it opens at once; many, so that it compresses."""


@dataclass
class Part:
    """The first items of a run.

    Attributes:
        controls: the names of the controls that it has, by image.
        blocks: as `pack` makes them.
        texts: of each item, those of its candidates.
    """

    controls: dict[str, str]
    blocks: list[str] = field(default_factory=list)
    texts: list[list[str]] = field(default_factory=list)


class Items:
    """All items of a run that have candidates.

    Args:
        run: whose they are.
        runs: among which its controls are.
        pictures: to which theirs are added.
    """

    def __init__(self, run: Run, runs: Runs, pictures: Pictures) -> None:
        self._run, self._pictures = run, pictures
        found = [(image, runs.control(run, image)) for image in CONTROLS]
        self._controls = {image: Control(run, one) for image, one in found if one is not None}
        self._about = {row["item"]: row for row in run.items.drop_columns("prompt_ids").to_pylist()}
        self._places = {row["id"]: place for place, row in self._about.items()}
        self._picture = pictures.of(run)
        self._rows = np.concatenate([[0], np.cumsum(run.sizes)]).tolist()
        self._ends = np.concatenate([[0], np.cumsum(run.lengths)]).tolist()
        self._tokens, self._signals = run.tokens(), run.signals()

    def part(self, items: int | None, budget: int) -> Part:
        """The first items.

        Args:
            items: how many; None for all that fit.
            budget: after how many characters of blocks and new pictures the last block is made,
                if it is None.
        """
        made = Part({image: CONTROLS[image] for image in self._controls})
        count = len(self._run.places[:items])
        before = self._pictures.size
        for start in range(0, count, ITEMS):
            found, numbers = self._block(range(start, min(count, start + ITEMS)))
            made.blocks.append(pack(found, numbers))
            made.texts += [["".join(c[0]) for c in item["candidates"]] for item in found]
            if items is None and self._spent(made, before) > budget:
                break
        return made

    def _spent(self, made: Part, before: int) -> int:
        return sum(map(len, made.blocks)) + self._pictures.size - before

    def _block(self, rows: range) -> tuple[list[dict[str, Any]], dict[str, Array]]:
        """The items in those rows, and the numbers of their tokens."""
        tokens = slice(*(self._ends[self._rows[row]] for row in (rows.start, rows.stop)))
        numbers: dict[str, list[Any]]
        numbers = {name: [self._signals[name][tokens]] for name in SIGNALS}
        found = []
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
            found.append(item)
        return found, {name: np.concatenate([np.empty(0), *v]) for name, v in numbers.items()}

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
        """Where candidates of an item looked in the picture that is shown, if there is one."""
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
        """The picture of the item that a control took it from."""
        if source is None:
            return {"image": None, "reason": ""}
        if source not in self._places:
            return {"image": None, "reason": f"it is that of {source}, which is not in this run"}
        image, reason = self._picture(self._places[source], source)
        return {"image": image, "reason": reason}

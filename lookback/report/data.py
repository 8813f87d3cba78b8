"""What the page's item browser works on: runs in, plain data for JSON out.

floor      A_FLOOR of the formula
general    the paper's one setting for all models, {"alpha", "lam"}
methods    by the names of their scorers, {"title", "color"} as the scorers have them
images     data URIs; items refer to them by position, so that runs of a benchmark share them
runs       of each: label, alpha, lam, n, total (items it has), and
  items      of each: id, question, truth [[name, text]], image (a position, or null),
             reason (why there is no image), and
    candidates [tokens, quality or null, finish] each, in the order drawn
  signals    by name: float32, little-endian, base64; the tokens of all candidates of all items
             one after another: the very bits, so that the page ranks as Python does
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from lookback.families import GENERIC
from lookback.pages import image_uri, images
from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import A_FLOOR, Array
from lookback.signals import SIGNALS
from lookback.studies import title

SHOWN = ("lookback", "self_certainty", "mean_log_prob", "visual_lookback", "random", "oracle")
"""The methods whose picks, or expected picks, the page works out."""
LARGEST = 384
"""Pixels that an image of an item has at most."""


class Pictures:
    """Data URIs of images, each once, whichever runs show it."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self._found: dict[tuple[Any, ...], int] = {}

    def of(self, run: Run) -> Callable[[int, str], tuple[int | None, str]]:
        """From an item's position in the split and its id to the position among `uris` of its image
        and ""; or to None and why there is none.
        """
        image_at = images(run)

        def find(place: int, name: str) -> tuple[int | None, str]:
            key = (run.benchmark, run.settings["split"], run.settings.get("items"), name)
            if key not in self._found:
                image = image_at(place)
                if isinstance(image, str):
                    return None, image
                self.uris.append(image_uri(image, LARGEST))
                self._found[key] = len(self.uris) - 1
            return self._found[key], ""

        return find


def browser_data(runs: Sequence[Run], items: int) -> dict[str, Any]:
    """The first `items` items of each run that is no control.

    Items that failed have nothing to show and are passed over, and so are runs of such alone.
    """
    pictures = Pictures()
    methods = [get_scorer(name) for name in SHOWN]
    shown = [run for run in runs if run.image == "own" and len(run.places) and items > 0]
    return {
        "floor": A_FLOOR,
        "general": {"alpha": GENERIC.alpha, "lam": GENERIC.lam},
        "methods": {one.name: {"title": one.title, "color": one.color} for one in methods},
        "runs": [
            _run(run, label, items, pictures)
            for run, label in zip(shown, labels(shown), strict=True)
        ],
        "images": pictures.uris,
    }


def labels(runs: Sequence[Run]) -> list[str]:
    """A name per run: model, benchmark, seed; its folder too where that is not enough."""
    short = []
    for run in runs:
        seed = [] if run.seed is None else [f"seed {run.seed}"]
        short.append(" · ".join([run.model, title(run), *seed]))
    return [
        f"{label} · {run.path.name}" if short.count(label) > 1 else label
        for run, label in zip(runs, short, strict=True)
    ]


def _run(run: Run, label: str, items: int, pictures: Pictures) -> dict[str, Any]:
    sizes = run.sizes[:items].tolist()
    candidates = sum(sizes)
    tokens = int(run.lengths[:candidates].sum())
    words = run.table("candidates", ["tokens"])["tokens"].slice(0, candidates)
    heads = run.head.slice(0, candidates)
    columns = (words.to_pylist(), heads["quality"].to_pylist(), heads["finish"].to_pylist())
    rows = [[w, _number(quality), finish] for w, quality, finish in zip(*columns, strict=True)]
    about = {row["item"]: row for row in run.items.drop_columns(["prompt_ids"]).to_pylist()}
    picture_of = pictures.of(run)
    found, start = [], 0
    for place, size in zip(run.places.tolist(), sizes, strict=False):
        item = about[place]
        image, reason = picture_of(place, item["id"])
        found.append(
            {
                "id": item["id"],
                "question": item["question"],
                "truth": facts(json.loads(item["truth"])),
                "image": image,
                "reason": reason,
                "candidates": rows[start : start + size],
            }
        )
        start += size
    return {
        "label": label,
        "alpha": run.defaults["alpha"],
        "lam": run.defaults["lam"],
        "n": run.n,
        "total": len(run.places),
        "items": found,
        "signals": {name: packed(run.signal(name)[:tokens]) for name in SIGNALS},
    }


def packed(values: Array) -> str:
    """Numbers as float32, little-endian, in base64; signals are float32 and lose nothing."""
    return base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")


def facts(truth: Any) -> list[list[str]]:
    """An item's truth as [name, text] pairs; lists of plain values are joined by commas."""

    def text(value: Any) -> str:
        if isinstance(value, list) and not any(isinstance(one, (list, dict)) for one in value):
            return ", ".join(map(text, value))
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    pairs = truth.items() if isinstance(truth, dict) else [("truth", truth)]
    return [[name, text(value)] for name, value in pairs]


def _number(value: float | None) -> float | None:
    """JSON has no NaN."""
    return None if value is None or math.isnan(value) else value

"""A run as a folder that `datasets.load_dataset` reads: one Parquet file, and a card.

A row is an item with its candidates, or, flat, a candidate. What differs from benchmark to
benchmark (messages, truth) is JSON text, all else is typed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lookback.exports.card import make_card
from lookback.exports.entries import Entry, Row, entries
from lookback.exports.folder import making_folder
from lookback.exports.libraries import need
from lookback.exports.outcomes import Tally
from lookback.exports.request import Request, Written
from lookback.exports.shown import Shown
from lookback.pages import encoded
from lookback.runs.layout import SHARD
from lookback.signals import BY_LAYER, SIGNALS

if TYPE_CHECKING:
    from lookback.engines import Progress

WORDS = ("id", "question", "messages", "source", "truth", "image_of")
JSON = ("messages", "source", "truth")
"""Columns of an item that are JSON text."""


def write(request: Request, progress: Progress) -> Written:
    """Write the folder."""
    datasets = need("datasets", "datasets", "hf-dataset")
    import pyarrow as pa
    import pyarrow.parquet as pq

    run, split = request.run, split_name(str(request.run.settings["split"]))
    features, tally, rows = make_features(datasets, request), Tally.of(request), _Rows(request)
    schema = features.arrow_schema
    with making_folder(request.out) as folder:
        file = folder / "data" / f"{split}-00000-of-00001.parquet"
        file.parent.mkdir()
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            waiting: list[Row] = []
            for number, entry in enumerate(entries(request), start=1):
                tally.add(entry)
                waiting += rows.make(entry)
                if number % SHARD == 0 or number == len(run.items):
                    writer.write_table(pa.Table.from_pylist(waiting, schema=schema))
                    waiting = []
                progress(number, len(run.items))
        written = tally.written(rows.images if request.images else None)
        card = make_card(request, written, split, features)
        (folder / "README.md").write_text(card, encoding="utf-8")
    return written


def split_name(split: str) -> str:
    """A split's name as `datasets` takes it; there, "all" means all splits."""
    return {"all": "full"}.get(split, re.sub(r"\W+", "_", split)) or "full"


def make_features(datasets: Any, request: Request) -> Any:
    """The columns and their types."""
    value, listed = datasets.Value, datasets.List
    tokens = {}
    if request.signals:
        tokens = {"token_ids": listed(value("int32")), "tokens": listed(value("string"))}
        tokens |= {name: listed(value("float32")) for name in SIGNALS}
        if request.run.has_layers:
            tokens[BY_LAYER] = listed(listed(value("float32")))
    candidate = {
        "index": value("int32"),
        "text": value("string"),
        "finish": value("string"),
        "length": value("int32"),
        "quality": value("float64"),
        "scores": {name: value("float64") for name in request.scorers},
        "ranks": {name: value("int32") for name in request.scorers},
        **tokens,
    }
    item = {"item": value("int32")} | {name: value("string") for name in WORDS}
    if request.images:
        item["images"] = listed(datasets.Image())
    if request.flat:
        return datasets.Features(item | candidate)
    more = {"error": value("string"), "candidates": listed(candidate)}
    return datasets.Features(item | more)


class _Rows:
    """Makes rows, and counts their images."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.shown = Shown(request.run) if request.images else None
        self.images = 0

    def make(self, entry: Entry) -> Iterator[Row]:
        """The rows of an item: one, or one per candidate."""
        row = entry.item
        item = {name: row[name] for name in ("item", "id", "question")}
        item |= {name: _json(row[name]) for name in JSON} | {"image_of": row["image"]}
        if self.shown is not None:
            item["images"] = self._images(row)
        if not self.request.flat:
            yield item | {"error": row["error"], "candidates": entry.candidates}
            return
        for one in entry.candidates:
            yield item | one

    def _images(self, row: Row) -> list[dict[str, Any]]:
        """The images that were shown; none of an item that failed, perhaps for want of them."""
        assert self.shown is not None
        if row["error"] is not None:
            return []
        shown = self.shown.needed(row).images
        self.images += len(shown)
        return [{"bytes": encoded(image), "path": None} for image in shown]


def _json(data: Any) -> str | None:
    return None if data is None else json.dumps(data, ensure_ascii=False)

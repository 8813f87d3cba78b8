"""The candidates of one item, from its shard, as an engine gave them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lookback.io.storage import AnyPath
from lookback.runs.layout import CANDIDATES, SHARD, TOKEN_COLUMNS, read_table
from lookback.runs.manifest import Manifest
from lookback.signals import BY_LAYER, Candidate, Candidates, Signals


def read_candidates(folder: AnyPath, manifest: Manifest, place: int) -> Candidates:
    """The candidates of the item at a position of the split, from a shard that is complete."""
    shard = place // SHARD
    about = _only(read_table(folder, "items", shard), place).to_pylist()[0]
    names = (*CANDIDATES.names, BY_LAYER) if manifest.settings.get(BY_LAYER) else None
    rows = _only(read_table(folder, "candidates", shard, names), place).to_pylist()
    # Of an empty response the lists do not tell how many layers there are.
    depth = next((len(row[BY_LAYER][0]) for row in rows if row.get(BY_LAYER)), 0)
    nothing = np.empty((0, depth), np.float32) if depth else None
    items = [
        Candidate(
            row["index"],
            row["text"],
            Signals(
                **{name: row[name] for name in TOKEN_COLUMNS},
                by_layer=row.get(BY_LAYER) or nothing,
            ),
            row["finish"],
        )
        for row in rows
    ]
    return Candidates(
        tuple(items),
        about["question"],
        np.array(about["prompt_ids"]),
        model=str(manifest.settings["model"]),
        defaults=dict(manifest.defaults),
        sampling=manifest.settings.get("sampling") or {},
        messages=json.loads(about["messages"] or "[]"),
        source=json.loads(about["source"] or "null"),
    )


def _only(table: pa.Table, place: int) -> pa.Table:
    return table.filter(pc.equal(table["item"], place))

"""The files of a run.

    manifest.json              what was asked for, with which versions, and how far it is
    shards/00000.json          the record of a complete shard, see records.py
    items/00000.parquet        a row per item: its messages, its truth, its error if it failed
    candidates/00000.parquet   a row per candidate: text, quality, its tokens' signals as lists
    scores/usc@5/00000.parquet a row per item: the scores of a scorer that needs a model
    looks/00000.parquet        a row per look: where the picks of the first items looked (--look)
    timings/sample-00000.json  what took how long; the only files that differ from run to run

A shard holds the same items in every table. Every file is written under another name and then
renamed (an object store has no half objects): it is there whole or not at all. The tables' bytes
follow from the run's settings alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from lookback.errors import one_line
from lookback.io.storage import AnyPath, RemotePath, readable
from lookback.signals import BY_LAYER, SIGNALS, Candidate, Candidates, Signals

if TYPE_CHECKING:
    from lookback.runs.manifest import Manifest

ITEMS = pa.schema(
    [
        ("item", pa.int32()),  # its position in the split
        ("id", pa.string()),
        ("question", pa.string()),
        ("messages", pa.string()),  # JSON; null if the item failed
        ("source", pa.string()),  # JSON; what A_t was measured on, null for every vision token
        ("truth", pa.string()),  # JSON
        ("image", pa.string()),  # the id of the item whose image was looked at; null for none
        ("prompt_ids", pa.list_(pa.int32())),
        ("error", pa.string()),  # null unless it failed
    ]
)
CANDIDATES = pa.schema(
    [
        ("item", pa.int32()),
        ("index", pa.int32()),
        ("text", pa.string()),
        ("finish", pa.string()),
        ("quality", pa.float64()),
        ("length", pa.int32()),
        ("token_ids", pa.list_(pa.int32())),
        ("tokens", pa.list_(pa.string())),
        *((name, pa.list_(pa.float32())) for name in SIGNALS),
    ]
)
LAYERS = pa.field(BY_LAYER, pa.list_(pa.list_(pa.float32())))
"""The last column of candidates in a run with --by-layer: A_t of each token in each layer."""
SCORES = pa.schema(
    [
        ("item", pa.int32()),
        ("scores", pa.list_(pa.float64())),  # one per candidate, null for an empty one
        ("replies", pa.list_(pa.string())),  # what the model said, where it was asked
        ("error", pa.string()),
    ]
)
LOOKS = pa.schema(
    [
        ("item", pa.int32()),
        ("index", pa.int32()),  # of the candidate
        ("methods", pa.list_(pa.string())),  # those that pick it
        ("layers", pa.list_(pa.int32())),  # the first, and the one behind the last
        ("pictures", pa.list_(pa.string())),  # their names; below, one thing or list per picture
        ("frames", pa.list_(pa.int32())),  # which frame of its video; null for an image
        ("columns", pa.list_(pa.list_(pa.int32()))),  # which of the weights are its
        ("boxes", pa.list_(pa.list_(pa.float32()))),  # four numbers per column; null if unknown
        ("grids", pa.list_(pa.list_(pa.list_(pa.list_(pa.int32()))))),
        ("weights", pa.list_(pa.list_(pa.float32()))),  # of each token on each of the source
        ("error", pa.string()),
    ]
)
TOKEN_COLUMNS = ("token_ids", "tokens", *SIGNALS)
HEAD_COLUMNS = tuple(name for name in CANDIDATES.names if name not in TOKEN_COLUMNS)
OURS = ".lookback-"
"""How the names of files begin that a run needs only while it is written."""
TEMPORARY = f"{OURS}tmp-"
LOCK = f"{OURS}lock"
ABANDONED = 24 * 3600
"""Seconds after which an unfinished file belongs to no process that is still writing it."""
REMAKE = "the same `lookback run` as before makes it again"
"""What to do about a shard that is lost or damaged."""
SHARD = 10
"""Items per shard: what is lost at most, for each process, when a run is killed."""


class RunError(ValueError):
    """A run that cannot be read or written as asked; the message says why and what to do."""


def describe_invalid(error: ValidationError) -> str:
    """Return in a line what is wrong first with data that were read."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"it has no {where!r}"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"it has an unknown {where!r}"
    if first["type"] == "value_error":  # of a check of our own, which says all
        return str(first["ctx"]["error"])
    return one_line(f"its {where!r} is {first['input']!r:.60} ({first['msg']})")


def shard_path(folder: AnyPath, table: str, shard: int) -> AnyPath:
    return folder / table / f"{shard:05d}.parquet"


def write_table(
    folder: AnyPath, table: str, shard: int, rows: list[dict[str, Any]], *, by_layer: bool = False
) -> tuple[int, str]:
    """Write one table of a shard, whole or not at all; return its size in bytes and its sha256.

    With `by_layer` candidates have the column `LAYERS` too.
    """
    layers = by_layer and table == "candidates"
    schema = _schema(table).append(LAYERS) if layers else _schema(table)
    path = shard_path(folder, table, shard)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        pq.write_table(
            pa.Table.from_pylist(rows, schema=schema),
            temporary,
            compression="zstd",
            # Numbers of four bytes shrink best with their bytes sorted by place; words as a list of
            # words.
            use_dictionary=_leaves(schema, floats=False),
            use_byte_stream_split=_leaves(schema, floats=True),
        )
        return temporary.stat().st_size, checksum(temporary)


def checksum(path: AnyPath) -> str:
    if isinstance(path, RemotePath):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_table(
    folder: AnyPath, table: str, shard: int, columns: Iterable[str] | None = None
) -> pa.Table:
    """Return one table of a shard; read only the columns named.

    Raises:
        RunError: it is not there, or damaged.
    """
    names = _schema(table).names if columns is None else list(columns)
    path = shard_path(folder, table, shard)
    try:
        return _read(path, names)
    except (pa.ArrowException, OSError) as error:
        raise RunError(f"cannot read {str(path)!r} ({one_line(error)}): {REMAKE}") from error


def read_candidates(folder: AnyPath, manifest: Manifest, place: int) -> Candidates:
    """Return the candidates of the item at a position of the split, as an engine gave them."""
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


def empty_table(table: str, columns: Iterable[str] | None = None) -> pa.Table:
    """Return a table without rows."""
    fields = {field.name: field for field in (*_schema(table), LAYERS)}
    names = _schema(table).names if columns is None else columns
    return pa.schema([fields[name] for name in names]).empty_table()


def remove_leftovers(folder: AnyPath) -> None:
    """Remove the unfinished files that a killed process left in a run whose lock is held.

    Those of an object store are on this machine: files are written there before they are sent.
    """
    if isinstance(folder, RemotePath):
        remove_abandoned(Path(tempfile.gettempdir()))
        return
    for left in folder.rglob(f"{TEMPORARY}*"):
        if left.is_file():
            left.unlink()


def remove_abandoned(folder: Path) -> None:
    """Remove unfinished files of the days before from a folder that several processes write to."""
    for left in folder.glob(f"{TEMPORARY}*"):
        with suppress(OSError):  # another user's, or gone already
            if left.is_file() and time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()


def _schema(table: str) -> pa.Schema:
    return {"items": ITEMS, "candidates": CANDIDATES, "looks": LOOKS}.get(table, SCORES)


def _read(path: AnyPath, columns: list[str]) -> pa.Table:
    with pq.ParquetFile(readable(path)) as file:  # half the time of pq.read_table on small files
        missing = sorted({*columns} - {*file.schema_arrow.names})
        if missing:
            raise pa.ArrowInvalid(f"it has no column {missing[0]!r}")
        return file.read(columns=columns)


@contextmanager
def replacing(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary path to write to; on success, that file takes the place of `path`.

    For an object store it is a file on this machine, which is then sent whole.
    """
    folder = path.parent
    if isinstance(folder, RemotePath):
        folder = Path(tempfile.gettempdir())
    temporary = folder / f"{TEMPORARY}{path.name}.{uuid.uuid4().hex}"
    try:
        yield temporary
        if isinstance(path, RemotePath):
            path.write_bytes(temporary.read_bytes())
            return
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise RunError(
            f"cannot write {str(path)!r}: {error}; what was written before is kept: make room and "
            "run the same command again"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: AnyPath, data: bytes) -> None:
    """Write a file, whole or not at all; make its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def _leaves(schema: pa.Schema, floats: bool) -> list[str]:
    """Return a table's leaf columns, as Parquet names them: those of floats, or all others."""
    names = []
    for field in schema:
        name, kind = field.name, field.type
        while pa.types.is_list(kind):
            name, kind = f"{name}.list.element", kind.value_type
        if pa.types.is_floating(kind) == floats:
            names.append(name)
    return names

"""Lines of a file of one's own: JSONL, CSV or Parquet in, dictionaries out.

Nothing here knows what the keys mean, but for what the formats lack: in CSV all is text, a list is
JSON and an empty cell is nothing; in Parquet, too, messages may be JSON.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from lookback.limits import DATA_MIB, LimitError
from lookback.reading import check_file, read_bytes
from lookback.storage import AnyPath, readable

LISTS = ("image", "answers")
"""Columns of text in which a list may stand as JSON."""
MAX_CELL = 2**31 - 1
"""Characters per cell of a CSV file: an image may be in it, as a data URI."""
BATCH = 64
"""Rows of a Parquet file that are unpacked before they are counted."""
CELL = 64
"""Bytes that a cell takes in memory beside its content, about."""


def read_lines(path: AnyPath) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
    """Every line by its number, without keys that are null; or what is wrong with it.

    A number is what an editor or a spreadsheet shows: the head of a CSV file is line 1. Rows of a
    Parquet file are counted from 1.

    Raises:
        ValueError: the whole file cannot be read.
    """
    kind = path.suffix.lower()
    if kind not in READERS:
        raise ValueError(f"{str(path)!r} is none of {', '.join(READERS)}: these can be read")
    return READERS[kind](path)


def _jsonl(path: AnyPath) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
    return parse_jsonl(read_bytes(path))


def parse_jsonl(data: bytes) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
    """Lines as `read_lines` gives them, of the content of a .jsonl file."""
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, _object(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            yield number, ValueError(f"not UTF-8: {error}")
        except ValueError as error:
            yield number, error


def _object(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise ValueError('not an object: {"image": ..., "question": "..."} is needed')
    return {key: value for key, value in entry.items() if value is not None}


def _csv(path: AnyPath) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} is not UTF-8: {error}") from None
    before = csv.field_size_limit(MAX_CELL)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(f"{str(path)!r} is no CSV: {error}") from None
    finally:
        csv.field_size_limit(before)
    head = [name.strip() for name in rows[0]] if rows else []
    for number, row in enumerate(rows[1:], start=2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) > len(head):
            yield number, ValueError(f"{len(row)} cells for {len(head)} columns")
            continue
        cells = dict(zip(head, row, strict=False))
        yield number, _parsed({key: value for key, value in cells.items() if value.strip()})


def _parquet(path: AnyPath) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_file(path, DATA_MIB)
    try:
        with pq.ParquetFile(readable(path)) as file:
            rows = _unpacked_rows(file, f"{str(path)!r}, unpacked,")
    except LimitError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{str(path)!r} is no Parquet: {error}") from None
    for number, row in enumerate(rows, start=1):
        yield number, _parsed(_without_nulls(row), lists=())


def _unpacked_rows(file: Any, name: str) -> list[dict[str, Any]]:
    """All rows, counted while they are unpacked: a repeated value is stored once."""
    rows: list[dict[str, Any]] = []
    size = 0
    for batch in file.iter_batches(batch_size=BATCH):
        size += batch.nbytes + CELL * batch.num_rows * batch.num_columns
        DATA_MIB.check(size, name)
        rows += batch.to_pylist()
    return rows


def _parsed(cells: dict[str, Any], lists: tuple[str, ...] = LISTS) -> dict[str, Any] | ValueError:
    """Cells with their JSON read."""
    found = dict(cells)
    for key in lists:
        if key in found and found[key].lstrip().startswith("["):
            found[key] = _list_or_text(found[key])
    if isinstance(found.get("messages"), str):
        try:
            found["messages"] = json.loads(found["messages"])
        except (ValueError, RecursionError) as error:
            return ValueError(f"the messages are not JSON: {error}")
    return found


def _list_or_text(cell: str) -> Any:
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return cell
    return value if isinstance(value, list) else cell


def _without_nulls(value: Any) -> Any:
    """Parquet gives every struct all its fields; those that are null were not written."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None and v == v}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


READERS = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}

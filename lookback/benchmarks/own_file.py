"""Lines of a file of one's own: JSONL, CSV or Parquet in, dictionaries out.

Nothing here knows what the keys mean, but for what the formats lack: in CSV all is text, a list is
JSON and an empty cell is nothing; in Parquet, too, messages may be JSON.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from lookback.io.files import check_file, check_unpacked, read_bytes
from lookback.io.limits import DATA_MIB, MIB, LimitError
from lookback.io.storage import AnyPath, readable, size_of

LISTS = ("image", "answers")
"""Columns of text in which a list may stand as JSON."""
MAX_CELL = 2**31 - 1
"""Characters per cell of a CSV file: an image may be in it, as a data URI."""
BATCH = 64
"""Rows of a Parquet file that are unpacked before they are counted, at most."""
BATCH_BYTES = 256 * MIB
"""What these rows may take at worst, unless one takes more."""
CELL = 64
"""Bytes that a cell takes in memory beside its content, about."""


def read_lines(path: AnyPath) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
    """Return every line by its number, without keys that are null; or what is wrong with it.

    A number is what an editor or a spreadsheet shows: the head of a CSV file is line 1. Rows of a
    Parquet file are counted from 1.
    """
    kind = path.suffix.lower()
    if kind not in READERS:
        raise ValueError(f"{str(path)!r} is none of {', '.join(READERS)}: these can be read")
    return READERS[kind](path)


def _jsonl(path: AnyPath) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
    return parse_jsonl(read_bytes(path))


def parse_jsonl(data: bytes) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
    """Yield the lines of a .jsonl file's content as `read_lines` gives them."""
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

    check_file(path, DATA_MIB)
    try:
        rows = _unpacked_rows(path)
    except LimitError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{str(path)!r} is no Parquet: {error}") from None
    for number, row in enumerate(rows, start=1):
        yield number, _parsed(_without_nulls(row), lists=())


def _unpacked_rows(path: AnyPath) -> list[dict[str, Any]]:
    """Return all rows of a Parquet file, counted before they are made: a small one can be huge."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source, counter = readable(path), _Counter(size_of(path), repr(str(path)))
    about = pq.read_metadata(source)
    chunks = [
        about.row_group(group).column(column)
        for group in range(about.num_row_groups)
        for column in range(about.num_columns)
    ]
    counter.check(
        sum(chunk.total_uncompressed_size for chunk in chunks),
        max(about.num_rows, sum(chunk.num_values for chunk in chunks)),
    )
    # A value is no larger than the pages that it is in, and a row has one of each column: so a
    # batch is not. In lists it has any number, and those are read as indices into what they repeat.
    largest = max((chunk.total_uncompressed_size for chunk in chunks), default=1)
    size = max(1, min(BATCH, BATCH_BYTES // max(1, largest)))
    leaves = [about.schema.column(column) for column in range(about.num_columns)]
    lists = [
        leaf.path
        for leaf in leaves
        if leaf.physical_type == "BYTE_ARRAY" and leaf.max_repetition_level
    ]
    rows: list[dict[str, Any]] = []
    with (
        pq.ParquetFile(source, metadata=about) as plain,
        pq.ParquetFile(source, metadata=about, read_dictionary=lists) as indexed,
    ):
        for group in range(about.num_row_groups):
            before = counter.total
            try:
                rows += counter.rows(indexed.iter_batches(size, row_groups=[group]))
            except pa.ArrowNotImplementedError:  # lists some of which are stored otherwise
                counter.total = before
                rows += counter.rows(plain.iter_batches(size, row_groups=[group]))
    return rows


class _Counter:
    """Counts what a Parquet file unpacks to.

    Args:
        packed: the bytes of the file.
        name: what messages call it.
    """

    def __init__(self, packed: int, name: str) -> None:
        self.packed, self.name = packed, name
        self.total = 0, 0  # bytes of content, values

    def check(self, content: int, values: int) -> None:
        """Raise LimitError if this much is too much."""
        check_unpacked(content, self.packed, self.name)
        DATA_MIB.check(content + CELL * values, f"{self.name}, unpacked,")

    def rows(self, batches: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the rows of batches, each counted before its values are made."""
        rows: list[dict[str, Any]] = []
        for batch in batches:
            for content, values in ((0, batch.num_rows), *map(_measure, batch.columns)):
                self.total = self.total[0] + content, self.total[1] + values
            self.check(*self.total)
            rows += batch.to_pylist()
        return rows


def _measure(array: Any) -> tuple[int, int]:
    """Return the bytes of an array's content if nothing is shared, and how many values it has."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind) and not pa.types.is_primitive(kind.value_type):
        used = array.indices.value_counts()
        lengths = pc.binary_length(array.dictionary.take(used.field("values")))
        return pc.sum(pc.multiply(lengths, used.field("counts"))).as_py() or 0, len(array)
    if not pa.types.is_nested(kind):
        return array.nbytes, len(array)
    if pa.types.is_struct(kind):
        inner = array.flatten()
    else:
        inner = [array.keys, array.items] if pa.types.is_map(kind) else [array.flatten()]
    parts = [_measure(part) for part in inner]
    return sum(size for size, _ in parts), len(array) + sum(count for _, count in parts)


def _parsed(cells: dict[str, Any], lists: tuple[str, ...] = LISTS) -> dict[str, Any] | ValueError:
    parsed = dict(cells)
    for key in lists:
        if key in parsed and parsed[key].lstrip().startswith("["):
            parsed[key] = _list_or_text(parsed[key])
    if isinstance(parsed.get("messages"), str):
        try:
            parsed["messages"] = json.loads(parsed["messages"])
        except (ValueError, RecursionError) as error:
            return ValueError(f"the messages are not JSON: {error}")
    return parsed


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

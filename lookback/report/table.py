"""A study's table as the page shows it: which columns are numbers, and what they sort by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from lookback.studies import Cell, Table

MISSING = ("", "-", "–", "—")
NUMBER = re.compile(
    r"([+−-]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?=$|[\s%×±(\[])(.*)", re.DOTALL
)
"""A number, and what follows it in a cell: a unit, an interval."""


class Head(NamedTuple):
    """The head of a column; `label` has its group's name too."""

    text: str
    label: str
    kind: str


class CellView(NamedTuple):
    """A cell: a number and what follows it, or words.

    Attributes:
        text: the number or the words.
        tail: what follows a number.
        mark: as the `Cell` has it.
        kind: the class of its column.
        value: what it sorts by; "" for a missing number, None for words.
    """

    text: str
    tail: str
    mark: str
    kind: str
    value: str | None


class Row(NamedTuple):
    """A row; `rule` says whether a line is drawn above it."""

    cells: list[CellView]
    rule: bool


class TableView(NamedTuple):
    """A table as the template takes it.

    Attributes:
        caption: as the `Table` has it.
        label: what it is called where it has no caption.
        groups: (name, columns) of the heads that columns share; empty if none do.
        heads: one per column.
        rows: one per row.
    """

    caption: str
    label: str
    groups: list[tuple[str, int]]
    heads: list[Head]
    rows: list[Row]


def table_view(table: Table, label: str = "Table") -> TableView:
    """A table whose heads sort it; numbers carry their value, "-" carries none and stays last.

    Args:
        table: neighbouring columns of one group share a head.
        label: what it is called where it has no caption.
    """
    rows = [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in table.rows]
    columns = list(zip(*rows, strict=True)) or [()] * len(table.columns)
    kinds = [_kind([cell.text for cell in column]) for column in columns]
    heads = [
        Head(name or group, f"{group} {name}".strip(), kind)
        for (group, name), kind in zip(table.columns, kinds, strict=True)
    ]
    views = [
        Row(
            [_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)],
            rule=number in table.rules and number > 0,
        )
        for number, row in enumerate(rows)
    ]
    return TableView(table.caption, label, _groups(table), heads, views)


def _kind(texts: Sequence[str]) -> str:
    """The class of a column: "num" if it has numbers alone, "tailed" if something follows them."""
    values = [_value(text) for text in texts]
    if None in values or not any(values):
        return ""
    tails = any(text.strip() not in MISSING and _parts(text)[1] for text in texts)
    return "num tailed" if tails else "num"


def _groups(table: Table) -> list[tuple[str, int]]:
    """The shared heads, if there are any; a group without names below needs none."""
    if not any(group and name for group, name in table.columns):
        return []
    runs = groupby(table.columns, key=lambda column: column[0] if column[1] else "")
    return [(group, len(list(same))) for group, same in runs]


def _cell(cell: Cell, kind: str) -> CellView:
    value = _value(cell.text)
    text, tail = _parts(cell.text) if kind and value else (cell.text, "")
    return CellView(text, tail, cell.mark, kind, value)


def _parts(text: str) -> tuple[str, str]:
    """A cell's number and what follows it; ("", text) if it begins with none."""
    found = NUMBER.fullmatch(text.strip())
    return (found[1], found[2].strip()) if found else ("", text)


def _value(text: str) -> str | None:
    """A cell's number as JavaScript reads it; "" for a missing one, None for words."""
    if text.strip() in MISSING:
        return ""
    return _parts(text)[0].replace("−", "-").replace(",", "").lstrip("+") or None

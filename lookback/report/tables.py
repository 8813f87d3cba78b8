"""Tables of the page: those of studies, and LookBack's paired differences to other scorers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from lookback.studies import Cell, Runs, Table, get_study
from lookback.studies.common.budgets import AVERAGE
from lookback.studies.common.selection import ceilings, title_of
from lookback.studies.main import outcome_rows

FEWEST = 6
"""Items from which on an interval can leave out 0: five may agree by chance in 1 of 16 cases."""
MISSING = ("", "-", "–", "—")
NUMBER = re.compile(
    r"([+−-]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?=$|[\s%×±(\[])(.*)", re.DOTALL
)
"""A number, and what follows it in a cell: a unit, an interval."""


def difference_rows(runs: Runs) -> list[dict[str, Any]]:
    """Return LookBack's outcome minus that of each other scorer, in points, with its 95 % interval.

    By model, benchmark and N, and (N = 0) averaged over all; the bootstrap is that of study `main`.
    Scorers that know the truth, and those that a run has no scores of, have no rows. There are
    none at all if the runs lack what `main` needs.
    """
    try:
        found = outcome_rows(get_study("main").prepare(runs))
    except ValueError:  # the section of study `main` says why
        return []
    return [
        {name: row[name] for name in ("model", "benchmark", "N", "method")}
        | {"difference": row["lead"], "low": row["lead_low"], "high": row["lead_high"]}
        | {"items": row["items"]}
        for rows in found.values()
        for row in rows
        if row["method"] not in ("lookback", *ceilings())
        and math.isfinite(row["lead"])
        and (row["benchmark"] != AVERAGE or row["N"] == 0)
    ]


def difference_tables(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """Return a table per model: scorers by benchmarks, the average first."""
    ours, tables = title_of("lookback"), []
    for model, group in groupby(rows, key=lambda row: row["model"]):
        here = list(group)
        cells = {(row["method"], row["benchmark"], row["N"]): row for row in here}
        setups = list(dict.fromkeys(key[1:] for key in cells if key[1] != AVERAGE))
        if len(setups) > 1:  # of one the average would be the same again
            setups.insert(0, (AVERAGE, 0))
        items = min(row["items"] for row in here if row["benchmark"] != AVERAGE)
        lines = [
            [
                title_of(method),
                *(_difference(cells.get((method, *setup)), items >= FEWEST) for setup in setups),
            ]
            for method in dict.fromkeys(row["method"] for row in here)
        ]
        caption = (
            f"{ours} minus each other scorer with {model}: points [95 % interval, paired bootstrap "
            "over items]. Bold: the interval excludes 0."
        )
        header = [("", "Scorer"), *((name, f"N={n}" if n else "") for name, n in setups)]
        tables.append(Table(header, lines, caption))
    return tables


def _difference(row: dict[str, Any] | None, known: bool) -> Cell | str:
    """Return a cell, in bold if the interval, as printed, excludes 0."""
    if row is None:
        return "-"
    # Adding 0 to what is rounded makes of -0.0 a plain 0.
    value, low, high = (round(row[key], 2) + 0.0 for key in ("difference", "low", "high"))
    mark = "best" if known and (low > 0 or high < 0) else ""
    return Cell(f"{value:+.2f} [{low:+.2f}, {high:+.2f}]", mark)


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
    """Return a table whose heads sort it; numbers carry their value, "-" has none and stays last.

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
    """Return the class of a column: "num" if it has numbers alone, "num tailed" with tails."""
    values = [_value(text) for text in texts]
    if None in values or not any(values):
        return ""
    tails = any(text.strip() not in MISSING and _parts(text)[1] for text in texts)
    return "num tailed" if tails else "num"


def _groups(table: Table) -> list[tuple[str, int]]:
    """Return the shared heads, if there are any; a group without names below needs none."""
    if not any(group and name for group, name in table.columns):
        return []
    runs = groupby(table.columns, key=lambda column: column[0] if column[1] else "")
    return [(group, len(list(same))) for group, same in runs]


def _cell(cell: Cell, kind: str) -> CellView:
    value = _value(cell.text)
    text, tail = _parts(cell.text) if kind and value else (cell.text, "")
    return CellView(text, tail, cell.mark, kind, value)


def _parts(text: str) -> tuple[str, str]:
    """Return a cell's number and what follows it; ("", text) if it begins with none."""
    match = NUMBER.fullmatch(text.strip())
    return (match[1], match[2].strip()) if match else ("", text)


def _value(text: str) -> str | None:
    """Return a cell's number as JavaScript reads it; "" for a missing one, None for words."""
    if text.strip() in MISSING:
        return ""
    return _parts(text)[0].replace("−", "-").replace(",", "").lstrip("+") or None

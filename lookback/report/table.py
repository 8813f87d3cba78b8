"""A study's table as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from lookback.studies import Cell, Table
from lookback.studies.pages import escaped

MISSING = ("", "-", "–", "—")
NUMBER = re.compile(
    r"([+−-]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?=$|[\s%×±(\[])(.*)", re.DOTALL
)
"""A number, and what follows it in a cell: a unit, an interval."""


def prose(text: str) -> str:
    """A sentence for HTML, with `code` as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(text))


def table_html(table: Table, label: str = "Table") -> str:
    """A table whose heads sort it; numbers carry their value, "-" carries none and stays last.

    Args:
        table: neighbouring columns of one group share a head.
        label: what it is called where it has no caption.
    """
    rows = [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in table.rows]
    columns = list(zip(*rows, strict=True)) or [()] * len(table.columns)
    kinds = [_kind([cell.text for cell in column]) for column in columns]
    body = "\n".join(
        f"<tr{_class('rule' if number in table.rules and number else '')}>"
        + "".join(_cell(*pair, first=i == 0) for i, pair in enumerate(zip(row, kinds, strict=True)))
        + "</tr>"
        for number, row in enumerate(rows)
    )
    caption = f'<p class="caption">{prose(table.caption)}</p>\n' if table.caption else ""
    return (
        f'{caption}<div class="scroll" tabindex="0" role="group" '
        f'aria-label="{escaped(table.caption or label)}"><table class="sortable">\n'
        f"<thead>{_groups(table)}{_heads(table, kinds)}</thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _kind(texts: Sequence[str]) -> str:
    """The class of a column: "num" if it has numbers alone, "tailed" if something follows them."""
    values = [_value(text) for text in texts]
    if None in values or not any(values):
        return ""
    tails = any(text.strip() not in MISSING and _parts(text)[1] for text in texts)
    return "num tailed" if tails else "num"


def _groups(table: Table) -> str:
    """The row of shared heads, if there are any; a group without names below needs none."""
    if not any(group and name for group, name in table.columns):
        return ""
    runs = groupby(table.columns, key=lambda column: column[0] if column[1] else "")
    cells = [(group, len(list(same))) for group, same in runs]
    return _row(
        f'<th scope="colgroup" colspan="{width}">{escaped(group)}</th>'
        if group
        else f'<td colspan="{width}"></td>'
        for group, width in cells
    )


def _heads(table: Table, kinds: Sequence[str]) -> str:
    return _row(
        f'<th scope="col" aria-sort="none"{_class(kind)}>'
        f'<button type="button" aria-label="{escaped(f"{group} {name}".strip())}">'
        f"{escaped(name or group)}</button></th>"
        for (group, name), kind in zip(table.columns, kinds, strict=True)
    )


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _cell(cell: Cell, kind: str, first: bool) -> str:
    value = _value(cell.text)
    text, tail = _parts(cell.text) if kind and value else (cell.text, "")
    marked = f'<span class="{cell.mark}">{escaped(text)}</span>' if cell.mark else escaped(text)
    after = f' <span class="tail">{escaped(tail)}</span>' if tail else ""
    tag = 'th scope="row"' if first else "td"
    data = "" if value is None else f' data-value="{value}"'
    return f"<{tag}{_class(kind)}{data}>{marked}{after}</{tag[:2]}>"


def _parts(text: str) -> tuple[str, str]:
    """A cell's number and what follows it; ("", text) if it begins with none."""
    found = NUMBER.fullmatch(text.strip())
    return (found[1], found[2].strip()) if found else ("", text)


def _value(text: str) -> str | None:
    """A cell's number as JavaScript reads it; "" for a missing one, None for words."""
    if text.strip() in MISSING:
        return ""
    return _parts(text)[0].replace("−", "-").replace(",", "").lstrip("+") or None


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""

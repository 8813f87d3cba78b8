"""A table for people, in Markdown and in LaTeX; and a study's whole result as files."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.io.storage import AnyPath, to_path
from lookback.runs.layout import remove_abandoned, replacing
from lookback.studies.common.plots import FORMS, figure_bytes

if TYPE_CHECKING:
    from lookback.studies.common.base import Result


@dataclass(frozen=True)
class Cell:
    """What stands in one row and column of a table.

    Attributes:
        text: plain text, numbers formatted already.
        mark: "best" (bold), "second" (underlined), or "".
    """

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows.

    Attributes:
        columns: (group, name) each; neighbours of one group share a head; "" is no group.
        rows: as many cells each; plain strings are cells without a mark.
        caption: a sentence or two.
        label: the paper's, for LaTeX's \\label and for the reader.
        rules: the rows before which a line is drawn.
    """

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell | str]]
    caption: str
    label: str = ""
    rules: Sequence[int] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{len(row)} cells for {len(self.columns)} columns: {row}")

    def markdown(self) -> str:
        """With groups written into the names; first column left, others right."""
        names = [f"{group} {name}".strip() for group, name in self.columns]
        lines = [
            f"| {' | '.join(_md(name) for name in names)} |",
            f"|---|{'---:|' * (len(names) - 1)}",
        ]
        marks = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
        for row in self.rows:
            cells = [marks[c.mark].format(_md(c.text)) for c in map(_cell, row)]
            lines.append(f"| {' | '.join(cells)} |")
        return f"{self.caption}\n\n" + "\n".join(lines) + "\n"

    def latex(self) -> str:
        """A `table` with booktabs rules."""
        groups = [(g, len(list(same))) for g, same in groupby(self.columns, key=lambda c: c[0])]
        lines = [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{_tex(self.caption)}}}",
            *([rf"\label{{{self.label}}}"] if self.label else []),
            rf"\begin{{tabular}}{{l{'c' * (len(self.columns) - 1)}}}",
            r"\toprule",
        ]
        if any(group for group, _ in groups):
            heads, rules, column = [], [], 1
            for group, width in groups:
                heads.append(rf"\multicolumn{{{width}}}{{c}}{{{_tex(group)}}}" if group else "")
                if not group:
                    heads[-1:] = [""] * width
                else:
                    rules.append(rf"\cmidrule(lr){{{column}-{column + width - 1}}}")
                column += width
            lines += [" & ".join(heads) + r" \\", "".join(rules)]
        lines += [" & ".join(_tex(name) for _, name in self.columns) + r" \\", r"\midrule"]
        marks = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
        for number, row in enumerate(self.rows):
            if number in self.rules and number:
                lines.append(r"\midrule")
            cells = [marks[c.mark].format(_tex(c.text)) for c in map(_cell, row)]
            lines.append(" & ".join(cells) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        return "\n".join(lines) + "\n"


def mark_best(
    values: Sequence[float], form: str = "{:.2f}", notes: Sequence[str] = ()
) -> list[Cell]:
    """Numbers as cells, the highest marked best, the next second; ties, as printed, share a mark.

    Args:
        values: NaN prints as "-" and takes no part.
        form: how a number is printed.
        notes: what follows each number, e.g. an interval.
    """
    printed = ["-" if np.isnan(v) else form.format(v) for v in values]
    shown = sorted({float(p) for p in printed if p != "-"}, reverse=True)
    marks = dict(zip(shown, ("best", "second"), strict=False))
    tails = list(notes) or [""] * len(printed)
    return [
        Cell(p + tail, "" if p == "-" else marks.get(float(p), ""))
        for p, tail in zip(printed, tails, strict=True)
    ]


def rows_of_columns(
    names: Sequence[str], columns: Sequence[Sequence[Cell | str]]
) -> list[list[Cell | str]]:
    """The rows of a table whose columns are given, each with its name in front."""
    return [[name, *cells] for name, *cells in zip(names, *columns, strict=True)]


def files_of(name: str, result: Result) -> dict[str, bytes]:
    """Each file's name and contents."""
    files: dict[str, bytes] = {}
    if result.rows:
        files[f"{name}.csv"] = csv_of(result.rows).encode("utf-8", "surrogatepass")
    if result.tables or result.notes:
        parts = [table.markdown() for table in result.tables]
        parts += ["\n".join(f"- {note}" for note in result.notes) + "\n"] if result.notes else []
        files[f"{name}.md"] = "\n".join(parts).encode("utf-8", "replace")
    if result.tables:
        latex = "\n".join(table.latex() for table in result.tables)
        files[f"{name}.tex"] = latex.encode("utf-8", "replace")
    if result.figure is not None:
        files |= {f"{name}.{form}": figure_bytes(result.figure, form) for form in FORMS}
    for file, contents in result.files.items():
        data = contents if isinstance(contents, bytes) else contents.encode("utf-8", "replace")
        files[f"{name}-{file}"] = data
    return files


def write(name: str, result: Result, folder: str | AnyPath) -> list[AnyPath]:
    """Write them to a folder; where they are."""
    out = to_path(folder)
    out.mkdir(parents=True, exist_ok=True)
    if isinstance(out, Path):
        remove_abandoned(out)
    paths: list[AnyPath] = []
    for file, contents in files_of(name, result).items():
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        with replacing(out / file) as temporary:
            temporary.write_bytes(contents)
        paths.append(out / file)
    return paths


def csv_of(rows: list[dict[str, Any]]) -> str:
    """The tidy table; every row has the first one's keys.

    Texts come from data and models: one that a spreadsheet would run as a formula gets an
    apostrophe in front, as OWASP advises. Numbers stay numbers.
    """
    text = io.StringIO()
    names = {name: _as_text(name) for name in rows[0]}
    writer = csv.DictWriter(text, fieldnames=list(names), lineterminator="\n")
    writer.writerow(names)
    writer.writerows({name: _as_text(cell) for name, cell in row.items()} for row in rows)
    return text.getvalue()


_FORMULA = re.compile(r"[\t\r\n]|[\s\0\u200b\ufeff]*[=+\-@＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def _as_text(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    if cell is None or isinstance(cell, (int, float, np.number)):
        return cell
    text = re.sub(r"\r\n?", "\n", str(cell))  # the csv module leaves a \r without quotes
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _cell(cell: Cell | str) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


def _md(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


_TEX = {
    "\\": r"\textbackslash{}",
    "α": r"$\alpha$",
    "κ": r"$\kappa$",
    "λ": r"$\lambda$",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "≥": r"$\geq$",
    "−": "$-$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
} | {c: f"\\{c}" for c in "&%$#_{}"}


def _tex(text: str) -> str:
    return re.sub(r"[\\ακλ±→≥−~^&%$#_{}]", lambda m: _TEX[m[0]], text.replace("\n", " "))

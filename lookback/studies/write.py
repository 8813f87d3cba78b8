"""A study's result as files: CSV, Markdown, LaTeX, PNG, SVG."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from lookback.runs.layout import replacing
from lookback.studies.base import Result
from lookback.studies.plots import saved


def files_of(name: str, result: Result) -> dict[str, bytes]:
    """Each file's name and contents."""
    found: dict[str, bytes] = {}
    if result.rows:
        found[f"{name}.csv"] = csv_of(result.rows).encode("utf-8", "surrogatepass")
    if result.tables or result.notes:
        parts = [table.markdown() for table in result.tables]
        parts += ["\n".join(f"- {note}" for note in result.notes) + "\n"] if result.notes else []
        found[f"{name}.md"] = "\n".join(parts).encode("utf-8", "replace")
    if result.tables:
        latex = "\n".join(table.latex() for table in result.tables)
        found[f"{name}.tex"] = latex.encode("utf-8", "replace")
    if result.figure is not None:
        found |= {f"{name}.{form}": saved(result.figure, form) for form in ("png", "svg")}
    for file, contents in result.files.items():
        data = contents if isinstance(contents, bytes) else contents.encode("utf-8", "replace")
        found[f"{name}-{file}"] = data
    return found


def write(name: str, result: Result, folder: str | Path) -> list[Path]:
    """Write them to a folder; where they are."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for file, contents in files_of(name, result).items():
        with replacing(out / file) as temporary:
            temporary.write_bytes(contents)
        paths.append(out / file)
    return paths


def csv_of(rows: list[dict[str, Any]]) -> str:
    """The tidy table; every row has the first one's keys."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()

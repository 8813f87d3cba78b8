"""What the page's fixed parts show: which N, a section per study, and the runs."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lookback.pages import data_uri
from lookback.report.data import labels
from lookback.report.figures import FigureView, figure_view
from lookback.report.table import TableView, table_view
from lookback.runs import Run
from lookback.studies import Result, Runs, Table, get_study, title
from lookback.studies.common.budgets import budget_notes
from lookback.studies.common.plots import figure_bytes
from lookback.studies.common.tables import files_of

DOWNLOAD_MOST = 500_000
"""Bytes above which a file is only named: the command that made the page wrote it beside it."""


class Settings(NamedTuple):
    """All settings and versions of a run, by name."""

    label: str
    facts: dict[str, str]


class File(NamedTuple):
    """A file to download; `uri` is None if it is too large to be in the page."""

    name: str
    size: str
    uri: str | None


@dataclass(frozen=True)
class StudySection:
    """The section of one study.

    Attributes:
        name: of the study.
        heading: its name for readers.
        paper: the paper's labels for it.
        about: a line on what it shows.
        reason: why it could not be done; None if it was.
        figure, tables, notes, files: what it gave.
    """

    name: str
    heading: str
    paper: list[str]
    about: str
    reason: str | None = None
    figure: FigureView | None = None
    tables: list[TableView] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: list[File] = field(default_factory=list)


def budgets_line(runs: Runs) -> str:
    """Which N the studies show; empty if there are only controls, which have none of their own."""
    if not any(run.n for run in runs.own):
        return ""
    rows = [
        {"model": run.model, "benchmark": title(run), "N": n}
        for run in runs.largest
        for n in runs.budgets(run)
    ]
    return " ".join(budget_notes(rows))


def runs_table(runs: Sequence[Run]) -> TableView:
    """What was run."""
    rows = [_about(run) for run in runs]
    columns = [("", name) for name in rows[0]]
    return table_view(Table(columns, [list(row.values()) for row in rows], ""), "Runs")


def _about(run: Run) -> dict[str, str]:
    done, total = int(run.manifest.done), int(run.manifest.items)
    return {
        "Model": run.model,
        "Benchmark": title(run),
        "Split": str(run.settings["split"]),
        "Items": str(total) if done == total else f"{done} of {total}",
        "N": str(run.n),
        "Seed": "-" if run.seed is None else str(run.seed),
        "Image": run.image,
        "Failed": str(run.manifest.failed),
        "α": f"{run.defaults['alpha']:g}",
        "λ": f"{run.defaults['lam']:g}",
        "Commit": _short(run.manifest.commit),
    }


def _short(commit: str | None) -> str:
    """Enough of a commit to know it by; "+" says that files were changed."""
    return "-" if commit is None else commit[:8] + "+" * commit.endswith("+")


def settings(runs: Sequence[Run]) -> list[Settings]:
    """All settings and versions of each run."""
    found = []
    for run, label in zip(runs, labels(runs), strict=True):
        facts = {"run": run.id, "created": run.manifest.created, "commit": run.manifest.commit}
        pairs = facts | run.settings | {"versions": dict(run.manifest.versions)}
        known = {name: _plain(value) for name, value in pairs.items() if value is not None}
        found.append(Settings(label, known))
    return found


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def study_section(name: str, result: Result | str) -> StudySection:
    """What a study gave, or why it could not be done."""
    study = get_study(name)
    paper = study.paper.replace(",", " ").split()
    if isinstance(result, str):
        return StudySection(name, study.title, paper, study.about, result)
    return StudySection(
        name,
        study.title,
        paper,
        study.about,
        figure=None if result.figure is None else figure_view(result.figure),
        tables=[table_view(table) for table in result.tables],
        notes=result.notes,
        files=_files(name, result),
    )


def _files(name: str, result: Result) -> list[File]:
    """The rows as CSV, the tables as LaTeX, the figure as PDF, and what else the study gave."""
    found, files = [], files_of(name, replace(result, figure=None))
    if result.figure is not None:  # the page shows it as an image
        files[f"{name}.pdf"] = figure_bytes(result.figure, "pdf")
    for file, data in files.items():
        if file == f"{name}.md":  # it says what the page says
            continue
        size = f"{max(1, round(len(data) / 1000)):,} kB"
        kind = mimetypes.guess_type(file)[0] or "application/octet-stream"
        found.append(File(file, size, None if len(data) > DOWNLOAD_MOST else data_uri(kind, data)))
    return found

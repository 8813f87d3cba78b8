"""One self-contained page: paired differences, a browser of items, every study, and the runs.

The page itself is a template (lookback/pages/templates/report/); here is what it shows.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lookback.pages import data_uri, render
from lookback.report.browser import browser_data, labels
from lookback.report.figures import FigureView, figure_view
from lookback.report.tables import TableView, difference_rows, difference_tables, table_view
from lookback.runs import Run
from lookback.studies import Result, Runs, Table, get_study, title
from lookback.studies.common.budgets import budget_notes
from lookback.studies.common.plots import figure_bytes
from lookback.studies.common.tables import files_of

DOWNLOAD_MOST = 500_000
"""Bytes above which a file is only named: the command that made the page wrote it beside it."""


class File(NamedTuple):
    """A file to download; `uri` is None if it is too large to be in the page."""

    name: str
    size: str
    uri: str | None


@dataclass(frozen=True)
class StudySection:
    """The section of one study.

    Attributes:
        paper: the paper's labels for it.
        about: a line on what it shows.
        reason: why it could not be done; None if it was.
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


def report(runs: Sequence[Run], results: dict[str, Result | str], items: int | None = None) -> str:
    """Return the page, as HTML to be saved as UTF-8.

    Args:
        runs: as the studies were given them, with their N.
        results: what each study returned, by its name; a string says why it could not be done.
        items: how many items of each run to include, the first ones, with their controls; by
            default all, up to about `lookback.report.browser.BUDGET` characters.
    """
    given = runs if isinstance(runs, Runs) else Runs(runs)
    return render(
        "report/page.html",
        title="LookBack report",
        differences=[table_view(table) for table in difference_tables(difference_rows(given))],
        budgets=_budgets_line(given),
        runs=_runs_table(given),
        settings=[(label, _facts(run)) for run, label in zip(given, labels(given), strict=True)],
        studies=[_study_section(name, result) for name, result in results.items()],
        browser=browser_data(runs, items),
    )


def _budgets_line(runs: Runs) -> str:
    """Return which N the studies show; empty if there are only controls, which have none."""
    if not any(run.n for run in runs.own):
        return ""
    rows = [
        {"model": run.model, "benchmark": title(run), "N": n}
        for run in runs.largest
        for n in runs.budgets(run)
    ]
    return " ".join(budget_notes(rows))


def _runs_table(runs: Sequence[Run]) -> TableView:
    rows = [_run_cells(run) for run in runs]
    columns = [("", name) for name in rows[0]]
    return table_view(Table(columns, [list(row.values()) for row in rows], ""), "Runs")


def _run_cells(run: Run) -> dict[str, str]:
    done, total = int(run.manifest.done), int(run.manifest.items)
    commit = run.manifest.commit
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
        # Enough of it to know it by; "+" says that files were changed.
        "Commit": "-" if commit is None else commit[:8] + "+" * commit.endswith("+"),
    }


def _facts(run: Run) -> dict[str, str]:
    """Return all settings and versions of a run, by name."""
    facts = {"run": run.id, "created": run.manifest.created, "commit": run.manifest.commit}
    facts |= run.settings | {"versions": dict(run.manifest.versions)}
    return {name: _plain(value) for name, value in facts.items() if value is not None}


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _study_section(name: str, result: Result | str) -> StudySection:
    study = get_study(name)
    section = StudySection(name, study.title, study.paper.replace(",", " ").split(), study.about)
    if isinstance(result, str):
        return replace(section, reason=result)
    return replace(
        section,
        figure=None if result.figure is None else figure_view(result.figure),
        tables=[table_view(table) for table in result.tables],
        notes=result.notes,
        files=_files(name, result),
    )


def _files(name: str, result: Result) -> list[File]:
    """Return the rows as CSV, the tables as LaTeX, the figure as PDF, and the study's own files."""
    shown, contents = [], files_of(name, replace(result, figure=None))
    if result.figure is not None:  # the page shows it as an image
        contents[f"{name}.pdf"] = figure_bytes(result.figure, "pdf")
    for file, data in contents.items():
        if file == f"{name}.md":  # it says what the page says
            continue
        size = f"{max(1, round(len(data) / 1000)):,} kB"
        kind = mimetypes.guess_type(file)[0] or "application/octet-stream"
        shown.append(File(file, size, None if len(data) > DOWNLOAD_MOST else data_uri(kind, data)))
    return shown

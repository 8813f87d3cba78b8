"""The commands about studies: `study`, `studies`, `report`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lookback.cli.app import app
from lookback.cli.options import AllowOutside, Json, RunFolders, Settings, option, parse_settings
from lookback.cli.terminal import (
    LONGEST,
    console,
    long_progress,
    print_json,
    printable,
    say,
    show_table,
)
from lookback.errors import one_line
from lookback.io.storage import AnyPath, to_path

if TYPE_CHECKING:
    from rich.table import Table

    from lookback.studies import Result, Runs


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """How much of the runs is used."""

    items: int | None = option(
        min=0, help="Items per run in the report's browser; by default all, up to about 40 MB."
    )
    n: str | None = option(
        None,
        "--n",
        metavar="N,N",
        help="How many candidates to select from, e.g. 5,8; by default 5 and 25, or all that a "
        "smaller run has.",
    )


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="One of `lookback studies`, or all.")],
    runs: RunFolders,
    out: Annotated[
        str, typer.Option(metavar="PATH", help="Where tables and figures go.")
    ] = "studies",
    *,
    settings: Settings = None,
    allow_outside: AllowOutside = False,
    options: ReportOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="The tidy table as JSON; of all, the paired differences.")
    ] = False,
) -> None:
    """A table or figure of the paper from recorded runs; `all` writes all and one HTML report.

    `human` is of votes: give folders that `lookback annotate` served, or files of votes.
    """
    from lookback.studies import get_study
    from lookback.studies.common.base import ALL, HUMAN

    if name == HUMAN:
        if options.n is not None or settings or options.items is not None:
            raise ValueError("study 'human' is of votes: it has no --n, --set or --items")
        _votes(runs, to_path(out), as_json)
        return
    opened = _open(runs, options.n)
    if name == ALL:
        if settings:
            raise ValueError("--set is a setting of one study: name it in place of all")
        folder = to_path(out)
        _report(opened, folder / "report.html", options.items, as_json, tables=folder)
        return
    if options.items is not None:
        raise ValueError("--items is of the report: give it to `study all` or `report`")
    _finish(name, lambda: get_study(name)(opened, parse_settings(settings)), to_path(out), as_json)


def _votes(paths: list[str], out: AnyPath, as_json: bool) -> None:
    """Do the one study that needs no runs."""
    from lookback.studies.common.base import HUMAN
    from lookback.studies.human import human

    _finish(HUMAN, lambda: human(paths), out, as_json)


def _finish(name: str, work: Callable[[], Result], out: AnyPath, as_json: bool) -> None:
    """Do a study, write its files, print the result."""
    from lookback.studies.common.tables import write

    with console(stderr=True).status(name):
        result = work()
        written = write(name, result, out)
    if as_json:
        print_json({"study": name, "rows": result.rows, "notes": result.notes})
    else:
        show_study(name, result, written)


def show_study(name: str, result: Result, written: Sequence[AnyPath]) -> None:
    """Print a study's tables and notes on stdout, and the files it wrote on stderr."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    styles = {"best": "bold", "second": "underline", "": ""}
    for table in result.tables:
        shown = Table(box=None, pad_edge=False, title=table.caption, title_justify="left")
        for number, column in enumerate(table.columns):
            head = Text("\n".join(part for part in column if part))
            shown.add_column(head, justify="right" if number else "left")
        for row in table.rows:
            cells = [(c, "") if isinstance(c, str) else (c.text, c.mark) for c in row]
            shown.add_row(*(Text(printable(text), style=styles[mark]) for text, mark in cells))
        # Rich cuts words that do not fit, and a number that is cut is no number.
        cut = any("\u2026" in part.text for line in out.render_lines(shown) for part in line)
        out.print(_stacked(shown) if cut else shown)
        out.print()
    for note in result.notes:
        out.print(f"note: {note}", highlight=False, markup=False)
    for path in written:
        print(one_line(path, LONGEST), file=sys.stderr)


def _stacked(table: Table) -> Table:
    """Return a table of two columns for a narrow terminal: each row's cells below each other."""
    from rich.table import Table
    from rich.text import Text

    stacked = Table(
        box=None, pad_edge=False, show_header=False, title=table.title, title_justify="left"
    )
    stacked.add_column(overflow="fold")
    stacked.add_column(justify="right", overflow="fold")
    first, *others = table.columns
    for number, label in enumerate(first.cells):
        stacked.add_row(Text(str(label), style="bold"), "")
        for column in others:
            head = " ".join(str(column.header).split())
            stacked.add_row(Text(f"  {head}"), list(column.cells)[number])
    return stacked


@app.command()
def studies(as_json: Json = False) -> None:
    """List the studies and what of the paper they reproduce."""
    from lookback.studies import STUDIES, human
    from lookback.studies.common.base import HUMAN, Study

    votes = Study(HUMAN, human.human, human.ABOUT, human.PAPER, "Human study", False)
    known = [*STUDIES.all().values(), votes]
    if as_json:
        print_json(
            [
                {"name": s.name, "title": s.title, "paper": s.paper, "settings": s.params}
                | {"needs_quality": s.needs_quality, "about": s.about}
                for s in known
            ]
        )
        return
    columns = ("study", "in the paper", "settings", "what it shows")
    show_table(columns, [(s.name, s.paper or "-", ", ".join(s.params), s.about) for s in known])


@app.command()
def report(
    runs: RunFolders,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")
    ] = "report.html",
    *,
    options: ReportOptions,
    allow_outside: AllowOutside = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The paired differences as JSON.")
    ] = False,
) -> None:
    """Write one HTML page about runs: paired differences, every study, and a browser of items.

    `study all` writes the same page, and each study's tables and figures beside it.
    """
    page = to_path(out)
    if page.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"{out}: the page's name ends in .html", param_hint="--out")
    _report(_open(runs, options.n), page, options.items, as_json)


def _open(paths: list[str], n: str | None) -> Runs:
    """Open runs; print a note about each that is not finished, failed or unverifiable."""
    from lookback.runs import open_runs
    from lookback.studies import Runs
    from lookback.studies.common.budgets import parse_budgets

    ns = None if n is None else parse_budgets(n)
    opened = Runs(open_runs(paths), ns=ns)
    for run in opened:
        if run.manifest.status == "running":
            say(f"{run.path} is not finished: the numbers are of a part (`lookback runs status`)")
        elif run.manifest.status == "failed":
            say(f"{run.path}: every item failed, see `lookback run`")
    return opened


def _report(
    runs: Runs, page: AnyPath, items: int | None, as_json: bool, tables: AnyPath | None = None
) -> None:
    """Write a page with every study, and print differences; `tables` is for each study's files."""
    from lookback.report import report as make_page
    from lookback.report.tables import difference_rows, difference_tables
    from lookback.runs.layout import write_whole
    from lookback.studies import STUDIES, Result
    from lookback.studies.common.tables import write

    results: dict[str, Result | str] = {}
    known = STUDIES.all()
    with long_progress("studies", "studies") as bar:
        for number, (name, kind) in enumerate(known.items()):
            bar(number, len(known))
            try:
                results[name] = result = kind(runs)
                if tables is not None:
                    write(name, result, tables)
            except ValueError as error:  # what it needs is not in these runs
                results[name] = str(error)
                say(f"{name}: {error}")
    write_whole(page, make_page(runs, results, items).encode("utf-8"))
    differences = difference_rows(runs)
    if as_json:
        missing = {name: why for name, why in results.items() if isinstance(why, str)}
        print_json({"report": str(page), "differences": differences, "not_done": missing})
        return
    print(one_line(page, LONGEST))
    show_study("report", Result([], difference_tables(differences)), [])

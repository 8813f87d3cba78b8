"""The commands about studies: `study`, `studies`, `report`. Parse, call, print."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from lookback.cli.app import AllowOutside, Json, RunFolders, Settings, app, settings_of
from lookback.cli.terminal import (
    LONGEST,
    console,
    long_progress,
    print_json,
    printable,
    say,
    show_study,
    show_table,
)
from lookback.errors import one_line
from lookback.io.storage import AnyPath, to_path

if TYPE_CHECKING:
    from lookback.studies import Result, Runs


ReportItems = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Items per run in the report's browser; by default all, up to about 40 MB.",
        show_default=False,
    ),
]
Budgets = Annotated[
    str | None,
    typer.Option(
        "--n",
        metavar="N,N",
        help="How many candidates to select from, e.g. 5,8; by default 5 and 25, or all that a "
        "smaller run has.",
        show_default=False,
    ),
]


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="One of `lookback studies`, or all.")],
    runs: RunFolders,
    out: Annotated[
        str, typer.Option(metavar="PATH", help="Where tables and figures go.")
    ] = "studies",
    settings: Settings = None,
    allow_outside: AllowOutside = False,
    items: ReportItems = None,
    n: Budgets = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The tidy table as JSON; of all, the findings.")
    ] = False,
) -> None:
    """A table or figure of the paper from recorded runs; `all` writes all and one HTML report.

    `human` is of votes: give folders that `lookback annotate` served, or files of votes.
    """
    from lookback.studies import get_study
    from lookback.studies.common.base import ALL, HUMAN

    if name == HUMAN:
        if n is not None or settings or items is not None:
            raise ValueError("study 'human' is of votes: it has no --n, --set or --items")
        _votes(runs, to_path(out), as_json)
        return
    given = _open(runs, n)
    if name == ALL:
        if settings:
            raise ValueError("--set is a setting of one study: name it in place of all")
        folder = to_path(out)
        _report(given, folder / "report.html", items, as_json, tables=folder)
        return
    if items is not None:
        raise ValueError("--items is of the report: give it to `study all` or `report`")
    _finish(name, lambda: get_study(name)(given, settings_of(settings)), to_path(out), as_json)


def _votes(paths: list[str], out: AnyPath, as_json: bool) -> None:
    """The one study that is of no runs."""
    from lookback.studies.common.base import HUMAN
    from lookback.studies.human import human

    _finish(HUMAN, lambda: human(paths), out, as_json)


def _finish(name: str, work: Callable[[], Result], out: AnyPath, as_json: bool) -> None:
    """Do a study, write its files, show what it found."""
    from lookback.studies.common.tables import write

    with console(stderr=True).status(name):
        result = work()
        written = write(name, result, out)
    if as_json:
        print_json({"study": name, "rows": result.rows, "notes": result.notes})
    else:
        show_study(name, result, written)


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
    items: ReportItems = None,
    n: Budgets = None,
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
) -> None:
    """Write one HTML page about runs: findings, every study, and a browser of items.

    `study all` writes the same page, and each study's tables and figures beside it.
    """
    page = to_path(out)
    if page.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"{out}: the page's name ends in .html", param_hint="--out")
    _report(_open(runs, n), page, items, as_json)


def _open(paths: list[str], n: str | None) -> Runs:
    """The runs that a study is given, and in a line each what to know about them."""
    from lookback.runs import open_runs
    from lookback.studies import Runs
    from lookback.studies.common.budgets import parse_budgets

    ns = None if n is None else parse_budgets(n)
    given = Runs(open_runs(paths), ns=ns)
    for one in given:
        if one.manifest.status == "running":
            say(f"{one.path} is not finished: the numbers are of a part (`lookback runs status`)")
        elif one.manifest.status == "failed":
            say(f"{one.path}: every item failed, see `lookback run`")
    return given


def _report(
    given: Runs, page: AnyPath, items: int | None, as_json: bool, tables: AnyPath | None = None
) -> None:
    """One page with every study, and what they found; with `tables`, each study's files there."""
    from lookback.report import report as make_page
    from lookback.report.findings import find
    from lookback.runs.layout import write_whole
    from lookback.studies import STUDIES
    from lookback.studies.common.tables import write

    results: dict[str, Result | str] = {}
    known = STUDIES.all()
    with long_progress("studies", "studies") as bar:
        for number, (name, one) in enumerate(known.items()):
            bar(number, len(known))
            try:
                results[name] = result = one(given)
                if tables is not None:
                    write(name, result, tables)
            except ValueError as error:  # what it needs is not in these runs
                results[name] = str(error)
                say(f"{name}: {error}")
    write_whole(page, make_page(given, results, items).encode("utf-8"))
    found = find(results)
    if as_json:
        missing = {name: one for name, one in results.items() if isinstance(one, str)}
        told = [finding._asdict() for finding in found]
        print_json({"report": str(page), "findings": told, "not_done": missing})
        return
    print(one_line(page, LONGEST))
    for finding in found:
        console().print(f"- {printable(finding.text)}", highlight=False, markup=False)

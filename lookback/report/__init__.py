"""One self-contained page: findings, a browser of items, every study, and what the runs are.

The page itself is a template (lookback/pages/templates/report/); here is what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from lookback.pages import render
from lookback.report.data import browser_data
from lookback.report.findings import find
from lookback.report.sections import budgets_line, runs_table, settings, study_section
from lookback.runs import Run
from lookback.studies import Result, Runs, get_study


def report(runs: Sequence[Run], results: dict[str, Result | str], items: int | None = None) -> str:
    """The page, as HTML to be saved as UTF-8.

    Args:
        runs: as the studies were given them, with their N.
        results: what each study gave, by its name; a string says why it could not be done.
        items: how many items of each run to put in, the first ones, and beside them what its
            controls say; by default all, as far as `lookback.report.data.BUDGET` goes.
    """
    given = runs if isinstance(runs, Runs) else Runs(runs)
    return render(
        "report/page.html",
        title="LookBack report",
        findings=find(results),
        headings={name: get_study(name).title for name in results},
        budgets=budgets_line(given),
        runs=runs_table(given),
        settings=settings(given),
        studies=[study_section(name, result) for name, result in results.items()],
        browser=browser_data(runs, items),
    )

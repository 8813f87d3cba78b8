"""One self-contained page: what the runs are, every study, and a browser of items.

The page itself is a template (lookback/pages/templates/report/); here is what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from lookback.pages import render
from lookback.report.data import browser_data
from lookback.report.sections import runs_table, settings, study_section
from lookback.runs import Run
from lookback.studies import Result, Runs


def report(runs: Sequence[Run], results: dict[str, Result | str], items: int | None = None) -> str:
    """The page, as HTML to be saved as UTF-8.

    Args:
        runs: as the studies were given them.
        results: what each study gave, by its name; a string says why it could not be done.
        items: how many items of each run to put in, the first ones, and beside them what its
            controls say; by default all, as far as `lookback.report.data.BUDGET` goes.
    """
    given = Runs(runs)
    return render(
        "report/page.html",
        title="LookBack report",
        runs=runs_table(given),
        settings=settings(given),
        studies=[study_section(name, result) for name, result in results.items()],
        browser=browser_data(runs, items),
    )

"""One table or figure of the paper per file, from recorded runs alone.

Here are the names that a study of one's own needs:

    from lookback.studies import Result, Runs, study, title

    @study("lengths", title="Lengths of responses")
    def lengths(runs: Runs) -> Result:
        '''How long the responses are.'''
        rows = [{"benchmark": title(run), "tokens": run.lengths.mean()} for run in runs.largest]
        return Result(rows)

A file of this is a plugin: `lookback --plugin lengths.py study lengths runs`.

One that selects among candidates takes `runs.budgets(run)`, the N of all studies (`--n`), or
`runs.budget(run)`, the largest of them; rows with an "N" get a note that says which.
"""

from lookback.studies.common.base import (
    STUDIES,
    Result,
    Runs,
    Study,
    StudyError,
    get_study,
    study,
    title,
)
from lookback.studies.common.tables import Cell, Table

__all__ = [
    "STUDIES",
    "Cell",
    "Result",
    "Runs",
    "Study",
    "StudyError",
    "Table",
    "get_study",
    "study",
    "title",
]

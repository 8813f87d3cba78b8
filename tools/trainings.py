"""The main table over several trainings of the embedded model: means, and from which to which.

`python -m tools.trainings FOLDER FOLDER ... --write docs/reproduction.md`, each a folder that
`python -m tools.reproduce` made with another model (`--model`). A difference between two scorers
that is smaller than the range over trainings is one model's accident.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lookback.runs import open_runs
from lookback.studies import Runs, get_study
from lookback.studies.common.budgets import AVERAGE
from lookback.studies.common.selection import ceilings, title_of
from lookback.studies.common.tables import Cell, Table, mark_best
from tools import blocks

Rows = list[dict[str, Any]]
Key = tuple[str, str, int]


def main_rows(folder: Path) -> Rows:
    """The rows of the main table of one training.

    Raises:
        ValueError: its runs are of several models.
    """
    runs = Runs(open_runs([folder / "runs"]))
    models = {(run.model, run.settings.get("weights")) for run in runs.largest}
    if len(models) > 1:
        raise ValueError(f"{folder} has runs of {len(models)} models: of one, please")
    return get_study("main")(runs).rows


def together(trainings: Sequence[Rows], name: str = "value") -> dict[Key, list[float]]:
    """A number of every method, benchmark and N that all trainings have, over the trainings."""
    each = [
        {(r["method"], r["benchmark"], r["N"]): r[name] for r in rows if np.isfinite(r[name])}
        for rows in trainings
    ]
    return {key: [cells[key] for cells in each] for key in each[0] if all(key in c for c in each)}


def values_table(trainings: Sequence[Rows]) -> Table:
    """Methods by benchmarks and N: the mean over trainings [the lowest, the highest]."""
    cells = together(trainings)
    setups = [*dict.fromkeys((b, n) for _, b, n in cells if b != AVERAGE), (AVERAGE, 0)]
    methods = list(dict.fromkeys(method for method, *_ in cells))
    rivals = [m for m in methods if m not in ceilings()]
    columns: list[list[Cell | str]] = []
    for setup in setups:
        here = [cells.get((m, *setup), [np.nan]) for m in methods]
        ranges = [f" [{min(v):.1f}, {max(v):.1f}]" if np.isfinite(v[0]) else "" for v in here]
        means = [float(np.mean(v)) for v in here]
        best = mark_best(means[: len(rivals)], notes=ranges[: len(rivals)])
        tops = zip(means[len(rivals) :], ranges[len(rivals) :], strict=True)
        columns.append([*best, *(f"{mean:.2f}{ends}" if ends else "-" for mean, ends in tops)])
    lines = [[title_of(m), *(c[i] for c in columns)] for i, m in enumerate(methods)]
    header = [("", "Method"), *((b, f"N={n}" if n else "") for b, n in setups)]
    count = len(trainings)
    caption = f"Best-of-N selection, mean over {count} trainings: per cent [lowest, highest]."
    return Table(header, lines, caption)


def leads_table(trainings: Sequence[Rows]) -> Table:
    """LookBack's lead over each method, averaged over benchmarks and N: a column per training."""
    cells = together(trainings, "lead")
    ends = {end: together(trainings, f"lead_{end}") for end in ("low", "high")}
    lines = []
    for key in [(m, b, n) for m, b, n in cells if (b, n) == (AVERAGE, 0) and m != "lookback"]:
        triples = zip(cells[key], ends["low"][key], ends["high"][key], strict=True)
        told = [f"{lead:+.2f} [{low:+.1f}, {high:+.1f}]" for lead, low, high in triples]
        lines.append([f"over {title_of(key[0])}", *told])
    header = [("", "LookBack's lead"), *(("", f"training {k}") for k in range(len(trainings)))]
    return Table(header, lines, "LookBack's lead, mean over benchmarks and N: points [95 %].")


def text_of(folders: Sequence[Path]) -> str:
    """Both tables as Markdown."""
    trainings = [main_rows(folder) for folder in folders]
    tables = values_table(trainings), leads_table(trainings)
    return "\n\n".join(table.markdown().strip() for table in tables) + "\n"


def main() -> None:
    """Print, or write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+", help="made by `tools.reproduce`")
    parser.add_argument("--write", type=Path, help="a Markdown file whose block to replace")
    given = parser.parse_args()
    if given.write:
        blocks.put(given.write, "trainings", text_of(given.folders))
    else:
        print(text_of(given.folders))


if __name__ == "__main__":
    main()

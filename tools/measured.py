"""How good each scorer's picks are on each Scenes task, for the demo: from runs to measured.json.

`make reproduce` does this at its end; `python -m tools.measured DIR` for runs that exist. The
numbers are those of the study `main` on the same runs.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lookback.benchmarks.base import GENERATED
from lookback.demo.asked import N, differ
from lookback.demo.measured import FILE, SHOWN
from lookback.runs import Run
from lookback.scores.formula import Array
from lookback.studies.shared.selection import bootstrap_means, interval, outcome


def measure(runs: Sequence[Run]) -> dict[str, Any]:
    """The content of the file.

    Args:
        runs: one per task, in the order of `GENERATED`: the intervals' samples depend on it.

    Raises:
        ValueError: they are of several models, or of several numbers of items.
    """
    weights = {run.settings.get("weights") for run in runs}
    items = {len(run.places) for run in runs}
    if len(weights) > 1 or len(items) > 1:
        raise ValueError(f"one model and one number of items are needed: {weights}, {items}")
    tasks = {run.benchmark: _task(run, seed) for seed, run in enumerate(runs)}
    return {"weights": weights.pop(), "n": N, "items": items.pop(), "tasks": tasks}


def _task(run: Run, seed: int) -> dict[str, Any]:
    picks = {scorer: outcome(run, scorer, N) for scorer in SHOWN}
    known = (picks["lookback"], picks["self_certainty"], outcome(run, "oracle", N))
    triples = zip(*(values.tolist() for values in known), strict=True)
    taken = [one > other for one, other, best in triples if differ(one, other, best)]
    return {
        "scorers": {scorer: _numbers(100 * values, seed) for scorer, values in picks.items()},
        "apart": [len(taken), sum(taken)],
    }


def _numbers(values: Array, seed: int) -> list[float]:
    """The mean and its 95 % interval."""
    return [round(x, 4) for x in (float(values.mean()), *interval(bootstrap_means(values, seed)))]


def write(runs: Path, file: Path = FILE) -> None:
    """Measure the runs of a folder that `make reproduce` made."""
    found = measure([Run(runs / task) for task in GENERATED])
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Read a folder of runs, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=Path, help="with a run of each task, named as the task")
    write(parser.parse_args().runs)


if __name__ == "__main__":
    main()

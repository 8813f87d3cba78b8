"""How good each scorer's picks are on each Scenes task: from runs to measured.json, for README.md.

`make reproduce` does this at its end; `python -m tools.measured DIR` for runs that exist. The
numbers are those of the study `main` on the same runs. README.md has them as a table. The file has

weights    the fingerprint of the embedded model that answered
n, items   answers per item, items per task
tasks      by name: `scorers`: {scorer: [per cent, low, high]}, the interval that of 95 %; `apart`:
           how many items the rule of `lookback demo` takes, and on how many LookBack is ahead
leads      LookBack's lead over each, mean over the tasks: {scorer: [points, low, high]}
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lookback.benchmarks.base import GENERATED
from lookback.cli.demo import N, differ
from lookback.runs import Run
from lookback.scores.formula import Array
from lookback.studies.common.selection import (
    GREEDY,
    bootstrap_means,
    greedy_outcome,
    interval,
    outcome,
)
from tools import blocks

FILE = Path(__file__).parent / "measured.json"
NAMES = {
    "lookback": "LookBack",
    "mean_log_prob": "mean log p",
    "consensus": "consensus of the texts",
    "self_certainty": "self-certainty",
    "random": "random selection",
    "greedy": "one greedy answer, nothing picked",
}
TASKS = {
    "scenes-vqa": "short answers",
    "scenes-pairs": "yes or no",
    "scenes-amber": "long descriptions",
    "scenes-caption": "captions",
}
"""As README.md names them, in its order."""


def measure(runs: Sequence[tuple[Run, Run]]) -> dict[str, Any]:
    """Return the content of the file.

    Args:
        runs: one per task with its greedy answers, in the order of `GENERATED`: the intervals'
            samples depend on it.

    Raises:
        ValueError: they are of several models, or of several numbers of items.
    """
    weights = {run.settings.get("weights") for pair in runs for run in pair}
    items = {len(run.places) for pair in runs for run in pair}
    if len(weights) > 1 or len(items) > 1:
        raise ValueError(f"one model and one number of items are needed: {weights}, {items}")
    picks = [_outcomes(run, greedy) for run, greedy in runs]
    tasks = {
        run.benchmark: _task(run, found, seed)
        for seed, ((run, _), found) in enumerate(zip(runs, picks, strict=True))
    }
    content = {"weights": weights.pop(), "n": N, "items": items.pop(), "tasks": tasks}
    return content | {"leads": {name: _lead(picks, name) for name in NAMES if name != "lookback"}}


def _outcomes(run: Run, greedy: Run) -> dict[str, Array]:
    """(items,) of each of `NAMES`: the quality of what it picks."""
    return {
        name: greedy_outcome(run, greedy) if name == GREEDY else outcome(run, name, N)
        for name in NAMES
    }


def _task(run: Run, picks: Mapping[str, Array], seed: int) -> dict[str, Any]:
    known = (picks["lookback"], picks["self_certainty"], outcome(run, "oracle", N))
    triples = zip(*(values.tolist() for values in known), strict=True)
    taken = [one > other for one, other, best in triples if differ(one, other, best)]
    return {
        "scorers": {name: _numbers([values], [seed]) for name, values in picks.items()},
        "apart": [len(taken), sum(taken)],
    }


def _lead(picks: Sequence[Mapping[str, Array]], name: str) -> list[float]:
    """LookBack's lead over a method, mean over tasks."""
    return _numbers([one["lookback"] - one[name] for one in picks], range(len(picks)))


def _numbers(values: Sequence[Array], seeds: Sequence[int]) -> list[float]:
    """The mean over tasks, in per cent, and its 95 % interval; a task has samples of its own."""
    mean = 100 * float(np.mean([one.mean() for one in values]))
    draws = [bootstrap_means(100 * one, seed) for one, seed in zip(values, seeds, strict=True)]
    return [round(x, 4) for x in (mean, *interval(np.mean(draws, axis=0)))]


def write(runs: Path, file: Path = FILE) -> None:
    """Measure the runs of a folder that `make reproduce` made."""
    found = measure([(Run(runs / task), Run(runs / f"{task}-greedy")) for task in GENERATED])
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def fairness(task: str, file: Path = FILE) -> str:
    """Say which way items go that the demo's rule takes: one of them is not the rule."""
    data = json.loads(file.read_text(encoding="utf-8"))
    taken, ahead = data["tasks"][task]["apart"]
    return (
        f"{taken} of {data['items']} items are like this: LookBack is ahead on {ahead} of them, "
        f"self-certainty on {taken - ahead}."
    )


def readme_table(file: Path = FILE) -> str:
    """Return the table of README.md: what is picked by each, task by task, and LookBack's lead."""
    data = json.loads(file.read_text(encoding="utf-8"))
    lines = [["picked by", *TASKS.values(), "LookBack's lead"], ["---", *["---:"] * 5]]
    for scorer, name in NAMES.items():
        cells = [f"{data['tasks'][task]['scorers'][scorer][0]:.1f}" for task in TASKS]
        lead = "{:+.1f} [{:+.1f}, {:+.1f}]".format(*data["leads"].get(scorer, (0, 0, 0)))
        lines.append([name, *cells, lead if scorer in data["leads"] else ""])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Read a folder of runs, write the file and README's table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=Path, help="with a run of each task, named as the task")
    write(parser.parse_args().runs)
    blocks.put(Path("README.md"), "measured", readme_table())


if __name__ == "__main__":
    main()

"""The table of docs/choosing.md: which scorer to take, by kind of task and N.

`python -m tools.choosing RUNS --write docs/choosing.md`; `make reproduce` does it, of its own runs.
Without --write the table is printed.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

from lookback.runs import open_runs
from lookback.scores.base import get_scorer
from lookback.studies import Runs, get_study
from lookback.studies.common.base import title
from lookback.studies.common.selection import (
    bootstrap_means,
    greedy_outcome,
    greedy_run,
    has_scores,
    in_order,
    interval,
    other_methods,
    outcome,
    paper_methods,
)
from tools import blocks

KINDS = {
    "scenes-vqa": "short answers",
    "scenes-caption": "short descriptions",
    "scenes-pairs": "yes or no, to look-alikes",
    "scenes-amber": "long descriptions",
}

COLUMNS = (
    *("Task", "N", "Random", "Greedy, one answer", "Mean log p", "LookBack", "behind the highest"),
    *("Highest scorer", "Level with it", "Best pair, over the best alone"),
)


class Choice(NamedTuple):
    """A kind of task and an N: who is highest there, who is level with it, and LookBack.

    Attributes:
        task, n: where.
        random: random selection, in per cent.
        greedy: one greedy answer, in per cent; None where there is no run of it.
        log_prob: mean log p, in per cent.
        best, value: the highest scorer, and its per cent.
        level: those whose paired difference from it has an interval that holds 0.
        ours: LookBack's per cent.
        behind: how far it is behind the highest, with its interval; 0 if it is the highest.
        pair: which pair other items would take, and what it adds to the scorer they would take.
    """

    task: str
    n: int
    random: float
    greedy: float | None
    log_prob: float
    best: str
    value: float
    level: list[str]
    ours: float
    behind: tuple[float, float, float]
    pair: str


def choices(runs: Runs) -> list[Choice]:
    """A row per task and N."""
    given = get_study("main").prepare(runs)
    tables = get_study("combine")(runs).tables
    taken = [line for table in tables if table.columns[3] == ("", "Taken") for line in table.rows]
    pairs = {(line[0], line[1]): f"{line[6]}: {line[7]}" for line in taken}
    found = []
    for run in in_order(given.largest):
        other = greedy_run(run, given.own)
        greedy = None if other is None else float(100 * greedy_outcome(run, other).mean())
        for n in given.budgets(run):
            names = [m for m in (*paper_methods(), *other_methods()) if has_scores(run, m, n)]
            values = {m: 100 * outcome(run, m, n) for m in names}
            values = {m: v for m, v in values.items() if get_scorer(m).expected is None}
            best = max(values, key=lambda m: round(float(values[m].mean()), 9))
            gaps = {m: values[best] - v for m, v in values.items()}
            ends = {m: interval(bootstrap_means(gap)) for m, gap in gaps.items()}
            level = [m for m in values if m != best and ends[m][0] <= 1e-9]
            found.append(
                Choice(
                    f"{title(run)}: {KINDS.get(run.benchmark, 'your own')}",
                    n,
                    float((100 * outcome(run, "random", n)).mean()),
                    greedy,
                    float(values["mean_log_prob"].mean()),
                    best,
                    float(values[best].mean()),
                    level,
                    float(values["lookback"].mean()),
                    (float(gaps["lookback"].mean()), *ends["lookback"]),
                    pairs[title(run), str(n)],
                )
            )
    return found


def _points(value: float, low: float, high: float) -> str:
    value, low, high = (round(number, 1) + 0.0 for number in (value, low, high))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def text_of(found: list[Choice]) -> str:
    """The table, and where LookBack is not the one to take."""
    lines = [" | ".join(COLUMNS), "---|" + "---:|" * 6 + "---|---|---"]
    for c in found:
        level = ", ".join(get_scorer(m).title for m in c.level) or "none"
        behind = "-" if c.best == "lookback" else _points(*c.behind)
        highest = f"{get_scorer(c.best).title} {c.value:.1f}"
        greedy = "-" if c.greedy is None else f"{c.greedy:.1f}"
        numbers = (f"{c.random:.1f}", greedy, f"{c.log_prob:.1f}", f"{c.ours:.1f}", behind)
        lines.append(" | ".join((c.task, str(c.n), *numbers, highest, level, c.pair)))
    table = "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)
    lost = [c for c in found if c.best != "lookback" and "lookback" not in c.level]
    others = len(found) - len(lost)
    told = [f"LookBack is the highest, or level with it, in {others} of {len(found)} rows."]
    if lost:
        where = [f"{_row(c)} ({get_scorer(c.best).title})" for c in lost]
        told.append(f"It is not the one to take on {'; '.join(where)}.")
    above = [_row(c) for c in found if c.greedy is not None and c.greedy > c.ours]
    if above:
        told.append(f"One greedy answer scores higher than its pick on {'; '.join(above)}.")
    return f"{table}\n\n{' '.join(told)}\n"


def _row(c: Choice) -> str:
    return f"{c.task.partition(':')[0]} at N = {c.n}"


def write(runs: Path, doc: Path) -> None:
    """Put a new table in the place of the old one."""
    blocks.put(doc, "choosing", text_of(choices(Runs(open_runs([runs])))))


def main() -> None:
    """Print, or write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=Path, help="a folder of runs with their controls")
    parser.add_argument("--write", type=Path, help="a Markdown file whose block to replace")
    given = parser.parse_args()
    if given.write:
        write(given.runs, given.write)
    else:
        print(text_of(choices(Runs(open_runs([given.runs])))))


if __name__ == "__main__":
    main()

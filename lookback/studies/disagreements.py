"""tab:appendix_human: a sample of the items on which two scorers disagree, for people to judge."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookback.pages import images
from lookback.pages.annotation import Comparison, annotation_page
from lookback.runs import Run
from lookback.studies.base import Result, Runs, StudyError, study
from lookback.studies.cases import VERDICTS, draw, verdicts
from lookback.studies.plots import panels
from lookback.studies.selection import METHODS, OTHERS, in_order, title
from lookback.studies.tables import Table
from lookback.studies.write import csv_of

NAMES = METHODS | OTHERS
KEY = ("set", "case", "id", "A1_scorer", "A2_scorer")


@study("disagreements", paper="tab:appendix_human")
def disagreements(
    runs: Runs,
    first: str = "lookback",
    second: str = "self_certainty",
    cases: int = 50,
    seed: int = 42,
) -> Result:
    """Where two scorers pick different texts: pages for annotators, and the automatic verdict.

    Args:
        runs: each gives its own pages.
        first: one scorer.
        second: the other.
        cases: how many to draw; two sets share them.
        seed: of the draw, and of which answer stands on which side.

    Raises:
        StudyError: they pick the same text for every item.
    """
    if cases < 1 or first == second:
        raise StudyError(f"{cases} cases of {first} against {second}: nothing to compare")
    rows: list[dict[str, Any]] = []
    files: dict[str, str | bytes] = {}
    lines, notes = [], ["Automatic: which text has the higher quality by the benchmark's measure."]
    several = in_order(runs.largest)
    for run in several:
        found = draw(run, first, second, cases, seed)
        drawn = [row for row in found if row["set"]]
        rows += found
        name = f"{title(run)}, {run.model}"
        lines.append([f"Automatic, {name}, drawn", *verdicts(drawn)])
        lines.append([f"Automatic, {name}, all", *verdicts(found)])
        fewer = "" if len(drawn) == cases else f" (fewer than the {cases} asked for)"
        notes.append(
            f"{name}: {len(found)} disagreements in {len(run.ids)} items, N={run.n}; "
            f"{len(drawn)} drawn{fewer}."
        )
        added, missing = _files(run, drawn, _prefix(run, several))
        files |= added
        notes += [f"{name}: {missing}"] if missing else []
    if not rows:
        raise StudyError(f"{first} and {second} pick the same text for every item of these runs")
    names = [NAMES.get(first, first), "Tie", NAMES.get(second, second)]
    caption = f"Cases in which {names[0]} and {names[2]} pick different texts."
    heads = [("", "Evaluation"), *(("", name) for name in names)]
    table = Table(heads, lines, caption, "tab:appendix_human")
    return Result(rows, [table], _figure(rows, names), notes, files)


def _prefix(run: Run, runs: list[Run]) -> str:
    """What tells a run's files from those of the others."""
    model = f"{run.model.replace('/', '-')}-" if len({r.model for r in runs}) > 1 else ""
    return f"{model}{run.benchmark}-" if len(runs) > 1 else ""


def _files(
    run: Run, drawn: list[dict[str, Any]], prefix: str
) -> tuple[dict[str, str | bytes], str]:
    """The pages and the key; and why images are missing, if they are."""
    image, reasons = images(run), []
    files: dict[str, str | bytes] = {}
    for name, number in ((f"{prefix}set1", 1), (f"{prefix}set2", 2)):
        here = [row for row in drawn if row["set"] == number]
        shown = [Comparison(r["question"], image(r["item"]), r["A1"], r["A2"]) for r in here]
        reasons += [case.image for case in shown if isinstance(case.image, str)]
        if here:
            files[f"{name}.html"] = annotation_page(name, shown)
    if drawn:
        files[f"{prefix}key.csv"] = csv_of([{name: row[name] for name in KEY} for row in drawn])
    return files, f"{len(reasons)} images are missing: {reasons[0]}" if reasons else ""


def _figure(rows: list[dict[str, Any]], names: list[str]) -> Any:
    """The automatic verdict over all disagreements, a bar a run."""
    groups = list(dict.fromkeys(f"{row['benchmark']}, {row['model']}" for row in rows))
    figure, axes = panels(1, 1, width=6, height=0.5 * len(groups) + 1)
    left = np.zeros(len(groups))
    for verdict, name, color in zip(
        VERDICTS, names, ("#c2410c", "#cbd5e1", "#2563eb"), strict=True
    ):
        label = name if name == "Tie" else f"{name} better"
        here = [[r for r in rows if f"{r['benchmark']}, {r['model']}" == g] for g in groups]
        width = np.array([100 * np.mean([r["verdict"] == verdict for r in g]) for g in here])
        axes[0, 0].barh(groups, width, left=left, height=0.6, color=color, label=label)
        left += width
    axes[0, 0].set_xlabel("per cent of the items where they differ")
    axes[0, 0].invert_yaxis()
    figure.legend(loc="outside upper center", ncols=3)
    return figure

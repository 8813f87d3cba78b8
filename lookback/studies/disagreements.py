"""tab:appendix_human: a sample of the items on which two scorers disagree, for people to judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.annotation.cases import Case, KeyCase, Pick, folder_files
from lookback.pages import image_uri
from lookback.runs import Run
from lookback.runs.items import item_images
from lookback.scores.base import Scorer, get_scorer
from lookback.studies.common.base import Result, Runs, StudyError, study, title
from lookback.studies.common.selection import in_order
from lookback.studies.common.tables import Table
from lookback.studies.common.votes import (
    VERDICTS,
    has_verdict,
    sample_cases,
    verdict_bars,
    verdict_counts,
)

LARGEST = 1024
"""Pixels of an image's longer side: raters enlarge it."""


@study("disagreements", paper="tab:appendix_human", title="Disagreements")
def disagreements(
    runs: Runs,
    first: str = "lookback",
    second: str = "self_certainty",
    cases: int = 50,
    seed: int = 42,
) -> Result:
    """Where two scorers pick different texts: cases for raters, and the automatic verdict.

    Args:
        runs: each gives a folder of cases, for `lookback annotate`.
        first: one scorer.
        second: the other.
        cases: how many to draw; two sets share them.
        seed: of the draw, and of which answer stands on which side.

    Raises:
        StudyError: they pick the same text for every item.
    """
    if cases < 1 or first == second:
        raise StudyError(f"{cases} cases of {first} against {second}: nothing to compare")
    scorers = get_scorer(first), get_scorer(second)
    rows: list[dict[str, Any]] = []
    files: dict[str, str | bytes] = {}
    lines = []
    notes = [
        "Automatic: which text has the higher quality by the benchmark's measure.",
        "Whiskers above a bar are of the first one's share, those below of the second one's: 95 %, "
        "from 2,000 bootstrap samples of the items where the scorers differ.",
    ]
    several = in_order(runs.largest)
    for run in several:
        differing = sample_cases(run, runs.budget(run), first, second, cases, seed)
        sample = [row for row in differing if row["set"]]
        rows += differing
        name = f"{title(run)}, {run.model}"
        lines.append([f"Automatic, {name}, drawn", *verdict_counts(sample)])
        lines.append([f"Automatic, {name}, all", *verdict_counts(differing)])
        fewer = "" if len(sample) == cases else f" (fewer than the {cases} asked for)"
        notes.append(
            f"{name}: {len(differing)} disagreements in {len(run.ids)} items, "
            f"N={runs.budget(run)}; {len(sample)} drawn{fewer}."
        )
        unjudged = sum(not has_verdict(row) for row in differing)
        if unjudged:
            notes.append(f"{name}: {unjudged} disagreements have no quality and are not counted.")
        added, missing = _files(run, sample, _prefix(run, several), scorers)
        files |= added
        notes += [f"{name}: {missing}"] if missing else []
    if not rows:
        raise StudyError(f"{first} and {second} pick the same text for every item of these runs")
    names = [scorers[0].title, "Tie", scorers[1].title]
    caption = f"Cases in which {names[0]} and {names[2]} pick different texts."
    header = [("", "Evaluation"), *(("", name) for name in names)]
    table = Table(header, lines, caption, "tab:appendix_human")
    return Result(rows, [table], _figure(rows, *scorers), notes, files)


def _prefix(run: Run, runs: list[Run]) -> str:
    """What tells a run's files from those of the others."""
    model = f"{run.model}-" if len({r.model for r in runs}) > 1 else ""
    name = f"{model}{run.benchmark}-" if len(runs) > 1 else ""
    return name.replace("/", "-").replace(":", "-")


def _files(
    run: Run, sample: list[dict[str, Any]], prefix: str, scorers: Sequence[Scorer]
) -> tuple[dict[str, str | bytes], str]:
    """The folder of cases; and why images are missing, if they are."""
    if not sample:
        return {}, ""
    image, reasons, cases, keyed = item_images(run), [], [], []
    for row in sorted(sample, key=lambda row: (row["set"], row["case"])):
        picture, place = image(row["item"]), (row["set"], row["case"])
        reasons += [picture] if isinstance(picture, str) else []
        uri = None if isinstance(picture, str) else image_uri(picture, LARGEST)
        cases.append(Case(*place, row["question"], (row["A1"], row["A2"]), uri))
        quality = _known(row["A1_quality"]), _known(row["A2_quality"])
        keyed.append(KeyCase(*place, row["id"], (row["A1_scorer"], row["A2_scorer"]), quality))
    picks = [Pick(scorer.name, scorer.title, scorer.color) for scorer in scorers]
    about = {"model": run.model, "benchmark": title(run), "n": sample[0]["N"]}
    files = folder_files(cases, keyed, *picks, **about)
    missing = f"{len(reasons)} images are missing: {reasons[0]}" if reasons else ""
    return {f"{prefix}cases/{name}": text for name, text in files.items()}, missing


def _known(quality: float) -> float | None:
    return None if np.isnan(quality) else quality


def _figure(rows: list[dict[str, Any]], first: Scorer, second: Scorer) -> Any:
    """The automatic verdict over all disagreements, a bar per run; None without any verdict."""
    groups: dict[str, list[list[float]]] = {}
    for row in rows:
        if has_verdict(row):
            name = f"{row['benchmark']}, {row['model']}"
            groups.setdefault(name, []).append([float(row["verdict"] == v) for v in VERDICTS])
    bars = {f"{name} (n={len(counts)})": np.array(counts) for name, counts in groups.items()}
    xlabel = "per cent of the items where they differ"
    return verdict_bars(bars, first, second, xlabel) if bars else None

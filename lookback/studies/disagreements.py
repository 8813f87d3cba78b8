"""tab:appendix_human: a sample of the items on which two scorers disagree, for people to judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.pages import images
from lookback.pages.annotation import Comparison, annotation_page
from lookback.runs import Run
from lookback.scores.base import Scorer, get_scorer
from lookback.studies.shared.base import Result, Runs, StudyError, study, title
from lookback.studies.shared.cases import VERDICTS, has_verdict, sample_cases, verdict_counts
from lookback.studies.shared.methods import in_order
from lookback.studies.shared.plots import INK, PALE, SMALL, TWO_COLUMNS, in_style, panels
from lookback.studies.shared.selection import bootstrap_means, interval
from lookback.studies.shared.tables import Table, csv_of

DARK = "#475569"
KEY = ("set", "case", "id", "A1_scorer", "A2_scorer")


@study("disagreements", paper="tab:appendix_human", title="Disagreements")
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
        found = sample_cases(run, runs.budget(run), first, second, cases, seed)
        sample = [row for row in found if row["set"]]
        rows += found
        name = f"{title(run)}, {run.model}"
        lines.append([f"Automatic, {name}, drawn", *verdict_counts(sample)])
        lines.append([f"Automatic, {name}, all", *verdict_counts(found)])
        fewer = "" if len(sample) == cases else f" (fewer than the {cases} asked for)"
        notes.append(
            f"{name}: {len(found)} disagreements in {len(run.ids)} items, N={runs.budget(run)}; "
            f"{len(sample)} drawn{fewer}."
        )
        unjudged = sum(not has_verdict(row) for row in found)
        if unjudged:
            notes.append(f"{name}: {unjudged} disagreements have no quality and are not counted.")
        added, missing = _files(run, sample, _prefix(run, several))
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
    run: Run, sample: list[dict[str, Any]], prefix: str
) -> tuple[dict[str, str | bytes], str]:
    """The pages and the key; and why images are missing, if they are."""
    image, reasons = images(run), []
    files: dict[str, str | bytes] = {}
    for name, number in ((f"{prefix}set1", 1), (f"{prefix}set2", 2)):
        here = [row for row in sample if row["set"] == number]
        shown = [Comparison(r["question"], image(r["item"]), r["A1"], r["A2"]) for r in here]
        reasons += [case.image for case in shown if isinstance(case.image, str)]
        if here:
            files[f"{name}.html"] = annotation_page(name, shown)
    if sample:
        files[f"{prefix}key.csv"] = csv_of([{name: row[name] for name in KEY} for row in sample])
    return files, f"{len(reasons)} images are missing: {reasons[0]}" if reasons else ""


@in_style
def _figure(rows: list[dict[str, Any]], first: Scorer, second: Scorer) -> Any:
    """The automatic verdict over all disagreements, a bar per run; None without any verdict."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if has_verdict(row):
            name = f"{row['benchmark']}, {row['model']}"
            groups.setdefault(name, []).append(row["verdict"])
    if not groups:
        return None
    figure, axes = panels(1, 1, TWO_COLUMNS, height=0.36 * len(groups) + 0.8)
    axis, left = axes[0, 0], np.zeros(len(groups))
    names = [f"{name} (n={len(verdicts)})" for name, verdicts in groups.items()]
    labels = (f"{first.title} better", "Tie", f"{second.title} better")
    colors = (first.color, PALE, DARK if second.color == first.color else second.color)
    for verdict, label, color in zip(VERDICTS, labels, colors, strict=True):
        width = np.array([100 * np.mean([v == verdict for v in g]) for g in groups.values()])
        bars = axis.barh(names, width, left=left, height=0.5, color=color, label=label)
        words = [f"{w:.0f} %" if w >= 6 else "" for w in width]
        ink = INK if verdict == "tie" else "white"
        axis.bar_label(bars, words, label_type="center", fontsize=SMALL, color=ink)
        left += width
    for number, verdicts in enumerate(groups.values()):
        _draw_interval(axis, number - 0.36, verdicts, VERDICTS[:1], colors[0])
        _draw_interval(axis, number + 0.36, verdicts, VERDICTS[:2], colors[2])
    axis.set(xlabel="per cent of the items where they differ", xlim=(0, 100))
    axis.grid(visible=False)
    axis.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def _draw_interval(
    axis: Any, y: float, verdicts: list[str], inside: Sequence[str], color: str
) -> None:
    """The interval of the share of some verdicts, which are drawn from the left."""
    shares = 100 * np.array([verdict in inside for verdict in verdicts], dtype=np.float64)
    low, high = interval(bootstrap_means(shares))
    around = np.abs([[shares.mean() - low], [high - shares.mean()]])
    axis.errorbar([shares.mean()], [y], xerr=around, fmt="|", color=color, elinewidth=1, capsize=2)

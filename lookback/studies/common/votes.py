"""Votes of raters: cases sampled for them, ballots read, agreement, and bars of verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lookback.annotation.cases import KEY, Key, read_key
from lookback.annotation.votes import FILE, MAGIC, Vote, read_jsonl, read_sqlite
from lookback.runs import Run
from lookback.scores.formula import Array
from lookback.studies.common import plots
from lookback.studies.common.base import StudyError, title
from lookback.studies.common.selection import interval, item_counts, picks


def fleiss_kappa(counts: Array, weights: Array | None = None) -> Array:
    """Fleiss' kappa (1971): every case has the same number of votes, not of the same raters.

    Args:
        counts: (cases, categories).
        weights: (draws, cases), how often each case counts; by default each once.

    Returns:
        (draws,), or without weights a number.

    Raises:
        ValueError: cases have different numbers of votes.
    """
    raters = counts.sum(axis=1)
    if len(set(raters.tolist())) > 1:
        few, many = raters.min(), raters.max()
        raise ValueError(f"Fleiss' kappa: cases have from {few:g} to {many:g} votes")
    used = np.ones(len(counts)) if weights is None else weights
    with np.errstate(divide="ignore", invalid="ignore"):
        same = (counts * (counts - 1)).sum(axis=1) / (raters * (raters - 1))  # P_i
        observed = used @ same / used.sum(axis=-1)
        shares = used @ counts / (used @ raters)[..., None]  # p_j
        return _above_chance(observed, (shares**2).sum(axis=-1))


def krippendorff_alpha(counts: Array, weights: Array | None = None) -> Array:
    """Krippendorff's alpha for categories without an order; cases may lack votes.

    Cases with fewer than two votes take no part. Arguments and result as for `fleiss_kappa`.
    """
    raters = counts.sum(axis=1)
    paired = np.where((raters >= 2)[:, None], counts, 0.0)
    # Pairs of votes on a case that agree, each pair counted 1 / (m - 1) times: coincidences o_cc.
    agree = (paired * (paired - 1)).sum(axis=1) / np.maximum(raters - 1, 1)
    used = np.ones(len(counts)) if weights is None else weights
    with np.errstate(divide="ignore", invalid="ignore"):
        values = used @ paired  # n_c
        total = values.sum(axis=-1)
        chance = (values * (values - 1)).sum(axis=-1) / (total * (total - 1))
        return _above_chance(used @ agree / total, chance)


def _above_chance(observed: Array, expected: Array) -> Array:
    above = (observed - expected) / (1 - expected)
    return np.asarray(np.where(1 - expected < 1e-12, np.nan, above))


def kappa_interval(counts: Array) -> tuple[float, float]:
    """The middle 95 % of Fleiss' kappa in bootstrap samples of cases."""
    return _interval(fleiss_kappa(counts, item_counts(len(counts))))


def alpha_interval(counts: Array) -> tuple[float, float]:
    """The middle 95 % of Krippendorff's alpha in bootstrap samples of cases."""
    return _interval(krippendorff_alpha(counts, item_counts(len(counts))))


def _interval(draws: Array) -> tuple[float, float]:
    """Of the samples in which the coefficient is defined; NaN if in half of them it is not."""
    defined = draws[~np.isnan(draws)]
    return (np.nan, np.nan) if 2 * len(defined) < len(draws) else interval(defined)


def sign_test(first: int, second: int) -> float:
    """The two-sided exact p of so many wins on either side, were both equally likely."""
    wins, total = max(first, second), first + second
    tail = sum(comb(total, k) for k in range(wins, total + 1))
    return min(1.0, float(2 * tail / 2**total))


def read_ballots(paths: Sequence[str]) -> tuple[Key, list[Vote]]:
    """All votes on one study's cases, each once, and the key.

    Args:
        paths: folders of cases (their votes.sqlite and *.jsonl), SQLite files and JSON lines. The
            key is looked for in the folders, and beside the files.

    Raises:
        StudyError: there is no vote or no key, or votes are of two studies or contradict each
            other.
        OSError, ValueError: a file cannot be read, or has something else in it.
    """
    files = [file for path in paths for file in _files(Path(path))]
    folders = {path if path.is_dir() else path.parent for path in map(Path, paths)}
    read = [read_key(folder) for folder in sorted(folders) if (folder / KEY).is_file()]
    keys = {key.study: key for key in read}
    votes = _merge({file: _read(file) for file in files})
    if not votes:
        raise StudyError(f"no votes in {', '.join(paths)}: `lookback annotate DIR` collects them")
    studies = sorted({vote.study for vote in votes})
    if len(studies) > 1:
        raise StudyError(f"these are votes of {len(studies)} studies: give those of one at a time")
    if studies[0] not in keys:
        raise StudyError(
            f"no key of study {studies[0]} beside these votes: give the folder of its cases, too "
            "(that of `lookback study disagreements`)"
        )
    key = keys[studies[0]]
    for vote in votes:
        if (vote.set, vote.case) not in key.cases:
            raise StudyError(f"rater {vote.rater}: there is no case {vote.case} of set {vote.set}")
    return key, votes


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.is_file():
            raise FileNotFoundError(f"no file or folder {str(path)!r}")
        return [path]
    kept = [path / FILE] if (path / FILE).is_file() else []
    return [*kept, *sorted(path.glob("*.jsonl"))]


def _read(path: Path) -> list[Vote]:
    with path.open("rb") as file:
        begin = file.read(len(MAGIC))
    return read_sqlite(path) if begin == MAGIC else read_jsonl(path)


def _merge(by_file: dict[Path, list[Vote]]) -> list[Vote]:
    """Each vote once: a file may be given twice, a saved page's again with more votes."""
    votes: dict[tuple[str, str, int, int], tuple[Path, Vote]] = {}
    for path, here in by_file.items():
        for vote in here:
            place = vote.study, vote.rater, vote.set, vote.case
            other, kept = votes.setdefault(place, (path, vote))
            if kept.choice != vote.choice:
                raise StudyError(
                    f"rater {vote.rater}, set {vote.set}, case {vote.case}: {kept.choice} in "
                    f"{other}, {vote.choice} in {path}: keep the file that holds, and give no other"
                )
    return [vote for _, vote in votes.values()]


VERDICTS = ("first", "tie", "second")
"""Whose pick the benchmark's own measure prefers."""
NO_VERDICT = "-"
"""Where the measure tells nothing of one of the picks."""


def has_verdict(row: dict[str, Any]) -> bool:
    """Whether the benchmark's own measure compares the picks."""
    return bool(row["verdict"] != NO_VERDICT)


def verdict_counts(rows: list[dict[str, Any]]) -> list[str]:
    """How often the first pick is better, neither, the second: numbers and per cent."""
    judged = [row for row in rows if has_verdict(row)]
    if rows and not judged:
        return [NO_VERDICT] * len(VERDICTS)
    counts = [sum(row["verdict"] == verdict for row in judged) for verdict in VERDICTS]
    return [f"{c} ({100 * c / len(judged):.1f}%)" if judged else "0" for c in counts]


def sample_cases(
    run: Run, n: int, first: str, second: str, most: int, seed: int
) -> list[dict[str, Any]]:
    """A row per disagreement, those of the sample first; the others have set 0 and case 0.

    Args:
        run: whose items.
        n: of how many candidates of each they pick.
        first, second: the scorers.
        most: how many disagreements to draw.
        seed: of the draw.
    """
    scores = run.scores(first, n), run.scores(second, n)
    sides = tuple(picks(s) for s in scores)
    scored = ~(np.isnan(scores[0]).all(axis=1) | np.isnan(scores[1]).all(axis=1))
    rows, quality = np.flatnonzero(scored), run.quality(n)
    place = run.grid(np.arange(float(len(run.texts))), n)  # among all of the run's candidates
    texts = [{i: run.texts[int(place[i, side[i]])] for i in rows.tolist()} for side in sides]
    differ = [i for i in rows.tolist() if texts[0][i] != texts[1][i]]
    rng = np.random.default_rng(seed)
    half = (min(most, len(differ)) + 1) // 2
    cases = []
    for rank, item in enumerate(rng.permutation(differ).astype(int).tolist()):
        number = 0 if rank >= most else 1 + rank // half
        swap = int(rng.integers(2))
        row = {"model": run.model, "benchmark": title(run), "N": n, "set": number}
        row |= {
            "case": 1 + rank % half if number else 0,
            "id": run.ids[item],
            "item": int(run.places[item]),
        }
        row |= {
            "question": run.questions[item],
            "A1": texts[swap][item],
            "A2": texts[1 - swap][item],
        }
        row |= {"A1_scorer": (first, second)[swap], "A2_scorer": (second, first)[swap]}
        both = [float(quality[item, side[item]]) for side in sides]
        row |= {"A1_quality": both[swap], "A2_quality": both[1 - swap]}
        cases.append(row | {"verdict": verdict(*both)})
    return cases


def verdict(first: float, second: float) -> str:
    """Whose quality is higher; `NO_VERDICT` if one is NaN."""
    if np.isnan(first) or np.isnan(second):
        return NO_VERDICT
    return VERDICTS[1 - int(np.sign(first - second))]


DARK = "#475569"


class Named(Protocol):
    """A title and a colour: a scorer, or what a key says of it."""

    @property
    def title(self) -> str:
        """As in legends."""

    @property
    def color(self) -> str:
        """As #rrggbb."""


@plots.in_style
def verdict_bars(groups: Mapping[str, Array], first: Named, second: Named, xlabel: str) -> Any:
    """A figure of a bar per group.

    Whiskers above a bar are of the first one's share, those below of the second one's, from
    bootstrap samples of cases.

    Args:
        groups: name -> (cases, 3): how many verdicts of each kind a case has.
        first, second: the scorers.
        xlabel: per cent of what.
    """
    figure, axes = plots.panels(1, 1, plots.TWO_COLUMNS, height=0.36 * len(groups) + 0.8)
    axis, left = axes[0, 0], np.zeros(len(groups))
    labels = (f"{first.title} better", "Tie", f"{second.title} better")
    colors = (first.color, plots.PALE, DARK if second.color == first.color else second.color)
    totals = np.array(
        [100 * votes.sum(axis=0) / votes.sum() for votes in groups.values()]
    )  # (groups, 3)
    for width, label, color in zip(totals.T, labels, colors, strict=True):
        bars = axis.barh(list(groups), width, left=left, height=0.5, color=color, label=label)
        words = [f"{w:.0f} %" if w >= 6 else "" for w in width]
        ink = plots.INK if color == plots.PALE else "white"
        axis.bar_label(bars, words, label_type="center", fontsize=plots.SMALL, color=ink)
        left += width
    for number, counts in enumerate(groups.values()):
        _draw_interval(axis, number - 0.36, counts, 1, colors[0])
        _draw_interval(axis, number + 0.36, counts, 2, colors[2])
    axis.set(xlabel=xlabel, xlim=(0, 100))
    axis.grid(visible=False)
    axis.invert_yaxis()
    plots.add_legend(figure, "upper", *axis.get_legend_handles_labels())
    return figure


def share_draws(counts: Array, kinds: int) -> Array:
    """(draws,): the share of the first `kinds` verdicts, in per cent, in samples of cases."""
    drawn = item_counts(len(counts)) @ counts  # (draws, 3)
    return np.asarray(100 * drawn[:, :kinds].sum(axis=1) / drawn.sum(axis=1))


def _draw_interval(axis: Any, y: float, counts: Array, kinds: int, color: str) -> None:
    """The interval of the share of the verdicts that are drawn from the left."""
    share = 100 * counts[:, :kinds].sum() / counts.sum()
    low, high = interval(share_draws(counts, kinds))
    around = np.abs([[share - low], [high - share]])
    axis.errorbar([share], [y], xerr=around, fmt="|", color=color, elinewidth=1, capsize=2)

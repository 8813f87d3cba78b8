"""Quality against tokens decoded: fewer candidates, or all of them with the worst ended early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import Array
from lookback.signals import SIGNALS
from lookback.steering.pruning import check_schedule
from lookback.studies.common import plots
from lookback.studies.common.base import Result, Runs, StudyError, study, title
from lookback.studies.common.selection import (
    choices_of_other_half,
    estimate,
    in_order,
    picks,
    quality_of_picks,
)
from lookback.studies.common.tables import Table

JUDGES = ("lookback", "mean_log_prob", "visual_lookback")
"""Who decides which candidates go on."""
SHOWN = (1, 2, 5, 10, 12, 15, 20, 25)
"""The N of the table."""
NUMBERS = ("values", "tokens", "same")
BEST_OF, PRUNED, CHOSEN = "best of N", "pruned", "chosen"
NOTES = [
    "Simulated: who would have been pruned, and after how many tokens, follows from the signals of "
    "a whole draw. Tokens are those drawn per item, each response's end token among them.",
    "The judge decides which candidates go on; what is picked in the end is always LookBack's pick "
    "among the complete ones.",
    "Chosen: of {count} schedules, among those that cost at most {share:.0%} of the tokens the one "
    "that is best on one half of the items, told of the other half; {splits} halvings by lot.",
    "Same pick: the share of items of which the pick is that of all candidates, at full length.",
    "Over as many tokens: over best of N for the smallest N that costs at least as much. "
    "Intervals: 95 %, from 2,000 bootstrap samples of items; differences are paired.",
]


Schedule = tuple[tuple[int, int], ...]
"""(after so many tokens, so many go on)."""
CHECKPOINTS = (8, 12, 16, 24, 32, 48)
PARTS = (2, 4, 8)
"""At the first checkpoint a half, a quarter or an eighth goes on; at a second one half of these."""


@dataclass(frozen=True, eq=False)
class Point:
    """One way to spend tokens.

    Attributes:
        method, judge, schedule: what it is.
        values: (items,), the quality of the pick, in per cent.
        tokens: (items,), how many were drawn.
        same: (items,), 1 where the pick is that of all candidates, else 0.
    """

    method: str
    judge: str
    schedule: str
    values: Array
    tokens: Array
    same: Array


@study("budget", title="Quality against tokens", needs_quality=True)
def budget(runs: Runs, share: float = 0.5, splits: int = 20, seed: int = 0) -> Result:
    """Quality against tokens decoded: best of N, and all N with the worst pruned on the way.

    Args:
        runs: whole draws; pruned runs, and candidates from elsewhere, tell nothing here.
        share: of all tokens, how many a chosen schedule may cost.
        splits: how often the items are halved by lot, to choose a schedule on one half for the
            other.
        seed: of that lot.

    Raises:
        StudyError: no run is a whole draw, or a setting is out of range.
    """
    if not 0 < share <= 1:
        raise StudyError(f"share = {share}: must be above 0 and at most 1")
    whole = [run for run in in_order(runs.largest) if run.seed is not None and not run.steered]
    if not whole:
        raise StudyError(
            "no run here is a whole draw of a model: give one of `lookback run` without --prune "
            "and --candidates"
        )
    rows: list[dict[str, Any]] = []
    tables, drawn, notes = [], [], list[str]()
    for run in whole:
        n = runs.budget(run)
        points = [*_best_of(run, n), *_pruned(run, n)]
        chosen = _choose(points, share, splits, seed)
        if not chosen:
            notes.append(f"{title(run)}, {run.model}: {_too_short(points, share)}")
        here = [_row(run, n, point, points[:n]) for point in (*points, *chosen)]
        rows += here
        tables.append(_table(run, n, here))
        drawn.append((run, here))
    count = len({row["schedule"] for row in rows if row["method"] == PRUNED})
    explanations = [note.format(count=count, share=share, splits=splits) for note in NOTES]
    return Result(rows, tables, _figure(drawn), [*explanations, *notes])


def _best_of(run: Run, n: int) -> list[Point]:
    """A point per N."""
    scores, quality = run.scores("lookback", n), 100 * run.quality(n)
    drawn, points = tokens_drawn(run), []
    for k in range(1, n + 1):
        values = quality_of_picks(scores[:, :k], quality[:, :k])
        tokens = np.asarray(np.nansum(drawn[:, :k], axis=1))
        same = (picks(scores[:, :k]) == picks(scores)).astype(np.float64)
        points.append(Point(BEST_OF, "", str(k), values, tokens, same))
    return points


def _pruned(run: Run, n: int) -> list[Point]:
    """A point per judge and schedule."""
    scores, quality = run.scores("lookback", n), 100 * run.quality(n)
    drawn, points = tokens_drawn(run)[:, :n], []
    for judge in JUDGES:
        until = prefix_scores(run, judge, CHECKPOINTS)
        until = {tokens: values[:, :n] for tokens, values in until.items()}
        for schedule in schedules(n):
            pruned = prune(until, drawn, schedule)
            left = np.where(np.isnan(pruned), scores, np.nan)
            values = quality_of_picks(left, quality)
            tokens = tokens_left(drawn, pruned)
            same = (picks(left) == picks(scores)).astype(np.float64)
            points.append(Point(PRUNED, judge, schedule_text(schedule), values, tokens, same))
    return points


def _choose(points: list[Point], share: float, splits: int, seed: int) -> list[Point]:
    """For each judge the schedule that the other half of the items would choose."""
    full = _full(points).tokens.mean()
    chosen = []
    for judge in JUDGES:
        cheap = [p for p in points if p.judge == judge and p.tokens.mean() <= share * full]
        if not cheap:
            return []
        numbers = [np.stack([getattr(p, name) for p in cheap], 1) for name in NUMBERS]
        shares, counts = choices_of_other_half(numbers[0], splits, seed)
        most = cheap[int(counts.argmax())].schedule
        held_out = [np.asarray((shares * number).sum(axis=1)) for number in numbers]
        chosen.append(Point(CHOSEN, judge, f"mostly {most}", *held_out))
    return chosen


def _full(points: list[Point]) -> Point:
    return [point for point in points if point.method == BEST_OF][-1]


def _too_short(points: list[Point], share: float) -> str:
    costs = [p.tokens.mean() for p in points if p.method == PRUNED]
    if not costs:
        return "of one candidate nothing can be pruned."
    least = min(costs) / _full(points).tokens.mean()
    return (
        f"no schedule costs at most {share:.0%} of the tokens for every judge (the cheapest of all "
        f"{least:.0%}): most answers end before there is anything to prune."
    )


def _row(run: Run, n: int, point: Point, whole: list[Point]) -> dict[str, Any]:
    """A row of the tidy table; `whole` are best of 1 to n."""
    cost, full = float(point.tokens.mean()), float(whole[-1].tokens.mean())
    same = next((p for p in whole if p.tokens.mean() >= cost - 1e-9), whole[-1])
    of = int(point.schedule) if point.method == BEST_OF else n
    row = {"model": run.model, "benchmark": title(run), "N": of, "method": point.method}
    row |= {"judge": point.judge, "schedule": point.schedule, "items": len(point.values)}
    row |= {"tokens": cost, "share": cost / full} | estimate(point.values)
    row |= {"same_pick": float(point.same.mean()), "same_tokens_n": int(same.schedule)}
    for name, other in (("over_all", whole[-1]), ("over_same", same)):
        row |= estimate(point.values - other.values, name)
    return row


def _table(run: Run, n: int, rows: list[dict[str, Any]]) -> Table:
    """Best of some N; then of each judge the schedule "half", and the chosen one."""
    half = schedule_text(schedules(n)[0]) if schedules(n) else ""
    best = [row for row in rows if row["method"] == BEST_OF and row["N"] in {*SHOWN, n}]
    kept = [row for row in rows if row["method"] == PRUNED and row["schedule"] == half]
    kept += [row for row in rows if row["method"] == CHOSEN]
    lines = [[_name(row), *_cells(row)] for row in (*best, *kept)]
    header = [("", "Method"), ("", "Judge"), ("", "Tokens"), ("", "Share"), ("", "Same pick")]
    header += [("", "Quality"), ("", f"Over best of {n}"), ("", "Over as many tokens")]
    caption = f"Quality against tokens on {title(run)} with {run.model}: per cent [95 % interval]."
    return Table(header, lines, caption, rules=[len(best)])


def _name(row: dict[str, Any]) -> str:
    if row["method"] == BEST_OF:
        return f"Best of {row['N']}"
    return str(row["schedule"]) if row["method"] == PRUNED else f"Chosen, {row['schedule']}"


def _cells(row: dict[str, Any]) -> list[str]:
    def gain(name: str) -> str:
        value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
        return f"{value:+.2f} [{low:+.1f}, {high:+.1f}]"

    quality = f"{row['value']:.2f} [{row['low']:.1f}, {row['high']:.1f}]"
    judge = get_scorer(row["judge"]).title if row["judge"] else "-"
    numbers = [judge, f"{row['tokens']:.0f}", f"{row['share']:.2f}", f"{row['same_pick']:.2f}"]
    numbers.append(quality)
    if row["method"] == BEST_OF:
        return [*numbers, gain("over_all") if row["share"] < 1 else "-", "-"]
    return [*numbers, gain("over_all"), f"{gain('over_same')} (N={row['same_tokens_n']})"]


@plots.in_style
def _figure(drawn: list[tuple[Run, list[dict[str, Any]]]]) -> Any:
    """A panel per run: best of N with its band, a dot per schedule, those chosen large."""
    figure, axes = plots.tiles(len(drawn), across=2, height=2.6)
    for number, ((run, rows), (axis,)) in enumerate(zip(drawn, axes, strict=True)):
        line = [row for row in rows if row["method"] == BEST_OF]
        x, y, low, high = ([r[key] for r in line] for key in ("tokens", "value", "low", "high"))
        axis.plot(x, y, color=plots.INK, linewidth=1.5)
        axis.fill_between(x, low, high, color=plots.MUTED, alpha=0.15, linewidth=0)
        plots.label_end(axis, x, y, BEST_OF, plots.INK)
        for judge, marker in zip(JUDGES, plots.MARKERS[1:], strict=False):
            _draw_judge(axis, [row for row in rows if row["judge"] == judge], marker)
        axis.set_title(plots.heading(title(run), run.model))
        axis.set(xlabel="tokens decoded per item", ylabel="" if number % 2 else "per cent")
    plots.add_legend(figure, "lower", *axes[0][0].get_legend_handles_labels())
    plots.settle_labels(figure)
    return figure


def _draw_judge(axis: Any, rows: list[dict[str, Any]], marker: str) -> None:
    """Every schedule small and pale; the chosen one with the interval of its value."""
    if not rows:
        return
    scorer = get_scorer(rows[0]["judge"])
    x, y = ([row[key] for row in rows if row["method"] == PRUNED] for key in ("tokens", "value"))
    look = {"color": scorer.color, "marker": marker, "linestyle": ""}
    axis.plot(x, y, **look, markersize=2, alpha=0.5)
    for row in rows:
        if row["method"] == CHOSEN:
            ends = [[row["value"] - row["low"]], [row["high"] - row["value"]]]
            axis.errorbar(
                [row["tokens"]], [row["value"]], yerr=ends, fmt="none", ecolor=scorer.color
            )
    name = f"pruned by {scorer.title}"
    large = [(r["tokens"], r["value"]) for r in rows if r["method"] == CHOSEN]
    axis.plot(*np.array(large or [(np.nan, np.nan)]).T, **look, markersize=6, label=name)


def schedules(n: int) -> list[Schedule]:
    """The schedules that are compared for n candidates: "half" first, then of one and of two."""
    choices = [check_schedule("half", n)]
    choices += [((tokens, n // part),) for tokens in CHECKPOINTS for part in PARTS]
    for first, second in combinations(CHECKPOINTS, 2):
        choices += [((first, n // part), (second, n // (2 * part))) for part in PARTS[:2]]
    kept = [
        schedule for schedule in dict.fromkeys(choices) if all(keep > 0 for _, keep in schedule)
    ]
    return [schedule for schedule in kept if schedule[0][1] < n]


def schedule_text(schedule: Schedule) -> str:
    """As `--prune` takes it."""
    return ",".join(f"{tokens}:{keep}" for tokens, keep in schedule)


def tokens_drawn(run: Run) -> Array:
    """(items, n): how many tokens were drawn for each candidate, its end token among them."""
    ended = np.array([finish == "end" for finish in run.finish])
    return run.grid((run.lengths + ended).astype(np.float64))


def prefix_scores(run: Run, scorer: str, tokens: Iterable[int]) -> dict[int, Array]:
    """By tokens, (items, n): the scores of what the candidates said until then."""
    flat = run.signals()
    place = np.concatenate([np.empty(0), *map(np.arange, run.lengths)])  # of each token
    scores = {}
    for count in tokens:
        kept = place < count
        log_prob, lookback, certainty, entropy = (flat[name][kept] for name in SIGNALS)
        lengths, texts = np.minimum(run.lengths, count), ("",) * len(run.lengths)
        batch = SignalBatch(lengths, run.sizes, texts, log_prob, lookback, certainty, entropy)
        scores[count] = run.grid(get_scorer(scorer).of_batch(batch, run.defaults, {}))
    return scores


def prune(scores: Mapping[int, Array], drawn: Array, schedule: Schedule) -> Array:
    """(items, n): after how many tokens each candidate is pruned; NaN for never.

    Args:
        scores: by tokens, (items, n): of what was said until then.
        drawn: (items, n), how many tokens each draws if it is let; NaN where there is none.
        schedule: when how many go on.
    """
    pruned = np.full(drawn.shape, np.nan)
    for tokens, keep in schedule:
        left = np.isnan(pruned) & ~np.isnan(drawn)
        ends = left & (drawn > tokens) & (_places(scores[tokens], left) >= keep)
        pruned[ends] = tokens
    return pruned


def _places(scores: Array, left: NDArray[np.bool_]) -> NDArray[np.intp]:
    """(items, n): the place of each in its row, from the best; as `best_first` orders them."""
    keys = (-np.nan_to_num(scores), np.isnan(scores), ~left)  # the last decides first; ties stay
    order = np.lexsort(keys, axis=-1)
    return np.asarray(np.argsort(order, axis=-1))


def tokens_left(drawn: Array, pruned: Array) -> Array:
    """(items,): how many tokens are drawn for all candidates, each until it ends or is pruned."""
    return np.asarray(np.nansum(np.where(np.isnan(pruned), drawn, pruned), axis=1))

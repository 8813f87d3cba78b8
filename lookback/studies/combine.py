"""Which pairs of scorers add to each other, and which one to take (not in the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, groupby
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.studies.common.base import Result, Runs, StudyError, study, title
from lookback.studies.common.budgets import AVERAGE
from lookback.studies.common.plots import MUTED, Dots, dot_legend, dots, in_style
from lookback.studies.common.selection import (
    bootstrap_means,
    choose_on_other_half,
    has_scores,
    in_order,
    interval,
    outcome,
    own_methods,
    quality_of_picks,
)
from lookback.studies.common.tables import Cell, Table

SCORERS = (
    "lookback",
    "mean_log_prob",
    "self_certainty",
    "consensus",
    "visual_gain",
    "clipscore",
    "vauq",
)
"""What is combined by default, as far as the runs have scores of it; users' own follow."""
GAINS = ("ranks", "mix")
WEIGHTS = np.linspace(0, 1, 11).round(1)
"""Of the first scorer in a mix; the second has the rest."""
NOTES = [
    "Ranks: the candidate with the highest mean of its two ranks among the N. Mix: of w times the "
    "first scorer's score and 1 - w times the second's, each standardised among the N, the w of 0, "
    "0.1, ..., 1 that is best on one half of the items, told of the other half; {splits} halvings "
    "by lot, each half for the other.",
    "The better alone is chosen in the same way, on the same halves: neither knows the items that "
    "it is judged by. w = 1 and w = 0 are the scorers themselves: a mix that adds nothing loses no "
    "more than what it costs to choose it on so few items.",
    "Taken: of all scorers here the one that is best on the other half, and how often that is "
    "which; the pair likewise, of all pairs and weights.",
    "Intervals: 95 %, from 2,000 bootstrap samples of items; differences are paired.",
    "Figure: what each pair adds to the better alone at the largest N; full dots by mix, hollow "
    "by ranks, in the colour of the second scorer.",
]
Row = dict[str, Any]


@study("combine", title="Combining scorers", needs_quality=True)
def combine(
    runs: Runs, scorers: str | Sequence[str] | None = None, splits: int = 20, seed: int = 0
) -> Result:
    """Pairs of scorers, by ranks and by a tuned mix, against the better of the two alone.

    Args:
        runs: each with its N.
        scorers: which to combine, as a list or with commas between them; by default the usual ones
            and users' own that a run has scores of.
        splits: how often the items are halved by lot, to choose on one half for the other.
        seed: of that lot.

    Raises:
        StudyError: a run has scores of fewer than two of them.
    """
    rows: list[Row] = []
    tables = []
    for model, group in groupby(in_order(runs.largest), key=lambda run: run.model):
        combined, taken = [], []
        # A seed per run: its pairs see the same samples, other benchmarks samples of their own.
        for number, run in enumerate(group):
            for n in runs.budgets(run):
                names = _names(run, n, scorers)
                pairs = [Combination(run, n, *two, splits, seed) for two in combinations(names, 2)]
                combined += [(pair, number) for pair in pairs]
                taken.append(_taken(run, n, names, pairs, splits, seed))
        here = [_row(pair, number) for pair, number in combined]
        here += _averages(model, combined)
        rows += here
        tables += [_pairs_table(model, here), _taken_table(model, taken)]
    notes = [note.format(splits=splits) for note in NOTES]
    return Result(rows, tables, _figure(rows), notes)


def ranks_within(scores: Array) -> Array:
    """(items, n): the rank of each candidate among its item's, from 1 for the lowest.

    Equal ones share the mean of their ranks; what has no score has no rank.
    """
    below = (scores[:, None, :] < scores[:, :, None]).sum(2)
    equal = (scores[:, None, :] == scores[:, :, None]).sum(2)
    return np.where(np.isnan(scores), np.nan, below + (equal + 1) / 2)


def standardised(scores: Array) -> Array:
    """(items, n): less the item's mean, over its standard deviation; 0 where all are equal."""
    known = np.isfinite(scores)
    count = np.maximum(known.sum(1, keepdims=True), 1)
    mean = np.where(known, scores, 0.0).sum(1, keepdims=True) / count
    apart = np.where(known, scores - mean, 0.0)
    spread = np.sqrt((apart**2).sum(1, keepdims=True) / count)
    even = spread <= 1e-12 * np.maximum(1.0, np.abs(mean))
    standard = np.where(even, 0.0, apart / np.where(even, 1.0, spread))
    return np.where(known, standard, np.nan)


def mixed_outcomes(first: Array, second: Array, quality: Array) -> Array:
    """(items, weights): the quality of what each mix of two scorers picks.

    At the ends it is what each of them picks by itself, ties and all.
    """
    a, b = standardised(first), standardised(second)
    mixes = [second, *(w * a + (1 - w) * b for w in WEIGHTS[1:-1]), first]
    return np.stack([quality_of_picks(mix, quality) for mix in mixes], 1)


class Combination:
    """What two scorers are worth together, in per cent, an item each.

    Attributes:
        alone: (items, 2), each by itself.
        better: (items,), the better of the two on the other half of the items.
        ranks: (items,), by the mean of their ranks.
        grid: (items, weights), by each mix.
        mix: (items,), by the mix that is best on the other half.
        weight: the first scorer's mean weight in it.
    """

    def __init__(self, run: Run, n: int, first: str, second: str, splits: int, seed: int) -> None:
        self.run, self.n, self.names = run, n, (first, second)
        scores = [run.scores(name, n) for name in self.names]
        quality = 100 * run.quality(n)
        self.alone = np.stack([quality_of_picks(values, quality) for values in scores], 1)
        ranks = ranks_within(scores[0]) + ranks_within(scores[1])
        self.ranks = quality_of_picks(ranks, quality)
        self.grid = mixed_outcomes(scores[0], scores[1], quality)
        self.better, _ = choose_on_other_half(self.alone, splits, seed)
        self.mix, counts = choose_on_other_half(self.grid, splits, seed)
        self.weight = float(counts @ WEIGHTS / counts.sum())

    def gain(self, name: str) -> Array:
        """(items,), in points over the better of the two alone."""
        return np.asarray(getattr(self, name) - self.better)


def _names(run: Run, n: int, scorers: str | Sequence[str] | None) -> list[str]:
    """Those of which a run has scores that can be mixed."""
    wanted = scorers.split(",") if isinstance(scorers, str) else scorers
    names = [*SCORERS, *own_methods([run])] if wanted is None else [name.strip() for name in wanted]
    for name in names:
        scorer = get_scorer(name)
        if scorer.expected is not None or scorer.needs == "truth":
            raise StudyError(f"scorers: {name} gives no scores that could be mixed with others'")
    scored = [name for name in dict.fromkeys(names) if has_scores(run, name, n)]
    if len(scored) < 2:
        raise StudyError(
            f"{run.path} has scores of {len(scored)} of {', '.join(names)} for N = {n}: there is "
            "no pair to combine"
        )
    return scored


def _row(both: Combination, seed: int) -> Row:
    """Its numbers with their intervals."""
    row: Row = {"model": both.run.model, "benchmark": title(both.run), "N": both.n}
    row |= dict(zip(("first", "second"), both.names, strict=True))
    row |= dict(zip(("first_value", "second_value"), both.alone.mean(0).tolist(), strict=True))
    row |= {name: float(getattr(both, name).mean()) for name in ("better", *GAINS)}
    for name in GAINS:
        gain = both.gain(name)
        row |= _numbers(f"{name}_gain", float(gain.mean()), bootstrap_means(gain, seed))
    return row | {"weight": both.weight, "items": len(both.better)}


def _numbers(name: str, value: float, draws: Array) -> dict[str, float]:
    low, high = interval(draws)
    named = {name: value, f"{name}_low": low, f"{name}_high": high}
    return {key: round(number, 9) for key, number in named.items()}  # 0 is 0, not 1e-15


def _averages(model: str, combined: Sequence[tuple[Combination, int]]) -> list[Row]:
    """Of each N and pair the mean over benchmarks, if there are several and all have it."""
    benchmarks = {(pair.n, number) for pair, number in combined}
    by_pair: dict[tuple[int, tuple[str, str]], list[tuple[Combination, int]]] = {}
    for pair, number in combined:
        by_pair.setdefault((pair.n, pair.names), []).append((pair, number))
    rows = []
    for (n, names), here in by_pair.items():
        if len(here) < 2 or len(here) < sum(count == n for count, _ in benchmarks):
            continue
        each = [_row(pair, number) for pair, number in here]
        row: Row = {"model": model, "benchmark": AVERAGE, "N": n}
        row |= dict(zip(("first", "second"), names, strict=True))
        for key in ("first_value", "second_value", "better", *GAINS):
            row[key] = float(np.mean([other[key] for other in each]))
        for name in GAINS:
            draws = np.mean([bootstrap_means(p.gain(name), number) for p, number in here], axis=0)
            value = float(np.mean([p.gain(name).mean() for p, _ in here]))
            row |= _numbers(f"{name}_gain", value, draws)
        rows.append(
            row | {"weight": float(np.mean([other["weight"] for other in each])), "items": 0}
        )
    return rows


def _taken(
    run: Run, n: int, names: list[str], pairs: list[Combination], splits: int, seed: int
) -> list[Cell | str]:
    """A line: which scorer, and which pair, the other half of the items would take."""
    alone = np.stack([100 * outcome(run, name, n) for name in names], 1)
    best, counts = choose_on_other_half(alone, splits, seed)
    grids = np.concatenate([pair.grid for pair in pairs], 1)
    both, votes = choose_on_other_half(grids, splits, seed)
    mostly = votes.reshape(len(pairs), -1).sum(1)
    line = [title(run), str(n), f"{100 * outcome(run, 'random', n).mean():.1f}"]
    line += [_most([get_scorer(name).title for name in names], counts), f"{best.mean():.1f}"]
    line.append(_printed(best - 100 * outcome(run, "lookback", n)))
    return [*line, _most([_title(p.names) for p in pairs], mostly), _printed(both - best)]


def _most(names: list[str], counts: Any) -> str:
    """What was chosen most, and how often."""
    return f"{names[int(counts.argmax())]} ({counts.max() / counts.sum():.0%})"


def _printed(gain: Array) -> str:
    return _points(float(gain.mean()), *interval(bootstrap_means(gain)))


def _points(*numbers: float) -> str:
    """`+1.2 [+0.3, +2.1]`; no minus before a zero."""
    value, low, high = (f"{round(number, 1) + 0.0:+.1f}" for number in numbers)
    return f"{value} [{low}, {high}]"


def _title(names: Sequence[str]) -> str:
    return " + ".join(get_scorer(name).title for name in names)


def _pairs_table(model: str, rows: list[Row]) -> Table:
    """Pairs by N: over all benchmarks, or over the one there is."""
    several = any(row["benchmark"] == AVERAGE for row in rows)
    shown = [row for row in rows if (row["benchmark"] == AVERAGE) == several]
    budgets = sorted({row["N"] for row in shown})
    cells = {(row["first"], row["second"], row["N"]): row for row in shown}
    pairs = list(dict.fromkeys(key[:2] for key in cells))
    lines: list[list[Cell | str]] = []
    for pair in pairs:
        line: list[Cell | str] = [_title(pair)]
        for n in budgets:
            row = cells.get((*pair, n))
            line += [f"{row['better']:.1f}"] if row else ["-"]
            line += [_gain_cell(row, name) if row else "-" for name in GAINS]
        lines.append(line)
    header = [("", "Pair")]
    header += [(f"N={n}", name) for n in budgets for name in ("Better alone", "Ranks", "Mix")]
    where = ", mean over benchmarks" if several else f" on {shown[0]['benchmark']}"
    caption = (
        f"Two scorers with {model}{where}: the better alone in per cent, and what both together "
        "add to it, in points [95 % interval]; bold where the interval is above 0."
    )
    return Table(header, lines, caption)


def _gain_cell(row: Row, name: str) -> Cell:
    value, low, high = (row[f"{name}_gain{end}"] for end in ("", "_low", "_high"))
    return Cell(_points(value, low, high), "best" if low > 0 else "")


def _taken_table(model: str, lines: list[list[Cell | str]]) -> Table:
    ours = get_scorer("lookback").title
    names = ("Benchmark", "N", "Random", "Taken", "worth", f"over {ours}", "Pair taken", "over it")
    caption = (
        f"Which scorer to take with {model}: what one half of the items would choose, told of the "
        "other; per cent, and points [95 % interval]."
    )
    return Table([("", name) for name in names], lines, caption)


@in_style
def _figure(rows: list[Row]) -> Any:
    """What a pair adds at the largest N, a panel per benchmark: mix full, ranks hollow."""
    most = {(r["model"], r["benchmark"]): r["N"] for r in sorted(rows, key=lambda r: r["N"])}
    shown = [
        r for r in rows if r["N"] == most[r["model"], r["benchmark"]] and r["benchmark"] != AVERAGE
    ]
    groups = list(dict.fromkeys(f"{r['benchmark']}\n{r['model']}" for r in shown))
    cells = {(f"{r['benchmark']}\n{r['model']}", r["first"], r["second"]): r for r in shown}
    series = []
    for pair in dict.fromkeys((r["first"], r["second"]) for r in shown):
        for name in reversed(GAINS):
            keys = [f"{name}_gain{end}" for end in ("", "_low", "_high")]
            here = [cells.get((group, *pair)) for group in groups]
            value, low, high = ([np.nan if r is None else r[key] for r in here] for key in keys)
            color = get_scorer(pair[1]).color
            series.append(Dots(_title(pair), color, value, low, high, filled=name == "mix"))
    figure = dots(groups, series, "points gained")
    for axis in figure.axes[: len(groups)]:  # others are empty
        axis.axvline(0, color=MUTED, linewidth=0.8, linestyle="--", zorder=0)
    dot_legend(figure, "mix", "ranks", ("the better alone", MUTED))
    return figure

"""What a finished run would have been with pruning, and what it would have cost: in arrays.

The rule is `lookback.steering.pruning.Pruning`'s, asked about all items at once; tests hold the two
together, and both to what an engine does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import Array
from lookback.signals import SIGNALS
from lookback.steering.pruning import check_schedule

Schedule = tuple[tuple[int, int], ...]
"""(after so many tokens, so many go on)."""
CHECKPOINTS = (8, 12, 16, 24, 32, 48)
PARTS = (2, 4, 8)
"""At the first checkpoint a half, a quarter or an eighth goes on; at a second one half of these."""


def schedules(n: int) -> list[Schedule]:
    """The schedules that are compared for n candidates: "half" first, then of one and of two."""
    found = [check_schedule("half", n)]
    found += [((tokens, n // part),) for tokens in CHECKPOINTS for part in PARTS]
    for first, second in combinations(CHECKPOINTS, 2):
        found += [((first, n // part), (second, n // (2 * part))) for part in PARTS[:2]]
    kept = [one for one in dict.fromkeys(found) if all(keep > 0 for _, keep in one)]
    return [one for one in kept if one[0][1] < n]


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
    found = {}
    for count in tokens:
        kept = place < count
        log_prob, lookback, certainty, entropy = (flat[name][kept] for name in SIGNALS)
        lengths, texts = np.minimum(run.lengths, count), ("",) * len(run.lengths)
        batch = SignalBatch(lengths, run.sizes, texts, log_prob, lookback, certainty, entropy)
        found[count] = run.grid(get_scorer(scorer).of_batch(batch, run.defaults, {}))
    return found


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

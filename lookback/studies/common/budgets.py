"""How many candidates studies select from: one list of N for all of them, and what they say of it.

Of N candidates always the first N of an item are meant, so that the same N means the same ones in
every study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

PAPER = (5, 25)
"""The paper's two N."""
AVERAGE = "Average"
"""What rows call the mean over benchmarks; it has no candidates of its own."""


def default_budgets(run: Run) -> list[int]:
    """The paper's two N of a run that has both; of a smaller or a pruned one all its candidates.

    Beside these, the smaller ones for which a scorer that compares candidates was recorded
    (usc@5): with no other N could it be shown.
    """
    if run.steered:
        return [run.n]
    if run.n >= PAPER[-1]:
        return [*PAPER]
    recorded = {int(count) for name in run.recorded if (count := name.partition("@")[2])}
    return sorted({run.n, *(n for n in recorded if n < run.n)})


def check_budgets(ns: Iterable[int]) -> tuple[int, ...]:
    """The N asked for, from small to large, each once.

    Raises:
        ValueError: there is none, or one is no whole number from 1 on.
    """
    found = list(ns)
    for n in found:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"N = {n!r}: must be a whole number of at least 1")
    if not found:
        raise ValueError("no N asked for: name at least one, e.g. 5,8")
    return tuple(sorted(set(found)))


def parse_budgets(given: str) -> tuple[int, ...]:
    """`5,8` as numbers.

    Raises:
        ValueError: it is no such list.
    """
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise ValueError(f"--n {given:.60}: write whole numbers with commas between them, e.g. 5,8")
    return check_budgets(map(int, parts))


def join_budgets(ns: Iterable[int]) -> str:
    """For a caption that is of one N per run."""
    return " or ".join(str(n) for n in sorted(set(ns)))


def budget_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A note that says of which N a study's rows are; none if they do not tell."""
    found: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        n, benchmark = row.get("N"), str(row.get("benchmark", ""))
        if isinstance(n, int) and n > 0 and benchmark != AVERAGE:
            found.setdefault((benchmark, str(row.get("model", ""))), set()).add(n)
    by_list: dict[str, list[str]] = {}
    for setup, ns in found.items():
        by_list.setdefault(budget_words(ns), []).append(", ".join(filter(None, setup)))
    if not by_list:
        return []
    whose = {words: f" ({'; '.join(names)})" for words, names in by_list.items()}
    told = [words + (whose[words] if len(by_list) > 1 else "") for words in by_list]
    return [f"N = {'; '.join(told)}: of each item's candidates the first N."]


def budget_words(given: Iterable[int]) -> str:
    """`5, 25`; a long stretch by its ends."""
    ns = sorted(set(given))
    if len(ns) > 3 and ns == list(range(ns[0], ns[-1] + 1)):
        return f"{ns[0]} to {ns[-1]}"
    return ", ".join(map(str, ns))


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

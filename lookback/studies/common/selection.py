"""Which scorers tables and figures show, and in which order; and the order of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.benchmarks.base import BENCHMARKS
from lookback.runs import Run
from lookback.runs.layout import RunError
from lookback.scores.base import Scorer, get_scorer, scorers
from lookback.scores.formula import Array, lookback_scores
from lookback.signals import BY_LAYER
from lookback.studies.common.base import StudyError

GREEDY = "greedy"
"""One answer by greedy decoding: no scorer, but what a selection among N answers competes with."""


def paper_methods() -> list[str]:
    """Those of the paper's main table, in its order."""
    shown = [s for s in _shown() if s.paper is not None and not s.own]
    return [s.name for s in sorted(shown, key=lambda s: s.paper or 0)]


def other_methods() -> list[str]:
    """The package's others, but for those that know the truth."""
    return [s.name for s in _shown() if s.paper is None and not s.own and s.needs != "truth"]


def own_methods(runs: Iterable[Run]) -> list[str]:
    """The user's own that these runs have scores of, but for those that know the truth.

    One that needs a model must have been recorded, for any N.
    """
    recorded = {name.partition("@")[0] for run in runs for name in run.recorded}
    own = [s for s in _shown() if s.own and s.needs != "truth"]
    return [s.name for s in own if s.from_signals or s.name in recorded]


def ceilings() -> list[str]:
    """Those that know the truth: no rivals."""
    return [s.name for s in _shown() if s.needs == "truth"]


def all_methods(runs: Iterable[Run]) -> list[str]:
    """The paper's, the others, the user's own, and what none of them can surpass."""
    return [*paper_methods(), *other_methods(), *own_methods(runs), *ceilings()]


def titles(methods: Sequence[str]) -> list[str]:
    """What tables and figures call them."""
    return [title_of(method) for method in methods]


def title_of(method: str) -> str:
    """What tables and figures call a scorer, or greedy decoding."""
    return "Greedy decoding" if method == GREEDY else get_scorer(method).title


def color_of(method: str) -> str:
    """The colour of a scorer, or of greedy decoding, in figures."""
    return "#7c3aed" if method == GREEDY else get_scorer(method).color


def in_order(runs: list[Run]) -> list[Run]:
    """By model as given, and by benchmark in the registry's order; unknown ones last."""
    models = list(dict.fromkeys(run.model for run in runs))
    known = BENCHMARKS.names()

    def key(run: Run) -> tuple[int, int, str]:
        name = run.benchmark.partition(":")[0]
        position = known.index(name) if name in known else len(known)
        return models.index(run.model), position, run.benchmark

    return sorted(runs, key=key)


def _shown() -> list[Scorer]:
    """Without those that always pick what another one picks."""
    return [s for s in scorers().values() if s.same_as is None]


DRAWS = 2000
ENDS = ("", "_low", "_high")
"""What follows the name of a number in a row: the number, and the ends of its interval."""


def picks(scores: Array) -> NDArray[np.intp]:
    """(items,): the first of the highest scores in each row; NaN loses to every number."""
    ranked = np.nan_to_num(scores, nan=-np.inf, posinf=np.inf)  # -inf becomes a number above NaN
    return np.asarray(ranked.argmax(axis=1))


def quality_of_picks(scores: Array, quality: Array) -> Array:
    """(items,): the quality of the picks."""
    return np.asarray(quality[np.arange(len(quality)), picks(scores)])


def outcome_of(scorer: Scorer, scores: Array, quality: Array) -> Array:
    """(items,): what a scorer's choices are worth, given its scores.

    The quality of its picks or, where the scorer says so, the expectation over all candidates alike
    or with its scores as shares.
    """
    if scorer.expected == "uniform":
        return np.asarray(np.nanmean(quality, axis=1))
    if scorer.expected == "shares":
        shares = np.nan_to_num(scores)
        failed = shares.sum(axis=1) == 0  # it could not be asked: the first, as for any reply lost
        shares[failed, 0] = 1.0
        return np.asarray(np.nansum(shares * quality, axis=1) / shares.sum(axis=1))
    return quality_of_picks(scores, quality)


def outcome(run: Run, method: str, n: int, **params: float) -> Array:
    """(items,): the quality of what a method picks among the first n candidates.

    Of random selection it is the expectation over picks, not one draw; of the oracle the best there
    is; of USC, as in the paper, the mean over its runs, each in another order.

    Raises:
        RunError: the run has fewer candidates, or not the scores of a method that looks again.
    """
    if n > run.n:
        raise RunError(f"{run.path} has {run.n} candidates per item, not {n}")
    scorer, quality = get_scorer(method), run.quality(n)
    if scorer.expected == "uniform":  # whatever its scores are
        return outcome_of(scorer, quality, quality)
    if scorer.needs == "truth" and not scorer.own:  # the best, even if it is an empty response
        return np.asarray(np.nanmax(quality, axis=1))
    return outcome_of(scorer, run.scores(method, n, **params), quality)


def outcomes(run: Run, method: str, budgets: Sequence[int], **params: Any) -> dict[int, Array]:
    """N -> (items,): `outcome` for several N; those that the run has not are left out.

    Scores that do not depend on the other candidates are made or read once, for all N.
    """
    scorer = get_scorer(method)
    plain = not scorer.joint and scorer.expected is None and scorer.needs != "truth"
    if not plain or not has_scores(run, method, run.n):
        return {n: outcome(run, method, n, **params) for n in budgets if has_scores(run, method, n)}
    scores, quality = run.scores(method, **params), run.quality()
    there = filter(run.has_draw, budgets)
    return {n: quality_of_picks(scores[:, :n], quality[:, :n]) for n in there}


def has_scores(run: Run, method: str, n: int) -> bool:
    """Whether a run has what a method needs for the first n candidates."""
    from_signals = get_scorer(method).from_signals
    return run.has_draw(n) and (from_signals or run.recording(method, n) is not None)


def greedy_run(run: Run, runs: Iterable[Run]) -> Run | None:
    """Return the run that answered the questions of `run` by greedy decoding; None without one.

    It differs from `run` in nothing but the sampling, which is at temperature 0, and the number of
    items.
    """
    for other in runs:
        sampling = other.settings.get("sampling") or {}
        if sampling.get("temperature") == 0 and other.id != run.id and _same_task(run, other):
            return other
    return None


def greedy_outcome(run: Run, greedy: Run) -> Array:
    """(items of `run`,): the quality of each one's greedy answer; NaN where it has none."""
    quality = dict(zip(greedy.ids, greedy.quality(1)[:, 0], strict=True))
    return np.array([quality.get(name, np.nan) for name in run.ids])


def _same_task(run: Run, other: Run) -> bool:
    """Whether two runs asked the same model the same questions, of however many items."""
    free = {"sampling": None, "limit": None, BY_LAYER: None}
    return run.settings | free == other.settings | free


def sweep(
    run: Run, alphas: Sequence[float], lams: Sequence[float], budgets: Sequence[int]
) -> Array:
    """(budgets, alphas, lams): LookBack's outcome in per cent for every setting and N."""
    means = [values.mean(axis=0) for values in sweep_items(run, alphas, lams, budgets)]
    return 100 * np.stack(means)


def sweep_items(
    run: Run, alphas: Sequence[float], lams: Sequence[float], budgets: Sequence[int]
) -> Iterator[Array]:
    """(items, alphas, lams) for each N: the quality of LookBack's pick with every setting."""
    filled = run.lengths > 0
    scores = np.full((len(run.sizes), run.n, len(alphas), len(lams)), -np.inf)
    rows = np.repeat(np.arange(len(run.sizes)), run.sizes)
    if filled.any():
        scores[rows[filled], run.index[filled]] = lookback_scores(
            run.signal("log_prob"), run.signal("visual_lookback"), run.lengths[filled], alphas, lams
        )
    quality = run.quality()
    items = np.arange(len(quality))[:, None, None]
    for n in budgets:  # the first of the highest, as `picks` has it
        yield quality[items, scores[:, :n].argmax(axis=1)]


def bootstrap_means(values: Array, seed: int = 0, draws: int = DRAWS) -> Array:
    """(draws,): means of bootstrap samples of items; of several columns, (draws, columns).

    The same seed and number of items draw the same items, so that differences are paired.
    """
    return np.asarray(item_counts(len(values), seed, draws) @ values / len(values))


@lru_cache(maxsize=16)
def item_counts(items: int, seed: int = 0, draws: int = DRAWS) -> Array:
    """(draws, items): how often each item is in each bootstrap sample."""
    samples = np.random.default_rng(seed).integers(0, items, (draws, items))
    return np.stack([np.bincount(sample, minlength=items) for sample in samples]).astype(np.float64)


def interval(draws: Array) -> tuple[float, float]:
    """The middle 95 % of bootstrap means."""
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


def estimate(values: Array, name: str = "value", seed: int = 0) -> dict[str, float]:
    """Return the mean over items and its 95 % interval, as a row of a tidy table has them.

    The interval of a "value" is called low and high, that of another name name_low and name_high.
    """
    low, high = interval(bootstrap_means(values, seed))
    prefix = "" if name == "value" else f"{name}_"
    return {name: float(values.mean()), f"{prefix}low": low, f"{prefix}high": high}


def percent(values: Array) -> float:
    """The mean in per cent."""
    return 100 * float(np.mean(values))


def choose_on_other_half(values: Array, splits: int, seed: int) -> tuple[Array, NDArray[np.intp]]:
    """What the best choice of one half of the items is worth on the other half.

    The items are halved by lot `splits` times; each half chooses for the other.

    Args:
        values: (items, choices), what each choice is worth for each item; of equal ones the first
            is chosen.
        splits: how often the items are halved.
        seed: of the lot.

    Returns:
        (items,), the mean over splits of what the other half's choice is worth; and (choices,), how
        often each was chosen.

    Raises:
        StudyError: there are not two items, or no split.
    """
    shares, counts = choices_of_other_half(values, splits, seed)
    return np.asarray((shares * values).sum(axis=1)), counts


def choices_of_other_half(values: Array, splits: int, seed: int) -> tuple[Array, NDArray[np.intp]]:
    """As `choose_on_other_half`, but (items, choices): how often, of all splits, an item had each.

    So that what a choice costs can be told beside what it is worth.
    """
    items, choices = values.shape
    if items < 2 or splits < 1:
        raise StudyError(f"{items} items and {splits} splits: there must be 2 items, and 1 split")
    rng = np.random.default_rng(seed)
    shares, counts = np.zeros((items, choices)), np.zeros(choices, dtype=np.intp)
    for _ in range(splits):
        order = rng.permutation(items)
        halves = order[: items // 2], order[items // 2 :]
        for tuned, tested in (halves, halves[::-1]):
            best = int(values[tuned].mean(axis=0).round(9).argmax())
            shares[tested, best] += 1
            counts[best] += 1
    return shares / splits, counts

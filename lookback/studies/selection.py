"""Which candidate a method picks, how good the picks are, and how sure that is.

Of N candidates always the first N are meant: with a random stream a candidate they are the N of a
smaller draw.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lookback.runs import Run
from lookback.runs.layout import RunError
from lookback.scores.formula import Array

METHODS = {
    "random": "Random",
    "self_certainty": "SC",
    "usc": "USC",
    "clipscore": "CLIPScore",
    "vauq": "VAUQ",
    "lookback": "LookBack",
}
"""The paper's methods by the names of their scorers, in the order of its tables."""
OTHERS = {
    "mean_log_prob": "Mean log p",
    "sum_log_prob": "Sum log p",
    "entropy": "Entropy",
    "visual_lookback": "Visual lookback",
    "majority": "Majority",
    "self_certainty_borda": "SC + Borda",
    "judge": "Judge",
}
"""Those that its main table does not have; perplexity picks what mean log p picks."""
BENCHMARK_NAMES = {
    "vqav2": "VQAv2",
    "chair": "CHAIR",
    "hallusionbench": "HallusionBench",
    "amber": "AMBER",
    "scenes-vqa": "Scenes VQA",
    "scenes-caption": "Scenes Caption",
    "scenes-pairs": "Scenes Pairs",
    "scenes-amber": "Scenes AMBER",
}
"""As the paper writes them, in the order of its tables."""
DRAWS = 2000


def picks(scores: Array) -> NDArray[np.intp]:
    """(items,): the first of the highest scores in each row; NaN loses to every number."""
    ranked = np.nan_to_num(scores, nan=-np.inf, posinf=np.inf)  # -inf becomes a number above NaN
    return np.asarray(ranked.argmax(axis=1))


def picked(scores: Array, quality: Array) -> Array:
    """(items,): the quality of the picks."""
    return np.asarray(quality[np.arange(len(quality)), picks(scores)])


def outcome(run: Run, method: str, n: int, **params: float) -> Array:
    """(items,): the quality of what a method picks among the first n candidates.

    `random` is the expectation over picks, not one draw; `oracle` the best there is; `usc`, as in
    the paper, the mean over its runs, each in another order: its scores are their shares.

    Raises:
        RunError: the run has fewer candidates, or not the scores of a method that looks again.
    """
    if n > run.n:
        raise RunError(f"{run.path} has {run.n} candidates an item, not {n}")
    quality = run.quality(n)
    if method == "random":
        return np.asarray(np.nanmean(quality, axis=1))
    if method == "oracle":
        return np.asarray(np.nanmax(quality, axis=1))
    scores = run.scores(method, n, **params)
    if method == "usc":
        shares = np.nan_to_num(scores)
        failed = shares.sum(axis=1) == 0  # it could not be asked: the first, as for any reply lost
        shares[failed, 0] = 1.0
        return np.asarray(np.nansum(shares * quality, axis=1) / shares.sum(axis=1))
    return picked(scores, quality)


def has(run: Run, method: str, n: int) -> bool:
    """Whether a run has what a method needs for the first n candidates."""
    from lookback.scores.base import get_scorer

    if method in ("random", "oracle") or get_scorer(method).from_signals:
        return n <= run.n
    return n <= run.n and run.recording(method, n) is not None


def budgets(run: Run) -> list[int]:
    """The paper's two N, as far as the run goes; a run smaller than both has its own."""
    return [n for n in (5, 25) if n <= run.n] or [run.n]


def resampled(values: Array, seed: int = 0, draws: int = DRAWS) -> Array:
    """(draws,): means of bootstrap samples of items; of several columns, (draws, columns).

    The same seed and number of items draw the same items, so that differences are paired.
    """
    return np.asarray(_counts(len(values), seed, draws) @ values / len(values))


@lru_cache(maxsize=16)
def _counts(items: int, seed: int, draws: int) -> Array:
    """(draws, items): how often each item is in each bootstrap sample."""
    drawn = np.random.default_rng(seed).integers(0, items, (draws, items))
    return np.stack([np.bincount(sample, minlength=items) for sample in drawn]).astype(np.float64)


def interval(draws: Array) -> tuple[float, float]:
    """The middle 95 % of bootstrap means."""
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


def percent(values: Array) -> float:
    """The mean in per cent."""
    return 100 * float(np.mean(values))


def in_order(runs: list[Run]) -> list[Run]:
    """By model as given, and by benchmark in the paper's order; others last."""
    models = list(dict.fromkeys(run.model for run in runs))
    known = list(BENCHMARK_NAMES)

    def key(run: Run) -> tuple[int, int, str]:
        place = known.index(run.benchmark) if run.benchmark in known else len(known)
        return models.index(run.model), place, run.benchmark

    return sorted(runs, key=key)


def title(run: Run) -> str:
    """The benchmark's name in a table."""
    return BENCHMARK_NAMES.get(run.benchmark, run.benchmark)

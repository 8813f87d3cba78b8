"""Stretches of a model's layers, and LookBack with A_t from each.

Layers are counted from 0 here, and from 1 where people read of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lookback.runs import Run
from lookback.scores.formula import Array, lookback_scores
from lookback.studies.common import words as speech
from lookback.studies.common.base import StudyError
from lookback.studies.common.controls import auc, bootstrap_aucs
from lookback.studies.common.selection import (
    choose_on_other_half,
    interval,
    outcome,
    quality_of_picks,
)
from lookback.studies.common.words import (
    find_mentions,
    item_of_tokens,
    mentioning_benchmark,
    sample_responses,
    word_means,
    words_interval,
)

ORDINALS = ("first", "second", "third", "fourth")


def parts_of(depth: int) -> dict[str, range]:
    """The halves and quarters of so many layers, as far as there are layers for them."""
    parts = {}
    for name, count in (("half", 2), ("quarter", 4)):
        bounds = [depth * i // count for i in range(count + 1)]
        if depth >= count:
            for ordinal, first, end in zip(ORDINALS, bounds, bounds[1:], strict=False):
                parts[f"{ordinal} {name}"] = range(first, end)
    return parts


def stretches(depth: int) -> list[range]:
    """All layers, then every single one, every beginning, every end, the halves and quarters."""
    singles = [range(i, i + 1) for i in range(depth)]
    beginnings = [range(end) for end in range(1, depth)]
    ends = [range(first, depth) for first in range(1, depth)]
    ranges = [range(depth), *singles, *beginnings, *ends, *parts_of(depth).values()]
    return list(dict.fromkeys(ranges))


def name_of(layers: range, depth: int) -> str:
    """What people call a stretch of layers."""
    if len(layers) == depth:
        return "all layers"
    first, last = layers[0] + 1, layers[-1] + 1
    return f"layer {first}" if first == last else f"layers {first}-{last}"


def outcomes_by_layers(
    run: Run, chosen: list[range], n: int, alpha: float | None = None, lam: float | None = None
) -> Array:
    """(items, chosen): the quality of LookBack's pick with A_t from each stretch of layers.

    From all of them it is the run's own A_t, the mean over all heads; from some it is the mean over
    these layers.

    Args:
        run: with signals by layer.
        chosen: the stretches.
        n: the first n candidates of each item.
        alpha, lam: LookBack's settings; the run's own by default.
    """
    by_layer, filled = run.by_layer(), run.lengths > 0
    log_prob, quality = run.signal("log_prob"), run.quality(n)
    alpha = run.defaults["alpha"] if alpha is None else alpha
    lam = run.defaults["lam"] if lam is None else lam
    outcomes = []
    for layers in chosen:
        whole = len(layers) == by_layer.shape[1]
        some = by_layer[:, layers.start : layers.stop]  # a view: a run can have millions of tokens
        a = run.signal("visual_lookback") if whole else some.mean(axis=1, dtype=np.float64)
        scores = np.full(len(filled), np.nan)
        scores[filled] = lookback_scores(log_prob, a, run.lengths[filled], alpha, lam)
        outcomes.append(quality_of_picks(run.grid(scores, n), quality))
    return np.stack(outcomes, axis=1)


CHOSEN = "chosen on the other half"
REFERENCES = {"mean log p": "mean_log_prob", "random selection": "random"}


@dataclass(frozen=True, eq=False)
class LayerResult:
    """What was found in one run.

    Attributes:
        run: the run.
        n: how many candidates of each item are selected from.
        outcomes: (items,) in per cent, by what selects: a stretch of layers, a choice of one,
            a reference.
        words: for each of `speech.SETS` the mean z-score of A_t by layer, then over all layers.
        aucs: of mentions, by layer, then over all layers; None if the benchmark cannot tell.
        ends: (layers + 1, 2), where the intervals of the sets' z-scores and of the "AUC" end.
        counts: how many words are in each set; how many mentions are right, and wrong.
    """

    run: Run
    n: int
    outcomes: dict[range | str, Array]
    words: dict[str, Array]
    aucs: Array | None
    ends: dict[str, Array]
    counts: dict[str, int]

    @property
    def depth(self) -> int:
        """How many layers there are."""
        return int(self.run.by_layer().shape[1])

    @property
    def each_layer(self) -> list[range]:
        """Each layer, then all."""
        return [*(range(i, i + 1) for i in range(self.depth)), range(self.depth)]

    def name(self, what: range | str) -> str:
        """What tables call what selects."""
        return what if isinstance(what, str) else name_of(what, self.depth)

    def gain(self, what: range | str) -> Array:
        """(items,): points more than with all layers."""
        return self.outcomes[what] - self.outcomes[range(self.depth)]


class Settings(NamedTuple):
    """How a run is analysed; see the study."""

    n: int
    splits: int
    seed: int
    responses: int
    alpha: float | None
    lam: float | None


def analyse(run: Run, settings: Settings) -> tuple[LayerResult, list[str]]:
    """What is found in a run, and what a reader should know."""
    n, most = settings.n, settings.responses
    depth = run.by_layer().shape[1]
    if not depth:
        raise StudyError(f"{run.path}: every response is empty: there is nothing to analyse")
    choices = stretches(depth)
    values = 100 * outcomes_by_layers(run, choices, n, settings.alpha, settings.lam)
    outcomes: dict[range | str, Array] = dict(zip(choices, values.T, strict=True))
    outcomes[CHOSEN], times = choose_on_other_half(values, settings.splits, settings.seed)
    often = sorted(zip(times.tolist(), choices, strict=True), key=lambda one: -one[0])[:3]
    told = ", ".join(f"{name_of(one, depth)} {count} times" for count, one in often if count)
    notes = [
        f"of {len(choices)} stretches of layers {2 * settings.splits} halves chose, most often: "
        f"{told}."
    ]
    for name, method in REFERENCES.items():
        outcomes[name] = 100 * outcome(run, method, n)
    first = np.flatnonzero(run.index < n)
    words, ends, counts = _word_scores(run, first, most)
    aucs, auc_ends, mentions, more = _mention_aucs(run, first, most)
    result = LayerResult(run, n, outcomes, words, aucs, ends | auc_ends, counts | mentions)
    return result, [*notes, *more]


def _by_layer_and_all(run: Run) -> list[Array]:
    """A_t in each layer, and over all."""
    return [*(a.astype(np.float64) for a in run.by_layer().T), run.signal("visual_lookback")]


Scores = tuple[dict[str, Array], dict[str, Array], dict[str, int]]


def _word_scores(run: Run, candidates: NDArray[np.intp], most: int) -> Scores:
    """Mean z-scores of the words of each set, their intervals, and how many words these are."""
    chosen = sample_responses(candidates[run.lengths[candidates] > 0], most)
    words = speech.find_words(run, chosen)
    means = []
    for values in _by_layer_and_all(run):
        here = values[words.tokens]
        # In a layer whose window has left the image behind A_t is 0 for every token.
        same = here.min() == here.max()
        means.append(
            np.full(len(words.tags), np.nan)
            if same
            else word_means(speech.z_scores(here), words.ranges)
        )
    sets = {name: words.within(tags) for name, tags in speech.SETS.items()}
    counts = {name: int(inside.sum()) for name, inside in sets.items()}
    scores, ends = {}, {}
    items = item_of_tokens(run, chosen)
    for name, inside in sets.items():
        of = items[words.ranges[inside, 0]]
        scores[name] = np.array([m[inside].mean() if inside.any() else np.nan for m in means])
        ends[name] = np.array([words_interval(m[inside], of, len(run.sizes)) for m in means])
    return scores, ends, counts


Aucs = tuple[Array | None, dict[str, Array], dict[str, int], list[str]]


def _mention_aucs(run: Run, candidates: NDArray[np.intp], most: int) -> Aucs:
    """AUCs of right against wrong mentions, their intervals, how many there are, and notes."""
    benchmark = mentioning_benchmark(run)
    if benchmark is None:
        return None, {}, {}, ["the benchmark cannot tell right mentions from wrong; no AUC."]
    mentions = find_mentions(run, benchmark, candidates, most)
    inside = np.repeat(np.isin(np.arange(len(run.index)), candidates), run.lengths)
    values = [word_means(values[inside], mentions.ranges) for values in _by_layer_and_all(run)]
    aucs = [auc(each, mentions.right) for each in values]
    of = item_of_tokens(run, candidates)[mentions.ranges[:, 0]]
    draws = [bootstrap_aucs(each, mentions.right, of, len(run.sizes)) for each in values]
    ends = np.array([interval(each) if len(each) else (np.nan, np.nan) for each in draws])
    counts = {"right": int(mentions.right.sum()), "wrong": int((~mentions.right).sum())}
    notes = [f"{note}." for note in benchmark.notes]
    told = f"{counts['right']} right and {counts['wrong']} wrong mentions"
    return (
        np.array(aucs),
        {"AUC": ends},
        counts,
        [f"{told} in {mentions.responses} responses.", *notes],
    )

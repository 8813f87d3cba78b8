"""Stretches of a model's layers, LookBack with A_t from each, and the choice of one held out.

Layers are counted from 0 here, and from 1 where people read of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lookback.runs import Run
from lookback.scores.formula import Array, lookback_scores
from lookback.studies.shared.base import StudyError
from lookback.studies.shared.selection import quality_of_picks

ORDINALS = ("first", "second", "third", "fourth")


def parts_of(depth: int) -> dict[str, range]:
    """The halves and quarters of so many layers, as far as there are layers for them."""
    found = {}
    for name, count in (("half", 2), ("quarter", 4)):
        bounds = [depth * i // count for i in range(count + 1)]
        if depth >= count:
            for ordinal, first, end in zip(ORDINALS, bounds, bounds[1:], strict=False):
                found[f"{ordinal} {name}"] = range(first, end)
    return found


def stretches(depth: int) -> list[range]:
    """All layers, then every single one, every beginning, every end, the halves and quarters."""
    singles = [range(i, i + 1) for i in range(depth)]
    beginnings = [range(end) for end in range(1, depth)]
    ends = [range(first, depth) for first in range(1, depth)]
    found = [range(depth), *singles, *beginnings, *ends, *parts_of(depth).values()]
    return list(dict.fromkeys(found))


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
    found = []
    for layers in chosen:
        whole = len(layers) == by_layer.shape[1]
        some = by_layer[:, layers.start : layers.stop]  # a view: a run can have millions of tokens
        a = run.signal("visual_lookback") if whole else some.mean(axis=1, dtype=np.float64)
        scores = np.full(len(filled), np.nan)
        scores[filled] = lookback_scores(log_prob, a, run.lengths[filled], alpha, lam)
        found.append(quality_of_picks(run.grid(scores, n), quality))
    return np.stack(found, axis=1)


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
    items, choices = values.shape
    if items < 2 or splits < 1:
        raise StudyError(f"{items} items and {splits} splits: there must be 2 items, and 1 split")
    rng = np.random.default_rng(seed)
    total, counts = np.zeros(items), np.zeros(choices, dtype=np.intp)
    for _ in range(splits):
        order = rng.permutation(items)
        halves = order[: items // 2], order[items // 2 :]
        for tuned, tested in (halves, halves[::-1]):
            best = int(values[tuned].mean(axis=0).round(9).argmax())
            total[tested] += values[tested, best]
            counts[best] += 1
    return total / splits, counts

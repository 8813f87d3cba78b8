"""Stretches of a model's layers, and LookBack with A_t from each.

Layers are counted from 0 here, and from 1 where people read of them.
"""

from __future__ import annotations

import numpy as np

from lookback.runs import Run
from lookback.scores.formula import Array, lookback_scores
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

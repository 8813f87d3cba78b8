"""What a scorer's picks are worth when it looks at another image."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookback.studies.pairs import Pair, same_picks
from lookback.studies.selection import interval, percent, picked, resampled, title


def removed(original: float, replaced: float, random: float) -> float:
    """The share, in per cent, of a gain over random selection that is gone; NaN without a gain."""
    gain = original - random
    return 100 * (original - replaced) / gain if gain > 0 else float("nan")


def replacement(pair: Pair, method: str) -> dict[str, Any]:
    """The row of one method: agreement, outcomes with both images, what is removed."""
    own, other = pair.scores(method)
    quality = pair.quality()
    original, replaced = picked(own, quality), picked(other, quality)
    random = percent(np.nanmean(quality, axis=1))
    low, high = interval(resampled(100 * (original - replaced)))
    same = same_picks(own, other)
    return {
        "model": pair.run.model,
        "benchmark": title(pair.run),
        "N": pair.n,
        "method": method,
        "items": len(quality),
        "agreement": float(same.mean()),
        "same_text": float(same_picks(own, other, pair.texts()).mean()),
        "random": random,
        "original": percent(original),
        "replaced": percent(replaced),
        "drop": percent(original - replaced),
        "low": low,
        "high": high,
        "removed": removed(percent(original), percent(replaced), random),
    }

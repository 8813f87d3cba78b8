"""Scores: pure functions of recorded signals. One scorer a file, all behind one registry."""

from lookback.scores import (  # noqa: F401  (importing a scorer registers it)
    entropy,
    lookback,
    mean_log_prob,
    self_certainty,
    visual_lookback,
)

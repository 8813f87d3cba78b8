"""Scores: what each response is worth. One scorer a file, all behind one registry."""

from lookback.scores import (  # noqa: F401  (importing a scorer registers it)
    clipscore,
    entropy,
    judge,
    lookback,
    majority,
    mean_log_prob,
    oracle,
    perplexity,
    random,
    self_certainty,
    self_certainty_borda,
    sum_log_prob,
    usc,
    vauq,
    visual_lookback,
)

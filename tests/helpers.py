"""Candidates with made-up signals, for tests that need no model."""

import numpy as np

from lookback.signals import Candidate, Candidates, Signals


def make_signals(rng, length):
    return Signals(
        rng.integers(0, 100, length),
        ["x"] * length,
        log_prob=-rng.exponential(size=length),
        visual_lookback=rng.uniform(0, 1, length),
        self_certainty=rng.exponential(size=length),
        entropy=rng.exponential(size=length),
    )


def make_candidates(lengths=(3, 1, 5), defaults=None, texts=None):
    rng = np.random.default_rng(0)
    lengths = lengths if texts is None else [4] * len(texts)
    said = texts or [f"text {i}" for i in range(len(lengths))]
    items = [Candidate(i, said[i], make_signals(rng, n)) for i, n in enumerate(lengths)]
    defaults = {"alpha": 7.0, "lam": 1.5} if defaults is None else defaults
    return Candidates(tuple(items), "what?", np.arange(4), model="m", defaults=defaults)

"""Universal Self-Consistency: the model picks among all responses at once."""

from __future__ import annotations

import numpy as np

from lookback.scores.formula import Array
from lookback.scores.prompts import usc_choice, usc_prompt
from lookback.scores.registry import scorer
from lookback.signals import Candidates


@scorer("usc", needs="model", image=True, together=True)
def usc(
    candidates: Candidates, m: int = 3, image: bool = True, seed: int = 0, max_new_tokens: int = 64
) -> Array:
    """Universal Self-Consistency over m orders.

    The score is the share of runs, each in another order of the candidates, that pick it. A
    reply that names no response picks the first candidate. With image=False the model judges
    the texts alone.
    """
    if m < 1:
        raise ValueError(f"m = {m}: the number of runs must be at least 1")
    assert candidates.asked is not None
    n = len(candidates)
    rng = np.random.default_rng(seed)
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(m - 1))]
    prompts = [usc_prompt(candidates.question, [candidates[i].text for i in o]) for o in orders]
    engine, picture = candidates.asked.engine, candidates.asked.image
    replies = engine.ask(picture if image else None, prompts, max_new_tokens=max_new_tokens)
    picks = np.zeros(n)
    for order, reply in zip(orders, replies, strict=True):
        choice = usc_choice(reply, n)
        picks[0 if choice is None else order[choice]] += 1
    return picks / m

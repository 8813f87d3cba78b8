"""A pairwise tournament with the model as the judge."""

from __future__ import annotations

import numpy as np

from lookback.scores.formula import Array
from lookback.scores.prompts import judge_choice, judge_prompt
from lookback.scores.registry import scorer
from lookback.signals import Candidates


@scorer("judge", needs="model", image=True, together=True)
def judge(candidates: Candidates, image: bool = True, max_new_tokens: int = 16) -> Array:
    """Pairwise judge: N - 1 games, the winner stays.

    The score is the number of the last game won. A reply that chooses neither leaves the
    winner so far in place. With image=False the model judges the texts alone.
    """
    assert candidates.asked is not None
    engine = candidates.asked.engine
    picture = candidates.asked.image if image else None
    scores = np.zeros(len(candidates))
    winner = 0
    for challenger in range(1, len(candidates)):
        first, second = candidates[winner].text, candidates[challenger].text
        prompt = judge_prompt(candidates.question, first, second)
        (reply,) = engine.ask(picture, [prompt], max_new_tokens=max_new_tokens)
        if judge_choice(reply) == 1:
            winner = challenger
        scores[winner] = challenger
    return scores

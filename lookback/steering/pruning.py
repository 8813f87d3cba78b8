"""Pruning: at each checkpoint only the best candidates continue.

What a finished draw would have been with pruning follows from its signals alone: `pruned_at` asks
the same rule about the same drafts as an engine would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lookback.steering import PRUNED, Decision, Draft, Judge

HALF = ((16, 2), (32, 4))
"""The schedule "half": after 16 tokens the better half goes on, after 32 the best quarter."""
Schedule = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Pruning(Judge):
    """At each checkpoint keep only the best candidates; the others end as "pruned".

    Finished candidates compete with running ones by their full score, and are never ended.

    Attributes:
        schedule: (tokens, how many are kept), tokens rising and numbers falling; or "half".
    """

    kind: ClassVar[str] = "prune"
    schedule: str | Schedule = "half"

    def of(self, n: int, defaults: Mapping[str, float]) -> Pruning:
        """Return the same for n candidates of a model with these settings for its scorer.

        Raises:
            ValueError: it is no schedule, or its scorer cannot judge drafts.
        """
        return replace(self.with_defaults(defaults), schedule=check_schedule(self.schedule, n))

    @property
    def kept(self) -> dict[int, int]:
        """How many are kept after each number of tokens; of a rule made by `of`."""
        return dict(check_schedule(self.schedule, 1))

    def due(self, tokens: int) -> bool:
        """Return whether the schedule has a checkpoint after `tokens` tokens."""
        return tokens in self.kept

    def decide(self, tokens: int, drafts: Mapping[int, Draft]) -> Decision:
        """End the running candidates that are not among the best."""
        scores = self.ranking(drafts)
        best = list(scores)[: self.kept[tokens]]
        ends = {i: PRUNED for i, draft in drafts.items() if draft.running and i not in best}
        return self.report(tokens, scores, Decision(ends))

    def to_json(self) -> dict[str, Any]:
        """Return what `Candidates.sampling` keeps of it."""
        return super().to_json() | {"schedule": [list(pair) for pair in self.kept.items()]}


def check_schedule(schedule: Any, n: int) -> tuple[tuple[int, int], ...]:
    """Return a schedule for n candidates as pairs of whole numbers.

    Raises:
        ValueError: it is none.
    """
    if isinstance(schedule, str) and schedule == "half":
        return tuple((tokens, max(1, n // part)) for tokens, part in HALF)
    what = f"prune = {schedule!r:.60}"
    try:
        pairs = tuple((tokens, keep) for tokens, keep in schedule)
    except (TypeError, ValueError):
        raise ValueError(
            f"{what}: must be 'half' or pairs (tokens, how many are kept), e.g. [(16, 12), (32, 6)]"
        ) from None
    if not pairs:
        raise ValueError(f"{what}: there is no checkpoint in it")
    for value in (value for pair in pairs for value in pair):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{what}: {value!r:.60} must be a whole number of at least 1")
    for (tokens, keep), (later, fewer) in pairwise(pairs):
        if later <= tokens or fewer > keep:
            raise ValueError(f"{what}: tokens must rise from pair to pair, and numbers must not")
    return tuple((int(tokens), int(keep)) for tokens, keep in pairs)


Prune = str | Schedule | Pruning | None
"""What `Engine.sample` is given as `prune`."""


def pruning_of(prune: Prune, n: int, defaults: Mapping[str, float]) -> Pruning | None:
    """Return the rule for n candidates of a model with these settings; None for none.

    Raises:
        ValueError: it is no schedule, or its scorer cannot judge drafts.
    """
    if prune is None:
        return None
    rule = prune if isinstance(prune, Pruning) else Pruning(prune)
    return rule.of(n, defaults)


def pruned_at(
    rule: Pruning, signals: Sequence[NDArray[np.float32]], drawn: Sequence[int]
) -> list[int | None]:
    """Return after how many tokens each candidate of a finished draw would have been pruned.

    Args:
        rule: the pruning, as `Pruning.of` gives it.
        signals: (4, T) of each candidate's whole response.
        drawn: how many tokens were drawn for each: T, and one more where an end token was left out.
    """
    pruned: list[int | None] = [None] * len(signals)
    for tokens in rule.kept:
        drafts = {
            i: Draft((), values[:, :tokens], running=count > tokens)
            for i, (values, count) in enumerate(zip(signals, drawn, strict=True))
            if pruned[i] is None
        }
        if any(draft.running for draft in drafts.values()):
            for i in rule.decide(tokens, drafts).ends:
                pruned[i] = tokens
    return pruned

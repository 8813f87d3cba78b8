"""Search: at each checkpoint the best go on, and forks of them take the places of the others.

A sequential Monte Carlo search, or a beam of segments, guided by the score: every fork continues
with random numbers of its own. A finished candidate competes by its full score: among the best it
holds its place, whose share of the width is then not written any more; elsewhere it takes nobody's
place. Either way it stays to the end. Candidates that say the same are one, so that a short answer
that is often drawn holds one place, not many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lookback.errors import check_whole
from lookback.steering import MERGED, PRUNED, Decision, Draft, Judge


@dataclass(frozen=True)
class Search(Judge):
    """A search of some width.

    Attributes:
        width: how many candidates there are at a time, finished ones among the best with theirs.
        keep: how many are kept at a checkpoint, with an equal share of the width each.
        every: the tokens from one checkpoint to the next.
    """

    kind: ClassVar[str] = "search"
    width: int = 25
    keep: int = 5
    every: int = 16

    def of(self, defaults: Mapping[str, float]) -> Search:
        """Return the same for a model with these settings for its scorer.

        Raises:
            ValueError: a number is out of range, or the scorer cannot judge drafts.
        """
        check_whole("width", self.width, 1)
        check_whole("keep", self.keep, 1, self.width)
        check_whole("every", self.every, 1)
        return self.with_defaults(defaults)

    def due(self, tokens: int) -> bool:
        """Whether it is a multiple of `every`."""
        return tokens % self.every == 0

    def decide(self, tokens: int, drafts: Mapping[int, Draft]) -> Decision:
        """Keep the best, once each, and fork those of them that are still being written."""
        ends = dict.fromkeys(repeated({i: draft.token_ids for i, draft in drafts.items()}), MERGED)
        left = {i: draft for i, draft in drafts.items() if i not in ends}
        scores = self.ranking(left)
        best = [i for i in list(scores)[: self.keep] if left[i].running]
        ends |= {i: PRUNED for i in left if left[i].running and i not in best}
        rows = self.width * len(best) // self.keep
        forks = [best[place % len(best)] for place in range(rows - len(best))]
        return self.report(tokens, scores, Decision(ends, forks))

    def to_json(self) -> dict[str, Any]:
        """Return what `Candidates.sampling` keeps of it."""
        mine = {"width": self.width, "keep": self.keep, "every": self.every}
        return super().to_json() | mine


def repeated(token_ids: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the candidates that say the same, token by token, as one before them."""
    seen: set[tuple[int, ...]] = set()
    again = []
    for i, ids in token_ids.items():
        key = tuple(ids)
        if key in seen:
            again.append(i)
        seen.add(key)
    return again

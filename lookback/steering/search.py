"""Search: at each checkpoint the best go on, and forks of them take the places of the others.

A sequential Monte Carlo search, or a beam of segments, guided by the score: every fork continues
with random numbers of its own. Finished candidates compete in the end, by their full score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lookback.engines.sampling import check_whole
from lookback.steering import MERGED, PRUNED, Decision, Draft, Judge


@dataclass(frozen=True)
class Search(Judge):
    """A search of some width.

    Attributes:
        width: how many candidates are written at a time.
        keep: how many of those still being written go on after a checkpoint.
        every: the tokens from one checkpoint to the next.
    """

    kind: ClassVar[str] = "search"
    width: int = 25
    keep: int = 5
    every: int = 16

    def of(self, defaults: Mapping[str, float]) -> Search:
        """The same for a model with these settings for its scorer.

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
        """Keep the best that are still being written, once each, and fork them."""
        ends = dict.fromkeys(repeated({i: draft.token_ids for i, draft in drafts.items()}), MERGED)
        left = {i: draft for i, draft in drafts.items() if i not in ends}
        scores = self.ranking(left)
        running = [i for i in scores if left[i].running]
        best = running[: self.keep]
        ends |= dict.fromkeys(running[self.keep :], PRUNED)
        finished = len(left) - len(running)
        room = max(0, self.width - finished - len(best)) if best else 0
        forks = [best[place % len(best)] for place in range(room)]
        return self.tell(tokens, scores, Decision(ends, forks))

    def to_json(self) -> dict[str, Any]:
        """What `Candidates.sampling` keeps of it."""
        mine = {"width": self.width, "keep": self.keep, "every": self.every}
        return super().to_json() | mine


def repeated(token_ids: Mapping[int, Sequence[int]]) -> list[int]:
    """The candidates that say the same, token by token, as one before them."""
    seen: set[tuple[int, ...]] = set()
    found = []
    for i, ids in token_ids.items():
        key = tuple(ids)
        if key in seen:
            found.append(i)
        seen.add(key)
    return found

"""Rules that act on candidates while they are being written: arithmetic on the signals so far.

`Pruning` ends the worst at given lengths, `Search` continues from the best with forks of them. An
engine asks one of them at its checkpoints and does what the `Decision` says; it knows no scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from lookback.scores.base import best_first, get_scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import Array
from lookback.signals import PRUNED as PRUNED

MERGED = "merged"
"""The end of a candidate that says the same as another one of its search; it is not kept."""


@dataclass(frozen=True, eq=False)
class Draft:
    """A candidate at a checkpoint: its tokens so far, and their signals (4, T) as in `SIGNALS`.

    `running` is whether it is still being written.
    """

    token_ids: Sequence[int]
    signals: NDArray[np.float32]
    running: bool


@dataclass(frozen=True)
class Decision:
    """What happens at a checkpoint.

    Attributes:
        ends: the `finish` of candidates that end here, by their numbers.
        forks: running candidates that get one more continuation each; numbers may repeat.
    """

    ends: Mapping[int, str] = field(default_factory=dict)
    forks: Sequence[int] = ()


class Steering(Protocol):
    """A rule that decides at checkpoints."""

    def due(self, tokens: int) -> bool:
        """Return whether there is a checkpoint after `tokens` tokens."""
        ...

    def decide(self, tokens: int, drafts: Mapping[int, Draft]) -> Decision:
        """Decide about the candidates that no earlier decision ended."""
        ...


Watch = Callable[[int, Mapping[int, float], Decision], None]
"""Called at each checkpoint with the tokens so far, every candidate's score, and the decision."""


@dataclass(frozen=True, kw_only=True)
class Judge:
    """A scorer that judges drafts: any that is arithmetic on signals.

    Attributes:
        scorer: its name.
        settings: its settings; those of the model's family by default.
        watch: called at each checkpoint.
    """

    scorer: str = "lookback"
    settings: Mapping[str, Any] = field(default_factory=dict)
    watch: Watch | None = field(default=None, compare=False)

    def with_defaults(self, defaults: Mapping[str, float]) -> Self:
        """Return the same with a family's settings where none were given.

        Raises:
            ValueError: there is no such scorer, or setting, or it needs more than signals.
        """
        chosen = get_scorer(self.scorer)
        if chosen.needs != "signals":
            raise ValueError(
                f"scorer {self.scorer!r} cannot judge what is still being written: it needs more "
                "than the signals so far; take e.g. 'lookback' or 'mean_log_prob'"
            )
        return replace(self, settings=chosen.settings(defaults, self.settings))

    def ranking(self, drafts: Mapping[int, Draft]) -> dict[int, float]:
        """Return scores by number, the best first; equal scores keep their order, NaN is last."""
        if not drafts:
            return {}
        numbers, scores = list(drafts), self._scores([draft.signals for draft in drafts.values()])
        return {numbers[i]: float(scores[i]) for i in best_first(scores)}

    def _scores(self, signals: Sequence[NDArray[np.float32]]) -> Array:
        lengths = np.array([values.shape[1] for values in signals], dtype=np.intp)
        batch = SignalBatch.of_arrays(lengths, np.concatenate(signals, 1))
        return get_scorer(self.scorer).of_batch(batch, {}, self.settings)

    def report(self, tokens: int, scores: Mapping[int, float], decision: Decision) -> Decision:
        """Call `watch` with a decision, and return it."""
        if self.watch is not None:
            self.watch(tokens, scores, decision)
        return decision

    def to_json(self) -> dict[str, Any]:
        """Return what `Candidates.sampling` keeps of it."""
        return {"scorer": self.scorer, "settings": dict(self.settings)}

"""A scorer's settings tried on made candidates, before a model is loaded, which can take minutes.

What a scorer refuses it refuses here, with its own words. Only the package's own are tried: one of
a user's may do anything when it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from lookback.conversations import Conversation
from lookback.engines import ABILITIES, Ability, Engine, Identity, check_rows, check_sampling
from lookback.families import Family
from lookback.registry import wrong_kind
from lookback.scores.base import NEEDS, Scorer
from lookback.signals import Asked, Candidate, Candidates, Signals


def rehearse(scorer: Scorer, params: Mapping[str, Any], n: int) -> None:
    """Let pass settings that a scorer can rank n candidates with.

    Raises:
        SettingError: it has no such setting, lacks one, or cannot work with its value.
        ValueError: a value is out of range.
    """
    scorer.check(params)
    if scorer.needs == "truth" and "quality" not in params:
        raise ValueError(
            f"scorer {scorer.name!r} needs {NEEDS['truth']}, which nobody knows here: give it, "
            f"--set 'quality=[...]' with {n} numbers, or rank by another; `lookback scorers` "
            "lists them"
        )
    if scorer.own or scorer.needs == "clip":  # an encoder would have to be loaded
        return
    few = min(n, 2) if scorer.needs == "model" else n  # a truth has as many numbers as candidates
    try:
        scorer.of_candidates(_made(few), params)
    except ValueError as error:
        if any(name in str(error) for name in params):
            raise
        raise wrong_kind(f"scorer {scorer.name!r}", params, error) from error


class _StandIn(Engine):
    """Answers as it is asked to, and hides nothing."""

    name = "rehearsal"
    family = Family("rehearsal")
    abilities: frozenset[Ability] = frozenset(ABILITIES)

    def identity(self) -> Identity:
        return Identity("rehearsal", "rehearsal", "none")

    def generate(self, image: Any = None, prompts: Any = None, **settings: Any) -> list[str]:
        check_sampling(1, 0.0, 1.0, None, settings.get("max_new_tokens", 1))
        return ["A" if "Response B:" in prompt else "Response 0" for prompt in prompts]

    def score(
        self, image: Any = None, question: Any = None, responses: Any = (), **how: Any
    ) -> Any:
        return _candidates(list(responses))

    def knockout(
        self, image: Any = None, question: Any = None, responses: Any = (), **how: Any
    ) -> Any:
        layers = how.get("layers")
        check_rows(how.get("rows", "all"))
        if layers is not None:
            first, last = layers
            if not 0 <= first < last:
                raise ValueError(f"layers = {layers}: the first and the end, e.g. [0, 2]")
        return _candidates(responses)


def _made(n: int) -> Candidates:
    tokens = np.arange(2)
    numbers = np.full(2, 0.5)
    signals = Signals(tokens, ("a", " b"), -numbers, numbers, numbers, numbers)
    return _candidates([Candidate(i, f"a {i}", signals) for i in range(n)])


def _candidates(items: Sequence[Candidate]) -> Candidates:
    asked = Asked(_StandIn(), Conversation.of(Image.new("RGB", (1, 1)), "?"))
    return Candidates(tuple(items), "?", np.arange(1), asked=asked)

"""scenes-amber: what a description claims, after AMBER: objects, attributes, places, relations.

Facts are distinct tuples: (object, c), (color, c, v), (size, c, v), (place, c, v) and, say,
(left of, c, d), where c and d are categories; the scene makes one true if some thing of category c
(and another of category d) does.

- precision: true facts among all that the response asserts, of any of these kinds;
- recall: of the scene's objects, colours and sizes, those that the response asserts. Places and
  relations are left out of it: nobody is expected to tell them all;
- F1: their harmonic mean; an empty denominator gives 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.benchmarks.base import Item
from lookback.benchmarks.scenes.facts import Fact, is_true, scene_facts, told_facts
from lookback.benchmarks.scenes.parse import parse
from lookback.benchmarks.scenes.scene import Scene, Thing, sample_scene
from lookback.benchmarks.scenes.task import ScenesTask, f1, mean_percent, share
from lookback.benchmarks.scenes.world import PLACES

PROMPT = "Describe the picture in detail."


class ScenesAmber(ScenesTask):
    """F1 over facts."""

    name = "scenes-amber"
    primary = "f1"

    def compose(
        self, seed: int, index: int, rng: np.random.Generator
    ) -> tuple[Scene, str, dict[str, Any]]:
        """A scene and all its things."""
        scene = sample_scene(seed, rng)
        return scene, PROMPT, {"things": scene.truth()}

    def judged(self, item: Item, response: str) -> tuple[dict[Fact, bool], set[Fact]]:
        """The facts that a response asserts, each with its truth, and those it should assert."""
        things = [
            Thing(t["category"], t["color"], t["size"], PLACES.index(t["place"]))
            for t in item.truth["things"]
        ]
        told = {fact: is_true(fact, things) for fact in told_facts(parse(response))}
        return told, scene_facts(things)

    def precision_recall(self, item: Item, response: str) -> tuple[float, float]:
        """See the module's definitions."""
        told, wanted = self.judged(item, response)
        return share(sum(told.values()), len(told)), share(len(wanted & set(told)), len(wanted))

    def score(self, item: Item, response: str) -> float:
        """F1 of one response."""
        return f1(*self.precision_recall(item, response))

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        """Mean precision and recall, and the share of responses with any false fact (hal)."""
        pairs = list(zip(items, responses, strict=True))
        both = [self.precision_recall(*pair) for pair in pairs]
        return {
            "precision": mean_percent([p for p, _ in both]),
            "recall": mean_percent([r for _, r in both]),
            "hal": mean_percent([not all(self.judged(*pair)[0].values()) for pair in pairs]),
        }

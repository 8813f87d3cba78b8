"""scenes-caption: which things a description names, after CHAIR.

With P the set of categories that a response says are there and G the set of those that are:
precision |P & G| / |P|, recall |P & G| / |G|, F1 their harmonic mean; an empty denominator gives 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.benchmarks.base import Item
from lookback.benchmarks.scenes.parse import parse
from lookback.benchmarks.scenes.scene import Scene, sample_scene
from lookback.benchmarks.scenes.task import ScenesTask, f1, mean_percent, share

PROMPT = "Describe the picture."


class ScenesCaption(ScenesTask):
    """F1 over objects; and CHAIR's own two numbers, which are better when lower."""

    name = "scenes-caption"
    primary = "f1"

    def compose(
        self, seed: int, index: int, rng: np.random.Generator
    ) -> tuple[Scene, str, dict[str, Any]]:
        """A scene and its categories."""
        scene = sample_scene(seed, rng)
        return scene, PROMPT, {"categories": sorted({t.category for t in scene.things})}

    def precision_recall(self, item: Item, response: str) -> tuple[float, float]:
        """Of the categories named and of those there, the shares that are both."""
        named, there = parse(response).categories(), set(item.truth["categories"])
        hits = len(named & there)
        return share(hits, len(named)), share(hits, len(there))

    def score(self, item: Item, response: str) -> float:
        """F1 of one response."""
        return f1(*self.precision_recall(item, response))

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        """Mean precision and recall; CHAIR_i over all mentions, CHAIR_s over responses."""
        pairs = list(zip(items, responses, strict=True))
        both = [self.precision_recall(*pair) for pair in pairs]
        wrong = [
            [
                m.category not in item.truth["categories"]
                for m in parse(text).mentions
                if m.category and not m.negated
            ]
            for item, text in pairs
        ]
        return {
            "precision": mean_percent([p for p, _ in both]),
            "recall": mean_percent([r for _, r in both]),
            "chair_i": mean_percent([w for response in wrong for w in response]),
            "chair_s": mean_percent([any(response) for response in wrong]),
        }

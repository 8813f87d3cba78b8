"""scenes-caption: which things a description names, after CHAIR.

With P the set of categories that a response says are there and G the set of those that are:
precision |P & G| / |P|, recall |P & G| / |G|, F1 their harmonic mean; an empty denominator gives 0.
"""

from __future__ import annotations

from typing import Any

from lookback.benchmarks.base import Item, benchmark
from lookback.benchmarks.metrics import mean_percent, share
from lookback.benchmarks.scenes.description import DescriptionTask, Pairs
from lookback.benchmarks.scenes.parse import parse
from lookback.benchmarks.scenes.scene import Scene

PROMPT = "Describe the picture."


@benchmark("scenes-caption", title="Scenes Caption")
class ScenesCaption(DescriptionTask):
    """F1 over objects; and CHAIR's own two numbers, which are better when lower."""

    prompt = PROMPT

    def truth(self, scene: Scene) -> dict[str, Any]:
        """Its categories."""
        return {"categories": sorted({t.category for t in scene.things})}

    def there(self, item: Item) -> set[str]:
        """As the truth lists them."""
        return set(item.truth["categories"])

    def precision_recall(self, item: Item, response: str) -> tuple[float, float]:
        """Of the categories named and of those there, the shares that are both."""
        named, there = parse(response).categories(), self.there(item)
        hits = len(named & there)
        return share(hits, len(named)), share(hits, len(there))

    def hallucinations(self, pairs: Pairs) -> dict[str, float]:
        """CHAIR_i over all mentions, CHAIR_s over responses."""
        wrong = [
            [
                m.category not in item.truth["categories"]
                for m in parse(text).mentions
                if m.category and not m.negated
            ]
            for item, text in pairs
        ]
        return {
            "chair_i": mean_percent([w for response in wrong for w in response]),
            "chair_s": mean_percent([any(response) for response in wrong]),
        }

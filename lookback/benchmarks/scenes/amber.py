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

from typing import Any

from lookback.benchmarks.base import Item, benchmark
from lookback.benchmarks.metrics import mean_percent, share
from lookback.benchmarks.scenes.description import DescriptionTask, Pairs
from lookback.benchmarks.scenes.facts import Fact, is_true, scene_facts, told_facts
from lookback.benchmarks.scenes.parse import parse
from lookback.benchmarks.scenes.scene import Scene, Thing
from lookback.benchmarks.scenes.world import PLACES

PROMPT = "Describe the picture in detail."


@benchmark("scenes-amber", title="Scenes AMBER")
class ScenesAmber(DescriptionTask):
    """F1 over facts."""

    prompt = PROMPT

    def truth(self, scene: Scene) -> dict[str, Any]:
        """All its things."""
        return {"things": scene.truth()}

    def there(self, item: Item) -> set[str]:
        """Those of its things."""
        return {thing["category"] for thing in item.truth["things"]}

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

    def hallucinations(self, pairs: Pairs) -> dict[str, float]:
        """The share of responses with any false fact."""
        return {"hal": mean_percent([not all(self.judged(*pair)[0].values()) for pair in pairs])}

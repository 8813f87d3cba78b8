"""Another package that extends LookBack, found by its entry points; put on the path, not installed.

Its scorer is a plain function: an entry point needs no decorator where the defaults do.
"""

from PIL import Image

import lookback
from lookback.benchmarks.base import Item, Items
from lookback.studies import Result

COLORS = ("red", "blue", "white")


def count_tokens(batch):
    """How many tokens a response has."""
    return batch.lengths


@lookback.benchmark("toy-benchmark")
class ToyBenchmark:
    """Pictures of one colour."""

    primary = "accuracy"
    source = "made up"
    default_split = "test"
    notes = ()

    def items(self, split="test", limit=None):
        return Items(range(len(COLORS))[:limit], self.item)

    def item(self, number):
        color = COLORS[number]
        return Item(
            id=f"toy-test-{number}",
            question="What colour is this?",
            truth={"color": color},
            load=lambda: Image.new("RGB", (64, 64), color),
        )

    def score(self, item, response):
        return float(item.truth["color"] in response.lower())

    def scores(self, item, responses):
        return [self.score(item, response) for response in responses]

    def aggregate(self, items, responses):
        right = [self.score(i, r) for i, r in zip(items, responses, strict=True)]
        return {"accuracy": 100 * sum(right) / len(right)}


@lookback.study("toy-study")
def count_candidates(runs):
    """How many candidates each run has."""
    return Result(rows=[{"benchmark": run.benchmark, "candidates": len(run.texts)} for run in runs])


@lookback.engine("toy-engine")
def load(model=None, processor=None):
    """The embedded model, by another name."""
    return lookback.load()

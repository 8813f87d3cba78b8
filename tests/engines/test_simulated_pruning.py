"""What pruning would have done to a whole draw, against what it does: on the embedded model."""

import numpy as np
import pytest
from engines.rounding import assert_same_numbers

import lookback
from lookback.benchmarks.base import get_benchmark
from lookback.signals import SIGNALS
from lookback.steering.pruning import Pruning, pruned_at

N = 9
RULES = [
    Pruning("half"),
    Pruning([(8, 4), (20, 2)]),
    Pruning([(5, 3)], scorer="mean_log_prob"),
    Pruning([(6, 5), (12, 2), (24, 1)], scorer="visual_lookback"),
    Pruning([(8, 1)], settings={"alpha": 3.0, "lam": 0.25}),
    Pruning([(40, 1)]),  # at the limit: nobody is left to prune
]


@pytest.fixture(scope="module")
def lb():
    return lookback.load(quiet=True)


@pytest.mark.parametrize("task", ["scenes-caption", "scenes-amber", "scenes-vqa"])
@pytest.mark.parametrize("number", [0, 5])
def test_the_simulation_is_what_happens(lb, task, number):
    item = get_benchmark(task).items("test", 6)[number]
    draw = {"n": N, "max_new_tokens": 40, "seed": 11 + number}
    whole = lb.sample(item.image, item.question, **draw)
    signals = [np.stack([getattr(c, name) for name in SIGNALS]) for c in whole]
    drawn = [len(c.tokens) + (c.finish == "end") for c in whole]
    for rule in RULES:
        ends = pruned_at(rule.of(N, lb.family.defaults), signals, drawn)
        found = lb.sample(item.image, item.question, **draw, prune=rule)
        finishes = [
            c.finish if end is None else "pruned" for c, end in zip(whole, ends, strict=True)
        ]
        assert [c.finish for c in found] == finishes
        for i, (one, other) in enumerate(zip(found, whole, strict=True)):
            length = len(other.tokens) if ends[i] is None else ends[i]
            np.testing.assert_array_equal(one.token_ids, other.token_ids[:length])
            for name in SIGNALS:
                assert_same_numbers(getattr(one, name), getattr(other, name)[:length])
        cost = sum(count if end is None else end for count, end in zip(drawn, ends, strict=True))
        assert found.sampling["tokens_drawn"] == cost


def test_there_is_something_to_simulate(lb):
    """Long answers are pruned by these rules, and short ones are left alone."""
    for task, some in (("scenes-amber", True), ("scenes-vqa", False)):
        item = get_benchmark(task).items("test", 1)[0]
        found = lb.sample(item.image, item.question, N, max_new_tokens=40, seed=1, prune="half")
        assert any(c.finish == "pruned" for c in found) == some

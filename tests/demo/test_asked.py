"""The item of the demo: the rule that picks it, the picks, the verdicts."""

from dataclasses import replace

import numpy as np
import pytest
from demo.made import SAID, make_asked

from lookback.benchmarks.base import GENERATED, get_benchmark
from lookback.demo.asked import (
    APART,
    FIRST,
    MEASURES,
    MOST,
    SCORERS,
    ask,
    find,
    judge,
    merge,
    tells_apart,
)

SPLITTING = 2
"""A seed with which the two scorers pick different answers."""


def with_qualities(lookback, self_certainty, best=0.0):
    """Two answers, one the pick of each, of these qualities; `best` is what else there was."""
    asked = make_asked([(" A b.", 0.0, ()), (" A long one.", 0.0, ())], seed=SPLITTING)
    first, second = (asked.best(s).index for s in ("lookback", "self_certainty"))
    assert first != second
    quality = [0.0, 0.0]
    quality[first], quality[second] = lookback, self_certainty
    return replace(asked, quality=(*quality, best))


@pytest.mark.parametrize(
    ("one", "other", "taken"),
    [
        (1, 0, True),
        (0, 1, True),
        (1, 1, False),
        (0, 0, False),
        (0.5, 0.75, True),
        (0.75, 0.5, True),
        (0.5, 0.7, False),
    ],
)
def test_the_rule_prefers_nobody(one, other, taken):
    assert tells_apart(with_qualities(one, other)) is taken
    assert not tells_apart(with_qualities(one, other, best=1.1))  # neither picked the best


def test_the_first_item_that_the_rule_takes():
    told = [with_qualities(*pair) for pair in ((1, 1), (0.5, 0.6), (0.5, 1), (1, 0))]
    asked = []

    def answers(place):
        asked.append(place)
        return told[place - FIRST]

    assert find(answers) == (told[2], 3)
    assert asked == [FIRST, FIRST + 1, FIRST + 2]  # no more than needed
    with pytest.raises(
        ValueError,
        match=rf"none of the items {FIRST} to {FIRST + MOST - 1} .* {APART} below: .*--item",
    ):
        find(lambda place: told[0])


def test_picks_are_those_of_the_scorers():
    asked = make_asked()
    for name in ("lookback", "self_certainty"):
        scores = asked.candidates.scores(name)
        assert asked.picks[name].index == int(np.nanargmax(scores))
    assert list(asked.picks) == list(SCORERS)
    drawn = {make_asked(seed=seed).picks["random"].index for seed in range(30)}
    assert len(drawn) >= 4  # by lot, of six


def test_verdicts_have_words():
    asked = make_asked()
    assert [tuple(asked.verdict(i))[:2] for i in (0, 1, 3)] == [
        ("✓", "right"),
        ("~", "partly right, 0.50"),
        ("✗", "wrong"),
    ]
    assert [asked.verdict(i).kind for i in (0, 1, 3)] == ["right", "partly", "wrong"]
    assert asked.verdict(1).invented == ("flag",)
    assert asked.right == 3
    assert asked.greedy_verdict.words == "partly right, 0.50"


def test_equal_answers_stand_together_at_the_place_of_the_best():
    asked = make_asked()
    ranked = asked.candidates.rank("lookback")
    groups = merge(ranked)
    assert sorted(c.index for group in groups for c in group) == list(range(len(SAID)))
    assert [0, 2] in [[c.index for c in group] for group in groups]
    firsts = [ranked.index(group[0]) for group in groups]
    assert firsts == sorted(firsts)


class Engine:
    """Says what it is told to."""

    greedy = 0

    def sample(self, image, question, n, *, max_new_tokens, seed=None, temperature=1.2):
        if temperature == 0:
            self.greedy += 1
            return make_asked([(" No.", 0.0, ())] * n).candidates
        self.asked = (question, n, seed)
        return make_asked([(" A sun.", 1.0, ())] * n).candidates


@pytest.mark.parametrize("task", GENERATED)
def test_answers_are_compared_with_the_truth(task):
    benchmark, engine = get_benchmark(task), Engine()
    asked = ask(engine, benchmark, 3, 7)
    item = benchmark.items("test")[3]
    assert engine.asked == (item.question, 25, 7)
    assert asked.quality == (benchmark.score(item, "A sun."),) * 25
    assert not engine.greedy  # items that the rule passes over need none
    assert (asked.greedy, asked.greedy_verdict) == ("No.", judge(benchmark.score(item, "No.")))
    assert engine.greedy == 1
    assert asked.measure == MEASURES[benchmark.primary]


def test_what_is_not_there_is_told():
    benchmark = get_benchmark("scenes-caption")
    items = benchmark.items("test")
    place = next(i for i in range(20) if "sun" not in items[i].truth["categories"])
    asked = ask(Engine(), benchmark, place, 0)
    assert asked.verdict(0).invented == ("sun",)


def test_an_item_that_is_not_there_is_an_error():
    for place in (-1, 1000):
        with pytest.raises(ValueError, match=rf"item {place} of scenes-vqa: .* 0 to 999"):
            ask(Engine(), get_benchmark("scenes-vqa"), place, 0)

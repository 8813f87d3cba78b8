"""Settings of the sampling: the same check before anything is loaded, written or drawn."""

import math

import numpy as np
import pytest
from toy_engine import ToyEngine

from lookback.engines import check_sampling
from lookback.engines.common.logits import streams
from lookback.engines.common.options import (
    MOST_CANDIDATES,
    MOST_NEW_TOKENS,
    MOST_TOKENS,
    SampleOptions,
)
from lookback.runs.plan import Plan

GOOD = {"n": 25, "temperature": 1.2, "top_p": 0.9, "top_k": None, "max_new_tokens": 256, "seed": 42}
BAD = [
    ("n", 0),
    ("n", -3),
    ("n", 2.5),
    ("n", True),
    ("n", "3"),
    ("n", None),
    ("n", MOST_CANDIDATES + 1),
    ("n", 10**30),
    ("max_new_tokens", 0),
    ("max_new_tokens", 1.0),
    ("max_new_tokens", MOST_NEW_TOKENS + 1),
    ("top_k", 0),
    ("top_k", 1.5),
    ("temperature", -1),
    ("temperature", -1e-9),
    ("temperature", 1e-320),
    ("temperature", 9e-7),
    ("temperature", 1.1e6),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", "1"),
    ("temperature", None),
    ("temperature", True),
    ("top_p", 0),
    ("top_p", -0.1),
    ("top_p", 1.0001),
    ("top_p", 2),
    ("top_p", math.nan),
    ("top_p", "0.5"),
    ("top_p", True),
    ("seed", -1),
    ("seed", 2**64),
    ("seed", 10**40),
    ("seed", 1.5),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_what_is_out_of_range_is_named(name, value):
    with pytest.raises(ValueError, match=f"^{name} = ") as caught:
        check_sampling(**GOOD | {name: value})
    assert "must be " in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1),
        ("n", MOST_CANDIDATES),
        ("n", np.int64(3)),
        ("max_new_tokens", 1),
        ("max_new_tokens", MOST_NEW_TOKENS),
        ("top_k", 1),
        ("temperature", 0),
        ("temperature", 0.0),
        ("temperature", 1e-6),
        ("temperature", 1e6),
        ("temperature", np.float32(0.5)),
        ("top_p", 1),
        ("top_p", 1e-9),
        ("seed", None),
        ("seed", 0),
        ("seed", 2**64 - 1),
    ],
)
def test_what_is_in_range_passes(name, value):
    check_sampling(**GOOD | {name: value})


def test_all_tokens_together_have_a_limit():
    half = MOST_TOKENS // 2**13
    check_sampling(**GOOD | {"n": 2**13, "max_new_tokens": half})
    with pytest.raises(ValueError, match=r"n = 8192, max_new_tokens = 8193: together .* at most"):
        check_sampling(**GOOD | {"n": 2**13, "max_new_tokens": half + 1})


@pytest.mark.parametrize(("name", "value"), [one for one in BAD if one[0] != "top_k"])
def test_a_plan_with_them_is_none(name, value):
    with pytest.raises(ValueError, match=f"^{name} = "):
        Plan("scenes-vqa", **{name: value})


@pytest.mark.parametrize(("name", "value"), [("seed", 2**64), ("temperature", 1e-320), ("n", 0)])
def test_engines_check_them(name, value):
    import lookback

    for engine in (ToyEngine(), lookback.load()):
        with pytest.raises(ValueError, match=f"^{name} = "):
            engine.sample(None, "what?", source="none", **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 2**64), ("temperature", math.nan), ("top_p", 2), ("max_new_tokens", 0)],
)
def test_plain_answers_are_checked_too(name, value):
    import lookback

    with pytest.raises(ValueError, match=f"^{name} = "):
        lookback.load().generate(None, "what?", **{name: value})


@pytest.mark.parametrize("temperature", [1e-6, 1e6])
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_the_ends_of_the_ranges_can_be_drawn_with(temperature, seed):
    import lookback

    settings = {"n": 2, "max_new_tokens": 3, "temperature": temperature, "seed": seed}
    found = lookback.load().sample(None, "what?", source="none", **settings)
    assert len(found) == 2
    assert all(np.isfinite(one.log_prob).all() for one in found)


def test_the_largest_seeds_have_streams_of_their_own():
    seeds = (0, 1, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1)
    rows = {tuple(row) for seed in seeds for row in streams(seed, 3, 4)}
    assert len(rows) == 3 * len(seeds)


@pytest.mark.parametrize("stop", ["a\ud800", ["a", "a\ud800"]])
def test_a_stop_text_has_whole_characters(stop):
    with pytest.raises(ValueError, match=r"stop.*ud800"):
        SampleOptions.of(**GOOD, stop=stop)

"""Stretches of layers, and the choice of one half of the items for the other, by plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookback.studies import StudyError
from lookback.studies.common.selection import choose_on_other_half
from lookback.studies.layers import name_of, parts_of, stretches


@given(st.integers(1, 40))
def test_stretches(depth):
    found = stretches(depth)
    assert found[0] == range(depth)  # of equal choices the first is taken: all layers
    assert len(set(found)) == len(found)
    assert all(len(one) and one[0] >= 0 and one[-1] < depth for one in found)
    for i in range(depth):
        assert {range(i, i + 1), range(i + 1), range(i, depth)} <= set(found)
    assert set(parts_of(depth).values()) <= set(found)


@given(st.integers(1, 40))
def test_halves_and_quarters(depth):
    parts = parts_of(depth)
    for name, count in (("half", 2), ("quarter", 4)):
        here = [one for key, one in parts.items() if key.endswith(name)]
        assert len(here) == (count if depth >= count else 0)
        if here:  # each layer in one of them, in order, as evenly as can be
            assert [layer for one in here for layer in one] == list(range(depth))
            assert max(map(len, here)) - min(map(len, here)) <= 1


def test_names_count_from_one():
    assert name_of(range(6), 6) == "all layers"
    assert name_of(range(2, 3), 6) == "layer 3"
    assert name_of(range(3, 6), 6) == "layers 4-6"
    assert name_of(range(1), 1) == "all layers"


@pytest.mark.parametrize(("items", "splits"), [(7, 3), (2, 1), (12, 20)])
def test_each_half_chooses_for_the_other(items, splits):
    values = np.random.default_rng(5).integers(0, 3, (items, 4)) / 2
    found, counts = choose_on_other_half(values, splits, seed=9)
    rng, total, chosen = np.random.default_rng(9), [0.0] * items, [0] * 4
    for _ in range(splits):
        order = rng.permutation(items).tolist()
        first, second = order[: items // 2], order[items // 2 :]
        for tuned, tested in ((first, second), (second, first)):
            assert not set(tuned) & set(tested)
            means = [round(sum(values[i, c] for i in tuned) / len(tuned), 9) for c in range(4)]
            best = means.index(max(means))
            chosen[best] += 1
            for i in tested:
                total[i] += values[i, best]
    np.testing.assert_allclose(found, np.array(total) / splits)
    assert counts.tolist() == chosen
    assert sum(chosen) == 2 * splits


def test_what_is_best_on_every_item_is_chosen_and_what_is_equal_is_not():
    values = np.zeros((10, 3))
    assert choose_on_other_half(values, 4, 0)[1].tolist() == [8, 0, 0]
    values[:, 2] = 1
    found, counts = choose_on_other_half(values, 4, 0)
    assert (found.tolist(), counts.tolist()) == ([1.0] * 10, [0, 0, 8])


def test_chance_is_not_rewarded():
    """Choices that differ by chance: the best on all items gains, the held-out one does not."""
    values = np.random.default_rng(1).normal(size=(400, 60))
    held_out, _ = choose_on_other_half(values, 50, 0)
    assert values.mean(axis=0).max() > 0.1
    assert abs(held_out.mean() - values.mean()) < 0.05


def test_one_item_cannot_be_halved():
    with pytest.raises(StudyError, match="1 items and 3 splits"):
        choose_on_other_half(np.zeros((1, 2)), 3, 0)
    with pytest.raises(StudyError, match="4 items and 0 splits"):
        choose_on_other_half(np.zeros((4, 2)), 0, 0)

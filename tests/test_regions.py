"""Which share of attention lies where: held to counting small squares."""

import numpy as np
import pytest
from made_looks import grid_boxes

from lookback.looks.heat_map import PARTS, Place, find_place, inside, mass


def counted(boxes, region, fine=200):
    """Shares of boxes in a region, by counting the middles of fine squares."""
    middle = (np.arange(fine) + 0.5) / fine
    x, y = np.meshgrid(middle, middle)

    def covers(box):
        return (box[0] <= x) & (x < box[2]) & (box[1] <= y) & (y < box[3])

    there = covers(region)
    return np.array([(covers(box) & there).sum() / max(1, covers(box).sum()) for box in boxes])


@pytest.mark.parametrize("region", [*PARTS.values(), (0.1, 0.3, 0.62, 0.35), (0, 0, 1, 1)])
def test_shares_of_boxes_are_those_of_counted_squares(region):
    low = np.array([[0, 0], [0.2, 0.1], [0.4, 0.4], [0.5, 0.0], [0.9, 0.75]])
    size = np.array([[0.5, 0.5], [0.3, 0.8], [0.25, 0.2], [0.5, 1], [0.1, 0.25]])
    boxes = np.concatenate([low, low + size], axis=1)
    np.testing.assert_allclose(inside(boxes, region), counted(boxes, region), atol=0.02)


def test_every_part_is_a_quarter_and_an_even_look_has_a_quarter_in_each():
    boxes, even = grid_boxes(8, 12), np.full(96, 0.01)
    for region in PARTS.values():
        assert mass(even, boxes, region) == pytest.approx(0.24, rel=1e-6)


@pytest.mark.parametrize(
    ("box", "part"),
    [
        ((0.0, 0.0, 0.2, 0.2), "top left"),
        ((0.8, 0.1, 1.0, 0.3), "top right"),
        ((0.0, 0.9, 0.1, 1.0), "bottom left"),
        ((0.7, 0.8, 0.9, 0.9), "bottom right"),
        ((0.4, 0.4, 0.6, 0.6), "middle"),
    ],
)
def test_a_spot_is_where_it_is(box, part):
    assert find_place(np.array([0.3]), np.array([box])) == Place(part, pytest.approx(1.0))


def test_tokens_without_a_place_count_nowhere():
    boxes = np.array([[0, 0, 0.5, 0.5], [np.nan] * 4])
    assert find_place(np.array([0.1, 0.9]), boxes) == Place("top left", 1.0)
    assert find_place(np.array([0.0, 0.9]), boxes) is None

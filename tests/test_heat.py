"""Weights of boxes as maps of pixels: against a slow loop, and the laws that they keep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lookback.looks.heat_map import COLORS, colors, overlay, paint, strengths

shares = st.floats(0, 1, width=32)
edges = st.lists(shares, min_size=2, max_size=2, unique=True).map(sorted)


@st.composite
def boxes(draw):
    count = draw(st.integers(0, 6))
    found = []
    for _ in range(count):
        (left, right), (top, bottom) = draw(edges), draw(edges)
        found.append([left, top, right, bottom])
    return np.array(found).reshape(-1, 4)


def slow(boxes, weights, size):
    """Pixel by pixel and box by box."""
    width, height = size
    found = np.zeros((height, width))
    for (left, top, right, bottom), weight in zip(boxes, weights, strict=True):
        area = (right - left) * width * (bottom - top) * height
        for y in range(height):
            for x in range(width):
                across = min(right * width, x + 1) - max(left * width, x)
                down = min(bottom * height, y + 1) - max(top * height, y)
                found[y, x] += weight * max(across, 0) * max(down, 0) / area
    return found


@given(boxes(), st.tuples(st.integers(1, 9), st.integers(1, 7)), st.randoms())
def test_each_weight_is_spread_over_its_box(given_boxes, size, random):
    """Tall, wide, tiny and overlapping boxes, with borders anywhere within a pixel."""
    wide = (np.diff(given_boxes[:, ::2]) > 1e-3) & (np.diff(given_boxes[:, 1::2]) > 1e-3)
    given_boxes = given_boxes[wide[:, 0]]
    weights = [random.random() for _ in given_boxes]
    found = paint(given_boxes, weights, size)
    assert found.shape == size[::-1]
    np.testing.assert_allclose(found, slow(given_boxes, weights, size), atol=1e-9)
    assert found.sum() == pytest.approx(sum(weights), abs=1e-9)


def test_what_has_no_place_is_not_painted():
    nowhere = [np.nan] * 4
    found = paint([nowhere, [0, 0, 0.5, 1]], [5.0, 1.0], (4, 2))
    np.testing.assert_allclose(found, [[0.25, 0.25, 0, 0]] * 2)
    assert paint([nowhere], [5.0], (3, 2)).tolist() == [[0.0] * 3] * 2


def test_a_border_within_a_pixel_by_hand():
    """Half of a picture three pixels wide: the middle one has half as much as the first."""
    found = paint([[0, 0, 0.5, 1]], [3.0], (3, 1))
    np.testing.assert_allclose(found, [[2.0, 1.0, 0.0]])


def test_many_boxes_of_a_grid_are_no_more_work_than_its_rows_and_columns():
    n = 60
    grid = [[x / n, y / n, (x + 1) / n, (y + 1) / n] for y in range(n) for x in range(n)]
    found = paint(grid, np.arange(n * n), (n * 2, n * 2))
    np.testing.assert_allclose(found[::2, ::2].ravel() * 4, np.arange(n * n), atol=1e-6)


def test_strengths_are_from_the_floor_to_the_top():
    values = np.array([0.5, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(strengths(values), values / 3)
    np.testing.assert_allclose(strengths(values, 1.0), [0, 0, 0.5, 1])
    assert strengths(values, 3.0).tolist() == [0.0] * 4
    assert strengths(np.zeros(3)).tolist() == [0.0] * 3


def test_more_heat_is_brighter():
    found = colors(np.linspace(0, 1, 101))
    assert (np.diff(found @ [0.299, 0.587, 0.114]) > 0).all()
    np.testing.assert_allclose(found[[0, -1]], COLORS[[0, -1]])


@pytest.mark.parametrize("shade", [0, 128, 255])
def test_an_overlay_is_readable_on_any_picture(shade):
    """No heat leaves the picture, dimmed; the most heat outshines whatever was there."""
    image = Image.new("RGB", (3, 2), (shade,) * 3)
    strength = np.zeros((2, 3))
    strength[0, 1] = 1.0
    found = np.asarray(overlay(image, strength), dtype=int)
    assert found.shape == (2, 3, 3)
    assert found[1, 0].tolist() == [round(0.45 * shade)] * 3
    assert found[0, 1].sum() > found[1, 0].sum() + 250
    assert overlay(image.convert("L"), strength).mode == "RGB"

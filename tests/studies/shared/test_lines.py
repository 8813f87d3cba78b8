"""Lines in figures: labels that leave each other room, styles that differ, colours to be read."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from lookback.scores.base import scorers
from lookback.studies.common.plots import (
    contrast,
    label_end,
    line_styles,
    panels,
    readable,
    settle_labels,
    spread,
)

places = st.lists(st.floats(-50, 150, allow_nan=False), min_size=1, max_size=12)


@given(places, st.floats(0.1, 7), st.floats(0, 20), st.floats(100, 130))
def test_labels_keep_their_order_their_distance_and_their_bounds(wanted, gap, low, high):
    placed = spread(wanted, gap, low, high)
    assert len(placed) == len(wanted)
    assert min(placed) >= low - 1e-9
    assert max(placed) <= high + 1e-9
    for (a, x), (b, y) in combinations(zip(wanted, placed, strict=True), 2):
        assert abs(x - y) >= gap - 1e-6  # eleven gaps of seven fit into eighty
        assert a == b or (a < b) == (x < y)


@given(places, st.floats(0.1, 7), st.integers(0, 2**32 - 1))
def test_no_other_places_are_nearer(wanted, gap, seed):
    placed = spread(wanted, gap, 0, 100)
    moved = sum((a - b) ** 2 for a, b in zip(wanted, placed, strict=True))
    rng = np.random.default_rng(seed)
    for _ in range(20):  # any other allowed places, in the same order
        free = np.sort(rng.uniform(0, 100 - gap * (len(wanted) - 1), len(wanted)))
        other = free + gap * np.arange(len(wanted))
        at = other[np.argsort(np.argsort(wanted, kind="stable"))]
        assert ((at - wanted) ** 2).sum() >= moved - 1e-6


def test_labels_that_have_room_stay_where_they_are():
    assert spread([10, 50, 30], 5, 0, 100) == [10, 50, 30]
    assert spread([10, 10], 4, 0, 100) == [8, 12]
    assert spread([], 4, 0, 100) == []


def test_without_room_labels_stand_evenly():
    assert spread([5, 5, 5], 10, 0, 10) == [0, 5, 10]


def test_no_two_lines_look_the_same_without_colour():
    looks = line_styles(scorers())
    assert list(looks) == list(scorers())
    seen = [(look["marker"], look["linestyle"]) for look in looks.values()]
    assert len(set(seen)) == len(seen)
    assert seen[0] == ("", "-")


def test_names_of_lines_can_be_read():
    assert contrast((0, 0, 0)) == pytest.approx(21)
    assert contrast((1, 1, 1)) == pytest.approx(1)
    for scorer in scorers().values():
        shade = np.array(to_rgb(readable(scorer.color)))
        assert contrast(shade) >= 4.45  # as rounded to eight bits
        given = np.array(to_rgb(scorer.color))
        assert shade @ given == pytest.approx(np.linalg.norm(shade) * np.linalg.norm(given), 1e-3)


def test_names_of_lines_that_end_together_do_not_overlap():
    figure, axes = panels(1, 1)
    names = [f"line {number}" for number in range(9)]
    for number, name in enumerate(names):
        y = [number, 5 + 0.01 * number]
        axes[0, 0].plot([0, 1], y)
        label_end(axes[0, 0], [0, 1], y, name, "#2563eb")
    label_end(axes[0, 0], [0, 1], [np.nan, np.nan], "nothing", "#2563eb")
    settle_labels(figure)
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = axes[0, 0].texts
    assert [text.get_text() for text in texts] == names
    # Of the text alone: an annotation's own extent has the line to its point in it.
    boxes = sorted((Text.get_window_extent(t, renderer) for t in texts), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))
    panel, (wide, _) = axes[0, 0].get_window_extent(), figure.get_size_inches() * figure.dpi
    assert all(box.x0 > panel.x1 and box.x1 <= wide for box in boxes)
    assert all(panel.y0 - 2 <= box.y0 and box.y1 <= panel.y1 + 2 for box in boxes)
    heights = [text.get_position()[1] for text in texts]
    assert heights == sorted(heights)  # as the lines end

"""Layouts: splits that cannot overlap, and statistics that hold what the tables say."""

from collections import Counter
from itertools import combinations

import pytest

from lookback.scenes import sample_scene
from lookback.scenes.scene import SPAN, SPLIT_SIZES, TASKS, scene_seed
from lookback.scenes.world import (
    CATEGORIES,
    COLORS,
    COUNTS,
    GROUPS,
    P_MAIN,
    P_SECOND,
    PLACES,
    ROWS,
    color_weights,
)
from tools.training.texts import training_scene


@pytest.fixture(scope="module")
def scenes():
    return [training_scene(i) for i in range(6000)]


def test_seeds_of_splits_and_tasks_cannot_overlap():
    ranges = {
        (split, task): (scene_seed(split, task, 0), scene_seed(split, task, size - 1))
        for split, size in SPLIT_SIZES.items()
        for task in TASKS
    }
    for (a, (low, high)), (b, (other_low, other_high)) in combinations(ranges.items(), 2):
        assert high < other_low or other_high < low, (a, b)
    assert max(SPLIT_SIZES.values()) <= SPAN


@pytest.mark.parametrize(("split", "index"), [("test", 1000), ("tune", -1), ("train", 1_000_000)])
def test_no_index_reaches_into_a_neighbours_seeds(split, index):
    with pytest.raises(ValueError, match=f"scene {index} of split '{split}': it has scenes 0 to"):
        scene_seed(split, "scenes-vqa", index)


def test_tables_are_consistent():
    assert len(CATEGORIES) == 25
    assert len(COLORS) == 8
    assert set().union(*GROUPS.values()) == set(CATEGORIES)
    for name, category in CATEGORIES.items():
        assert category.main != category.second
        assert {category.main, category.second} <= set(COLORS)
        assert category.home in ROWS
        assert sum(color_weights(name)) == pytest.approx(1)
    assert sum(COUNTS.values()) == pytest.approx(1)


def test_every_scene_is_well_formed(scenes):
    for scene in scenes:
        cells = [t.cell for t in scene.things]
        assert 2 <= len(cells) <= 6
        assert len(set(cells)) == len(cells)


def test_everything_occurs(scenes):
    things = [t for s in scenes for t in s.things]
    for options, key in ((CATEGORIES, "category"), (COLORS, "color"), (PLACES, "place")):
        seen = Counter(getattr(t, key) for t in things)
        assert set(seen) == set(options)
        assert min(seen.values()) > 0.3 * len(things) / len(options), key
    assert {len(s.things) for s in scenes} == set(COUNTS)
    twins = sum(len(s.singles()) < len(s.things) for s in scenes) / len(scenes)
    assert 0.2 < twins < 0.45


def test_usual_colours_are_as_usual_as_the_table_says(scenes):
    for name, category in CATEGORIES.items():
        colors = Counter(t.color for s in scenes for t in s.of(name))
        total = sum(colors.values())
        assert colors[category.main] / total == pytest.approx(P_MAIN, abs=0.07), name
        assert colors[category.second] / total == pytest.approx(P_SECOND, abs=0.06), name
        assert len(colors) == len(COLORS), name


def test_usual_rows(scenes):
    for home, rows in ROWS.items():
        names = [n for n, c in CATEGORIES.items() if c.home == home]
        seen = Counter(t.row for s in scenes for t in s.things if t.category in names)
        for row, p in enumerate(rows):
            # A taken place pushes things into other rows, so the table holds roughly.
            assert seen[row] / sum(seen.values()) == pytest.approx(p, abs=0.1), (home, row)


def test_companions_are_seen_together(scenes):
    def lift(a, b):
        p_a, p_b = (sum(bool(s.of(c)) for s in scenes) / len(scenes) for c in (a, b))
        return sum(bool(s.of(a) and s.of(b)) for s in scenes) / len(scenes) / (p_a * p_b)

    assert lift("boat", "fish") > 1.5
    assert lift("house", "car") > 1.5
    assert lift("book", "clock") > 1.5
    assert lift("boat", "lamp") < 0.8


def test_the_tables_numbers_of_things(scenes):
    counts = Counter(len(s.things) for s in scenes)
    for n, p in COUNTS.items():
        assert counts[n] / len(scenes) == pytest.approx(p, abs=0.03)


def test_a_scene_is_a_function_of_its_seed():
    assert sample_scene(123) == sample_scene(123)
    assert sample_scene(123) != sample_scene(124)

"""A scene as data: sampled from the tables of `world` by a seed; seeds by split and task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from lookback.scenes.world import (
    CATEGORIES,
    COLORS,
    COUNTS,
    GROUPS,
    P_IN_GROUP,
    P_TWIN,
    P_TWIN_SAME,
    PLACES,
    ROWS,
    SIZES,
    color_weights,
)

T = TypeVar("T")

# The second half of a generator's key: one stream for each purpose, so that none shifts another.
LAYOUT, BACKGROUND, TASK, TEXT = range(4)  # TEXT + n is the n-th set of texts


def generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], dtype=np.uint64)))


def chance(rng: np.random.Generator, p: float) -> bool:
    return rng.random() < p


def below(rng: np.random.Generator, n: int) -> int:
    """Return a whole number in [0, n)."""
    return int(rng.random() * n)


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    return options[below(rng, len(options))]


def weighted(rng: np.random.Generator, options: Sequence[T], weights: Sequence[float]) -> T:
    """Return one of the options, in proportion to its weight."""
    rest = rng.random() * sum(weights)
    for option, weight in zip(options, weights, strict=True):
        rest -= weight
        if rest < 0:
            return option
    return options[-1]


def shuffled(rng: np.random.Generator, options: Sequence[T]) -> list[T]:
    keys = rng.random(len(options))
    return [options[i] for i in np.argsort(keys, kind="stable").tolist()]


SPAN = 2**20
SPLIT_SIZES = {"train": 1_000_000, "tune": 400, "test": 1_000}  # scenes, and at most so many items
TASKS = ("training", "scenes-vqa", "scenes-caption", "scenes-amber", "scenes-pairs")

assert max(SPLIT_SIZES.values()) <= SPAN


def split_size(split: str) -> int:
    """Return how many items a task has in a split."""
    if split not in SPLIT_SIZES:
        raise ValueError(f"no split named {split!r}; there are: {', '.join(SPLIT_SIZES)}")
    return SPLIT_SIZES[split]


def scene_seed(split: str, task: str, index: int) -> int:
    """Return the seed of a task's scene; raise ValueError if there is none."""
    size = split_size(split)
    if not 0 <= index < size:
        raise ValueError(f"scene {index} of split {split!r}: it has scenes 0 to {size - 1}")
    block = list(SPLIT_SIZES).index(split) * len(TASKS) + TASKS.index(task)
    return block * SPAN + index


LOOKS = 2**40


@dataclass(frozen=True)
class Thing:
    """One thing in a scene.

    Attributes:
        cell: its place, an index into `PLACES`; no two things of a scene share one.
        look: everything about its drawing that words do not say (jitter, tilt, tint).
    """

    category: str
    color: str
    size: str
    cell: int
    look: int = 0

    @property
    def place(self) -> str:
        return PLACES[self.cell]

    @property
    def row(self) -> int:
        return self.cell // 3

    @property
    def column(self) -> int:
        return self.cell % 3


@dataclass(frozen=True)
class Scene:
    """Two to six things before a background that follows from `seed` alone."""

    things: tuple[Thing, ...]
    seed: int
    group: str

    def of(self, category: str | None) -> list[Thing]:
        """Return the things of a category; all of them for None."""
        return [t for t in self.things if category in (None, t.category)]

    def singles(self) -> list[Thing]:
        """Return the things that are the only ones of their category."""
        return [t for t in self.things if len(self.of(t.category)) == 1]

    def free_cells(self) -> list[int]:
        taken = {t.cell for t in self.things}
        return [cell for cell in range(len(PLACES)) if cell not in taken]

    def truth(self) -> list[dict[str, Any]]:
        """Return the things as JSON-able data."""
        return [
            {"category": t.category, "color": t.color, "size": t.size, "place": t.place}
            for t in self.things
        ]


def draw_color(category: str, rng: np.random.Generator) -> str:
    return weighted(rng, tuple(COLORS), color_weights(category))


def draw_thing(category: str, color: str, free: list[int], rng: np.random.Generator) -> Thing:
    """Draw a thing with a size and one of the free places, by the category's prior."""
    kind = CATEGORIES[category]
    rows = ROWS[kind.home]
    cell = weighted(rng, free, [rows[c // 3] for c in free])
    return Thing(category, color, SIZES[chance(rng, kind.large)], cell, below(rng, LOOKS))


def sample_scene(seed: int, rng: np.random.Generator | None = None) -> Scene:
    """Return the scene of a seed; with `rng`, another layout before the same background."""
    rng = generator(seed, LAYOUT) if rng is None else rng
    group = pick(rng, tuple(GROUPS))
    scene = Scene((), seed, group)
    for _ in range(weighted(rng, tuple(COUNTS), tuple(COUNTS.values()))):
        if scene.things and chance(rng, P_TWIN):
            twin = pick(rng, scene.things)
            category = twin.category
            color = twin.color if chance(rng, P_TWIN_SAME) else draw_color(category, rng)
        else:
            pool = GROUPS[group] if chance(rng, P_IN_GROUP) else tuple(CATEGORIES)
            new = [c for c in pool if not scene.of(c)] or [c for c in CATEGORIES if not scene.of(c)]
            category = pick(rng, new)
            color = draw_color(category, rng)
        thing = draw_thing(category, color, scene.free_cells(), rng)
        scene = Scene((*scene.things, thing), seed, group)
    return scene

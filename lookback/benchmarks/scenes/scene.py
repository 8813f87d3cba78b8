"""A scene as data, and how one is drawn by lot from the tables of `world`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lookback.benchmarks.scenes.chance import LAYOUT, below, chance, generator, pick, weighted
from lookback.benchmarks.scenes.world import (
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
        """The name of its place."""
        return PLACES[self.cell]

    @property
    def row(self) -> int:
        """0 at the top."""
        return self.cell // 3

    @property
    def column(self) -> int:
        """0 at the left."""
        return self.cell % 3


@dataclass(frozen=True)
class Scene:
    """Two to six things before a background that follows from `seed` alone."""

    things: tuple[Thing, ...]
    seed: int
    group: str

    def of(self, category: str | None) -> list[Thing]:
        """The things of a category; all of them for None."""
        return [t for t in self.things if category in (None, t.category)]

    def singles(self) -> list[Thing]:
        """The things that are the only ones of their category."""
        return [t for t in self.things if len(self.of(t.category)) == 1]

    def free_cells(self) -> list[int]:
        """The places without a thing."""
        taken = {t.cell for t in self.things}
        return [cell for cell in range(len(PLACES)) if cell not in taken]

    def truth(self) -> list[dict[str, Any]]:
        """The things as JSON-able data."""
        return [
            {"category": t.category, "color": t.color, "size": t.size, "place": t.place}
            for t in self.things
        ]


def draw_color(category: str, rng: np.random.Generator) -> str:
    """A colour by the category's prior."""
    return weighted(rng, tuple(COLORS), color_weights(category))


def draw_thing(category: str, color: str, free: list[int], rng: np.random.Generator) -> Thing:
    """A thing with a size and one of the free places, by the category's prior."""
    kind = CATEGORIES[category]
    rows = ROWS[kind.home]
    cell = weighted(rng, free, [rows[c // 3] for c in free])
    return Thing(category, color, SIZES[chance(rng, kind.large)], cell, below(rng, LOOKS))


def sample_scene(seed: int, rng: np.random.Generator | None = None) -> Scene:
    """The scene of a seed; with `rng`, another layout before the same background."""
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

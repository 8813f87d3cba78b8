"""scenes-pairs: yes/no questions about a picture and its edited twin, after HallusionBench.

The original agrees with what is usual; one thing of it is then edited so that the usual answer is
wrong. Two questions are asked about both pictures; the first is to be affirmed of the original, the
second of the edited picture: as many yes as no, in every picture and for every question.

Correctness: 1 if the response says the true answer (`answers.verdict`); unclear is incorrect.
aAcc: all answers; fAcc: pictures (figures) with all answers right; qAcc: questions with the answers
about both pictures right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from lookback.benchmarks.base import Item, benchmark
from lookback.benchmarks.metrics import all_right, mean_percent
from lookback.benchmarks.scenes.answers import verdict
from lookback.benchmarks.scenes.chance import pick
from lookback.benchmarks.scenes.questions import (
    Question,
    ask_color,
    ask_count,
    ask_exists,
    ask_place,
)
from lookback.benchmarks.scenes.scene import Scene, Thing, draw_color, sample_scene
from lookback.benchmarks.scenes.task import ScenesTask
from lookback.benchmarks.scenes.world import CATEGORIES, COLORS, GROUPS, ROWS

Rng = np.random.Generator


class Pair(NamedTuple):
    """Two pictures, and for each a question that it answers with yes and the other with no."""

    pictures: tuple[Scene, Scene]  # original, edited
    questions: tuple[Question, Question]


def _with(scene: Scene, old: Thing, *new: Thing) -> Scene:
    rest = tuple(t for t in scene.things if t is not old)
    return replace(scene, things=(*rest, *new))


def recolor(scene: Scene, rng: Rng) -> Pair | None:
    """A thing of its usual colour gets another."""
    if not scene.singles():
        return None
    chosen = pick(rng, scene.singles())
    usual = CATEGORIES[chosen.category].main
    before = replace(chosen, color=usual)
    after = replace(chosen, color=pick(rng, [c for c in COLORS if c != usual]))
    return Pair(
        (_with(scene, chosen, before), _with(scene, chosen, after)),
        (ask_color(before, before.color, rng), ask_color(after, after.color, rng)),
    )


def _expected(scene: Scene) -> list[Thing]:
    """Single things of the scene's group that another thing of the group makes one expect."""
    group = [t for t in scene.things if t.category in GROUPS[scene.group]]
    return [t for t in scene.singles() if t in group] if len(group) > 1 else []


def remove(scene: Scene, rng: Rng) -> Pair | None:
    """A thing that one expects beside the others goes away."""
    if len(scene.things) < 3 or not _expected(scene):
        return None
    thing = pick(rng, _expected(scene))
    edited = _with(scene, thing)
    return Pair(
        (scene, edited),
        (
            ask_exists(scene, thing.category, None, rng),
            ask_count(edited, len(edited.things), rng),
        ),
    )


def swap(scene: Scene, rng: Rng) -> Pair | None:
    """A thing that one expects beside the others becomes one that does not go with them."""
    if not _expected(scene):
        return None
    before = pick(rng, _expected(scene))
    strange = [c for c in CATEGORIES if c not in GROUPS[scene.group] and not scene.of(c)]
    category = pick(rng, strange)
    edited = _with(
        scene, before, replace(before, category=category, color=draw_color(category, rng))
    )
    return Pair(
        (scene, edited),
        (ask_exists(scene, before.category, None, rng), ask_exists(edited, category, None, rng)),
    )


def move(scene: Scene, rng: Rng) -> Pair | None:
    """A thing in its usual row goes to another row."""
    movable = [t for t in scene.singles() if ROWS[CATEGORIES[t.category].home][t.row] > 0.5]
    if not movable:
        return None
    before = pick(rng, movable)
    after = replace(before, cell=pick(rng, [c for c in scene.free_cells() if c // 3 != before.row]))
    first, second = (ask_place(t, t.category, t.place, rng) for t in (before, after))
    return Pair((scene, _with(scene, before, after)), (first, second))


EDITS = (recolor, remove, swap, move)


@benchmark("scenes-pairs", title="Scenes Pairs")
class ScenesPairs(ScenesTask):
    """Correctness, and HallusionBench's three accuracies."""

    primary = "correctness"
    per_seed = 4  # two questions times two pictures

    def compose(
        self, seed: int, index: int, rng: np.random.Generator
    ) -> tuple[Scene, str, dict[str, Any]]:
        """One of a pair's two questions about one of its two pictures."""
        number, member = divmod(index, self.per_seed)
        which, picture = divmod(member, 2)
        edit = EDITS[number % len(EDITS)]
        pair: Pair | None = None
        while pair is None:
            pair = edit(sample_scene(seed, rng), rng)
        question = pair.questions[which]
        truth = question.truth | {
            "answer": "yes" if which == picture else "no",
            "edit": edit.__name__,
            "figure": f"{number}-{('original', 'edited')[picture]}",
            "question": f"{number}-{which}",
        }
        return pair.pictures[picture], question.text, truth

    def score(self, item: Item, response: str) -> float:
        """1 if the response clearly says the true answer, else 0."""
        return float(verdict(response, item.truth) is (item.truth["answer"] == "yes"))

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        """aAcc, fAcc and qAcc; groups are made of the items given."""
        return {
            "aAcc": mean_percent(scores),
            "fAcc": all_right([item.truth["figure"] for item in items], scores),
            "qAcc": all_right([item.truth["question"] for item in items], scores),
        }

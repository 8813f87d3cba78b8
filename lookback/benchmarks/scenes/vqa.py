"""scenes-vqa: short answers to open and yes/no questions, after VQAv2.

Five kinds of questions, equally often: is there one, which colour, how many, where, what is there.
Accuracy: 1 if the response means the true answer by the rules of `answers`, else 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.benchmarks.base import Item, benchmark
from lookback.benchmarks.metrics import mean_percent
from lookback.benchmarks.scenes.answers import matches, verdict
from lookback.benchmarks.scenes.questions import KINDS, Question
from lookback.benchmarks.scenes.scene import Scene, sample_scene
from lookback.benchmarks.scenes.task import ScenesTask

SHORT_HINT = "Answer in a word or a short phrase."
ASKED = ("exists", "color", "count", "where", "what")


@benchmark("scenes-vqa", title="Scenes VQA")
class ScenesVQA(ScenesTask):
    """Accuracy, over all and by kind of question."""

    primary = "accuracy"

    def compose(
        self, seed: int, index: int, rng: np.random.Generator
    ) -> tuple[Scene, str, dict[str, Any]]:
        """One question of the index's kind, about the first scene that has an answer to it."""
        question: Question | None = None
        while question is None:
            scene = sample_scene(seed, rng)
            question = KINDS[ASKED[index % len(ASKED)]](scene, rng)
        return scene, f"{question.text} {SHORT_HINT}", question.truth

    def score(self, item: Item, response: str) -> float:
        """1 for the true answer, else 0."""
        if item.truth["kind"] == "exists":
            return float(verdict(response, item.truth) is (item.truth["answer"] == "yes"))
        return float(matches(response, item.truth))

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        """Accuracy by kind of question."""
        by_kind: dict[str, list[float]] = {}
        for item, value in zip(items, scores, strict=True):
            by_kind.setdefault(f"accuracy_{item.truth['kind']}", []).append(value)
        return {kind: mean_percent(values) for kind, values in sorted(by_kind.items())}

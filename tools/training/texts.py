"""Questions and answers to train on: true of the scene, in the forms that the tasks ask for."""

from __future__ import annotations

import numpy as np

from lookback.benchmarks.scenes import AMBER_PROMPT as DETAILED_PROMPT
from lookback.benchmarks.scenes import CAPTION_PROMPT as BRIEF_PROMPT
from lookback.benchmarks.scenes import SHORT_HINT
from lookback.scenes.questions import KINDS, QUESTIONS, article, sentence
from lookback.scenes.scene import (
    TEXT,
    Scene,
    chance,
    generator,
    pick,
    sample_scene,
    scene_seed,
    weighted,
)
from lookback.scenes.world import CATEGORIES
from tools.training.answers import ABSENT, REASONED, true_answer
from tools.training.describe import BRIEF, DETAILED, describe

# Beside the tasks' own prompts, which are as likely as all of these together.
BRIEF_PROMPTS = (
    "Describe the image.",
    "What do you see in the picture?",
    "What does the picture show?",
    "What is in the picture?",
)
DETAILED_PROMPTS = (
    "Describe the image in detail.",
    "What exactly do you see in the picture?",
    "Tell me all about the picture.",
    "Describe all that is in the picture.",
)
P_DETAILED = 0.6

# How often a question is of each kind. To compare what is asked with what is seen takes a small
# model longest to learn, then places: hence so many of them.
KIND_WEIGHTS = {
    "where": 0.15,
    "what": 0.13,
    "color": 0.12,
    "exists": 0.22,
    "is_color": 0.12,
    "is_at": 0.12,
    "count": 0.05,
    "size": 0.03,
    "is_count": 0.04,
    "is_related": 0.02,
}
P_ABSENT = 0.08  # a question about a thing that is not there
P_REASONED = 0.6  # an answer to a yes/no question says first what is seen
P_HINT = 0.35  # the question asks for a short answer, and gets one
P_SHORT = 0.25  # the answer is short although the question does not ask for it


def training_texts(
    scene: Scene, rng: np.random.Generator, descriptions: int = 1, questions: int = 6
) -> list[tuple[str, str]]:
    """Pairs of question and answer about one scene: so many descriptions, then so many questions.

    Nothing is asked twice; a scene with little to ask about gives fewer of them.
    """
    texts = [describe_pair(scene, rng) for _ in range(descriptions)]
    asked: dict[str, tuple[str, str]] = {}
    for _ in range(4 * questions):
        if len(asked) == questions:
            break
        hint = chance(rng, P_HINT)
        short = hint or chance(rng, P_SHORT)
        if chance(rng, P_ABSENT):
            text, answer = about_absent(scene, rng, short)
            key = text
        else:
            kind = weighted(rng, tuple(KIND_WEIGHTS), tuple(KIND_WEIGHTS.values()))
            question = KINDS[kind](scene, rng)
            if question is None:
                continue
            text, key = question.text, str(question.truth)
            answer = true_answer(question, rng, short, reasoned=chance(rng, P_REASONED))
        asked.setdefault(key, (f"{text} {SHORT_HINT}" if hint else text, answer))
    return [*texts, *asked.values()]


def reasoned_texts(
    scene: Scene, rng: np.random.Generator, questions: int = 12
) -> list[tuple[str, str]]:
    """Yes/no questions alone, with answers that say what is seen first.

    Whether yes or no follows from the text itself: this can be learned without a picture.
    """
    asked: dict[str, tuple[str, str]] = {}
    for _ in range(3 * questions):
        if len(asked) == questions:
            break
        question = KINDS[pick(rng, tuple(REASONED))](scene, rng)
        if question is not None:
            answer = true_answer(question, rng, short=chance(rng, 0.5), reasoned=True)
            asked.setdefault(str(question.truth), (question.text, answer))
    return list(asked.values())


def about_absent(scene: Scene, rng: np.random.Generator, short: bool) -> tuple[str, str]:
    """What colour a thing has, or where it is, that is not there; and that it is not."""
    category = pick(rng, [c for c in CATEGORIES if not scene.of(c)])
    question = pick(rng, QUESTIONS[pick(rng, ("color", "where"))]).format(ref=category)
    answer = pick(rng, ABSENT[short]).format(category=category, np=article(category))
    return sentence(question), sentence(answer)


def describe_pair(scene: Scene, rng: np.random.Generator) -> tuple[str, str]:
    """A request for a description and a description that suits it."""
    if chance(rng, P_DETAILED):
        own, others, style = DETAILED_PROMPT, DETAILED_PROMPTS, DETAILED
    else:
        own, others, style = BRIEF_PROMPT, BRIEF_PROMPTS, BRIEF
    prompt = own if chance(rng, 0.5) else pick(rng, others)
    return prompt, describe(scene, rng, style)


def training_scene(index: int) -> Scene:
    """The scene at a position of the training split, which the tasks' own training items avoid."""
    return sample_scene(scene_seed("train", "training", index))


def training_rng(index: int, epoch: int = 0) -> np.random.Generator:
    """The generator for that scene's texts; another epoch gives other texts."""
    return generator(scene_seed("train", "training", index), TEXT + epoch)

"""True answers to questions about a scene, in the forms that the tasks ask for.

The words are tables by kind of question; yes/no kinds have a row for either answer.
"""

from __future__ import annotations

import numpy as np

from lookback.scenes.questions import Question, sentence
from lookback.scenes.scene import pick

SHORT_ANSWERS: dict[str, tuple[str, ...]] = {
    "color": ("{color}.", "{color}.", "it is {color}."),
    "is_color yes": ("yes.",),
    "is_color no": ("no.",),
    "size": ("{size}.", "it is {size}."),
    "exists yes": ("yes.",),
    "exists no": ("no.",),
    "count": ("{number}.", "{counted}."),
    "is_count yes": ("yes.",),
    "is_count no": ("no.",),
    "where": ("{bare}.", "{place}.", "{place}."),
    "what": ("{thing}.", "{np}.", "{colored}."),
    "is_at yes": ("yes.",),
    "is_at no": ("no.",),
    "is_related yes": ("yes.",),
    "is_related no": ("no.",),
}

ANSWERS: dict[str, tuple[str, ...]] = {
    "color": (
        "the {ref} is {color}.",
        "it is {color}.",
        "the color of the {ref} is {color}.",
        "the {ref} in the picture is {color}.",
        "I can see that the {ref} is {color}.",
    ),
    "is_color yes": (
        "yes, the {ref} is {color}.",
        "yes, it is {color}.",
        "yes, the color of the {ref} is {color}.",
    ),
    "is_color no": (
        "no, the {ref} is {color}.",
        "no, it is {color}.",
        "no, the {ref} is not {asked}.",
        "no, the color of the {ref} is {color}.",
    ),
    "size": ("the {ref} is {size}.", "it is {size}.", "the {ref} looks {size}."),
    "exists yes": (
        "yes, there is {np}.",
        "yes, I can see {np}.",
        "yes, there is {colored} {place}.",
        "yes, the picture shows {colored}.",
        "yes, {colored} is {place}.",
    ),
    "exists no": (
        "no, there is no {words}.",
        "no, I cannot see {np}.",
        "no, the picture does not show {np}.",
        "no, there is no {words} in the picture.",
    ),
    "count": (
        "there {be} {counted}.",
        "I can see {counted}.",
        "there {be} {counted} in the picture.",
        "the picture shows {counted}.",
    ),
    "is_count yes": ("yes, there are {number} things.", "yes, I can see {number} things."),
    "is_count no": ("no, there are {number} things.", "no, I can see {number} things."),
    "where": (
        "the {ref} is {place}.",
        "it is {place}.",
        "the {ref} is {place} of the picture.",
        "the {ref} can be seen {place}.",
        "you can see the {ref} {place}.",
    ),
    "what": (
        "there is {colored}.",
        "it is {colored}.",
        "{colored} is {place}.",
        "there is {np} {place}.",
        "the thing {place} is {colored}.",
        "I can see {np} {place}.",
    ),
    "is_at yes": ("yes, the {ref} is {place}.", "yes, it is {place}."),
    "is_at no": (
        "no, the {ref} is {place}.",
        "no, it is {place}.",
        "no, the {ref} is not {asked}.",
    ),
    "is_related yes": ("yes, the {ref} is {relation} the {landmark}.",),
    "is_related no": (
        "no, the {ref} is {relation} the {landmark}.",
        "no, the {ref} is not {asked} the {landmark}.",
    ),
}

REASONED: dict[str, tuple[str, ...]] = {
    "is_color": ("the {ref} is {color}, so {verdict}.", "it is {color}, so {verdict}."),
    "exists": ("I can see {all}, so {verdict}.", "there {are} {all}, so {verdict}."),
    "is_count": (
        "there are {number} things, so {verdict}.",
        "I can see {number} things, so {verdict}.",
    ),
    "is_at": ("the {ref} is {place}, so {verdict}.", "it is {place}, so {verdict}."),
    "is_related": ("the {ref} is {relation} the {landmark}, so {verdict}.",),
}
"""Answers to yes/no questions that say what is seen before they say yes or no."""

SHORT_REASONED: dict[str, tuple[str, ...]] = {
    "is_color": ("{color}, so {verdict}.",),
    "exists": ("{all}, so {verdict}.",),
    "is_count": ("{number}, so {verdict}.",),
    "is_at": ("{bare}, so {verdict}.",),
    "is_related": ("{relation} the {landmark}, so {verdict}.",),
}

ABSENT: tuple[tuple[str, ...], tuple[str, ...]] = (
    ("there is no {category}.", "I cannot see {np}.", "there is no {category} in the picture."),
    ("none.", "there is none."),
)
"""Answers to a question about a thing that is not there: sentences, and short ones."""


def true_answer(
    question: Question, rng: np.random.Generator, short: bool, reasoned: bool = False
) -> str:
    """A true answer, as a word or two or as a sentence; to yes/no, perhaps with the reason."""
    answer = question.truth["answer"]
    if reasoned and question.kind in REASONED:
        forms = (SHORT_REASONED if short else REASONED)[question.kind]
        return sentence(pick(rng, forms).format(**question.slots, verdict=answer))
    table = SHORT_ANSWERS if short else ANSWERS
    key = f"{question.kind} {answer}" if answer in ("yes", "no") else question.kind
    return sentence(pick(rng, table[key]).format(**question.slots))

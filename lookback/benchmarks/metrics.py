"""Metrics by name: how good a response is, given the right answers.

    @lookback.metric("mine")
    def mine(response: str, answers: list[str]) -> float:
        "The share of the answers that the response names."
        return sum(answer in response for answer in answers) / len(answers)

Data of one's own name them (`own`). A metric gives a number from 0 (wrong) to 1 (right).
"""

from __future__ import annotations

import inspect
import numbers
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from lookback.benchmarks.answers import normalise, parse
from lookback.benchmarks.vqav2 import ENOUGH, agreement
from lookback.errors import error_line
from lookback.registry import Registry, is_interrupt
from lookback.scores.judges import chosen_letter
from lookback.scores.texts import normalised, word_f1, words_of

F = TypeVar("F", bound=Callable[..., Any])


class MetricError(ValueError):
    """A metric failed, or gave something else than a number from 0 to 1; it is named."""


@dataclass(frozen=True)
class Metric:
    """A registered metric.

    Attributes:
        function: from a response and the right answers to a number from 0 to 1.
        about: a line on what it is.
        needs_question: whether the function takes the question, too, as `question`.
    """

    name: str
    function: Callable[..., Any]
    about: str
    needs_question: bool = False

    @property
    def origin(self) -> object:
        return self.function

    def __call__(self, response: str, answers: Sequence[str], question: str = "") -> float:
        """Return the quality of a response; raise MetricError if the function gives none."""
        more = {"question": question} if self.needs_question else {}
        try:
            value = self.function(response, list(answers), **more)
        except BaseException as error:
            if not METRICS.own(self.name) or is_interrupt(error):  # its messages are ours already
                raise
            raise MetricError(f"metric {self.name!r} failed: {error_line(error)}") from error
        if not isinstance(value, (numbers.Real, np.bool_)) or not 0 <= float(value) <= 1:
            raise MetricError(
                f"metric {self.name!r} gave {value!r:.60}: it must give a number from 0 to 1"
            )
        return float(value)


def metric(name: str, *, needs_question: bool = False) -> Callable[[F], F]:
    """Register a function as the metric `name`; the first line of its docstring describes it.

    Args:
        name: what users call it.
        needs_question: whether it takes the question, too: `(response, answers, question)`.
    """

    def register(function: F) -> F:
        about = (inspect.getdoc(function) or "").split("\n")[0]
        METRICS.add(Metric(name, function, about, needs_question))
        return function

    return register


def _adopt(name: str, function: Any) -> None:
    metric(name)(function)


METRICS: Registry[Metric] = Registry(
    "metric",
    dict.fromkeys(("exact", "contains", "vqa", "token_f1", "choice"), __name__),
    _adopt,
)
DEFAULT = "exact"
"""What answers are compared by if nobody names a metric."""


@metric("exact")
def exact(response: str, answers: list[str]) -> float:
    """1 if the response is an answer; case, punctuation and articles do not matter."""
    return float(normalised(response) in map(normalised, answers))


@metric("contains")
def contains(response: str, answers: list[str]) -> float:
    """1 if an answer stands in the response, as whole words."""
    words = f" {normalised(response)} "
    return float(any(f" {normalised(answer)} " in words for answer in answers))


@metric("vqa", needs_question=True)
def vqa(response: str, answers: list[str], question: str) -> float:
    """VQA's accuracy: min(n / 3, 1) for n people who agree; n / people of fewer than three.

    All answers are put into the official form first; the official evaluation leaves them as they
    are if all are equal.
    """
    agreeing = sum(agreement(response, question, [normalise(answer) for answer in answers]))
    return min(agreeing / min(ENOUGH, len(answers)), 1.0)


@metric("token_f1")
def token_f1(response: str, answers: list[str]) -> float:
    """SQuAD's F1 of the words in response and answer, the best over the answers."""
    return max(word_f1(words_of(response), words_of(answer)) for answer in answers)


@metric("choice")
def choice(response: str, answers: list[str]) -> float:
    """Multiple choice: 1 if the response chooses a right letter, or says a right option's text.

    An answer is a letter ("B"), a text ("blue"), or both ("B) blue"). The letter decides if the
    response chooses one and the answers have one.
    """
    options = [_option(answer) for answer in answers]
    letters = {letter for letter, _ in options if letter}
    texts = {normalised(text) for _, text in options if text}
    own_letter, own_text = _option(response)
    if not own_letter and normalised(own_text) in texts:  # "Vitamin C" is no choice of C
        return 1.0
    chosen = chosen_letter(response)
    if chosen and letters:
        return float(chosen in letters)
    return float(
        not texts.isdisjoint({normalised(own_text), normalised(_option(parse(response))[1])})
    )


_OPTION = re.compile(r"\s*(?:\(([A-Za-z])\)|\[([A-Za-z])\]|([A-Z])[).:](?=\s|$)|([A-Za-z])$)")


def _option(text: str) -> tuple[str, str]:
    """Return the letter and the text of an option; each is empty if it is not there."""
    match = _OPTION.match(text.strip())
    if not match:
        return "", text.strip()
    return next(filter(None, match.groups())).upper(), text.strip()[match.end() :].strip()

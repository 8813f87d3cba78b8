"""Who decides whether a free-text response is correct: a language model, or rules for yes and no.

A verdict is "correct", "incorrect", "unclear" (the response leaves the answer open) or "unparsable"
(the judge could not read the response, or its own words could not be read). What each counts is the
benchmark's to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from lookback.benchmarks.yes_no import yes_or_no

Verdict = Literal["correct", "incorrect", "unclear", "unparsable"]
Progress = Callable[[int, int], None]  # done, of how many

URL_VARIABLE = "OPENAI_BASE_URL"
KEY_VARIABLE = "OPENAI_API_KEY"
MODEL_VARIABLE = "LOOKBACK_JUDGE_MODEL"


@dataclass(frozen=True)
class Case:
    """One response to judge.

    Attributes:
        question: what was asked.
        details: the reference answer, as a sentence.
        answer: the reference answer, "yes" or "no".
        prediction: the response.
    """

    question: str
    details: str
    answer: str
    prediction: str


class Judge(Protocol):
    """Gives verdicts.

    Attributes:
        name: shown beside every number that comes from it.
        notes: what a reader of those numbers should know.
    """

    name: str
    notes: list[str]

    def verdicts(self, cases: Sequence[Case]) -> list[Verdict]:
        """A verdict for each case, in their order."""


@runtime_checkable
class FallibleJudge(Protocol):
    """A judge that may be unable to judge a case, which then counts as unparsable."""

    def unjudged(self, cases: Sequence[Case]) -> dict[int, str]:
        """The positions of those it was unable to judge, each with the reason."""
        ...


class RuleJudge:
    """Compares a clear yes or no (`yes_no`) with the reference; understands nothing else."""

    name = "rules"

    def __init__(self) -> None:
        self.notes = [
            "judged by rules, which understand only a clear yes or no; the paper's judge is a "
            f"language model: name one with --judge-model or {MODEL_VARIABLE}"
        ]

    def verdicts(self, cases: Sequence[Case]) -> list[Verdict]:
        """By the response's yes or no; a response without one is unparsable."""
        return [self._verdict(case) for case in cases]

    def _verdict(self, case: Case) -> Verdict:
        said = yes_or_no(case.prediction)
        if said is None:
            return "unparsable"
        if said == "unsure":
            return "unclear"
        return "correct" if said == case.answer else "incorrect"


def get_judge(
    model: str | None = None,
    url: str | None = None,
    key: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    prompt: str | None = None,
) -> Judge:
    """A language model's judge if a model is named, else the rules.

    Args:
        model: its name at the endpoint; by default LOOKBACK_JUDGE_MODEL. A model must be named even
            if an endpoint is set: its answers may cost money.
        url: the OpenAI-compatible endpoint's base URL; by default OPENAI_BASE_URL, else OpenAI's.
        key: its API key; by default OPENAI_API_KEY. Not needed where a URL is given.
        cache: the file that keeps the model's replies; see `LanguageModelJudge`.
        progress: called after each reply.
        prompt: what the model is asked, one of `judge_prompts.PROMPTS`; by default "official".

    Raises:
        ValueError: an endpoint or a prompt is asked for without a model, OpenAI's endpoint
            without a key, or there is no such prompt.
    """
    model = model or os.environ.get(MODEL_VARIABLE)
    if not model:
        if url or key or cache or prompt:
            given = "endpoint" if url or key or cache else "prompt"
            raise ValueError(
                f"a judge's {given} is given but no model: "
                f"name one with --judge-model or {MODEL_VARIABLE}"
            )
        return RuleJudge()
    from lookback.benchmarks.judge_prompts import OFFICIAL
    from lookback.benchmarks.language_model_judge import LanguageModelJudge

    url = url or os.environ.get(URL_VARIABLE)
    key = key or os.environ.get(KEY_VARIABLE)
    if not (url or key):
        raise ValueError(
            f"the judge {model!r} has neither a URL nor a key: give an endpoint with --judge-url "
            f"or {URL_VARIABLE}, or OpenAI's key with --judge-key or {KEY_VARIABLE}"
        )
    return LanguageModelJudge(
        model, url=url, key=key, cache=cache, progress=progress, prompt=prompt or OFFICIAL
    )

"""What a language model is asked about a response, by name.

A verdict belongs to the prompt that it was given to: kept replies go by the prompt's whole text
(`reply_cache`), and a judge's name says which prompt it is asked with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lookback.benchmarks.judge import Case

OFFICIAL = "official"
"""The default."""

# HallusionBench's own rules, in our words: what does not conflict with the reference is correct.
_OFFICIAL = """You are a teacher who marks with care. Read the question, the reference answer and
the predicted answer until all three are clear to you, then decide whether the prediction is right.
If the prediction does not conflict with the reference answer, reply "correct".
If the prediction conflicts with the reference answer, reply "incorrect".
If it is unclear what the prediction answers, reply "unclear".

Question: {question}
Reference answer: {details}
Predicted answer: {prediction}

Reply with one word:"""

# The only one until version 0.2, letter for letter, so that replies kept then are found.
_BRIEF = """You grade an answer about an image that you cannot see. Go by the reference answer only.

Question: {question}
Reference answer: {details}
Answer to grade: {prediction}

Reply with one word:
correct - the answer to grade agrees with the reference answer;
incorrect - it contradicts the reference answer;
unclear - it leaves open what the answer is."""

PROMPTS = {OFFICIAL: _OFFICIAL, "brief": _BRIEF}


def check_prompt(name: str) -> str:
    """The name, if there is such a prompt.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in PROMPTS:
        raise ValueError(f"no judge's prompt named {name!r}; there are: {', '.join(PROMPTS)}")
    return name


def fill_prompt(case: Case, name: str = OFFICIAL) -> str:
    """What the model is asked about a case."""
    return PROMPTS[name].format(
        question=case.question, details=case.details, prediction=case.prediction.strip()
    )

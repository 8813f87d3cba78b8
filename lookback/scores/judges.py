"""Scores by asking the model itself: USC, and the model as a judge of pairs."""

from __future__ import annotations

import re
import string
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.errors import check_whole
from lookback.scores.base import scorer
from lookback.scores.formula import Array
from lookback.signals import MOST_NEW_TOKENS, Candidates

USC = """Several responses were given to this question about the image: {question}

{responses}

Evaluate the responses and select the one that is most consistent with the others, by majority \
consensus. Start your answer with "The most consistent response is Response X"."""

JUDGE = """Two responses were given to a question about the image.

Question: {question}

Response A: {first}

Response B: {second}

Which response is more accurate with respect to the image? Answer with a single letter, A or B."""


class UnreadReplies(UserWarning):
    """No reply of the model could be parsed: the scores are not its choice.

    Attributes:
        scorer: name of the scorer.
        asked: number of replies.
    """

    def __init__(self, scorer: str, asked: int) -> None:
        replies = f"none of the model's {asked} replies" if asked > 1 else "the model's reply"
        verb = "could be read" if asked > 1 else "could not be read"
        super().__init__(f"{scorer}: {replies} {verb} as a choice: this ranking is not the model's")
        self.scorer = scorer
        self.asked = asked


_CHOICE = re.compile(r"\bresponse\s*(?:[#:(\[*]+\s*)?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_DIGITS = 1000


def _check_usc(m: int, seed: int, max_new_tokens: int, **_: Any) -> None:
    if m < 1:
        raise ValueError(f"m = {m}: the number of runs must be at least 1")
    check_whole("seed", seed, 0)
    _check_length(max_new_tokens)


def _check_length(max_new_tokens: int, **_: Any) -> None:
    check_whole("max_new_tokens", max_new_tokens, 1, MOST_NEW_TOKENS)


@scorer(
    "usc",
    needs="model",
    uses=("generate",),
    joint=True,
    title="USC",
    color="#7c3aed",
    expected="shares",
    paper=3,
    validate=_check_usc,
)
def usc(
    candidates: Candidates, m: int = 3, image: bool = True, seed: int = 0, max_new_tokens: int = 64
) -> Array:
    """Universal Self-Consistency over m orders.

    The score is the share of runs, each in another order of the candidates, that pick it. A
    reply that names no response picks the first candidate. With image=False the model judges
    the texts alone.
    """
    asked = candidates.asked
    assert asked is not None
    n, question = len(candidates), asked.conversation.transcript
    rng = np.random.default_rng(seed)
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(m - 1))]
    prompts = [usc_prompt(question, [candidates[i].text for i in order]) for order in orders]
    replies = asked.replies(prompts, image=image, max_new_tokens=max_new_tokens)
    picks = np.zeros(n)
    choices = [usc_choice(reply, n) for reply in replies]
    for order, choice in zip(orders, choices, strict=True):
        picks[0 if choice is None else order[choice]] += 1
    _warn_unread("usc", choices)
    return picks / m


@scorer(
    "judge",
    needs="model",
    uses=("generate",),
    joint=True,
    title="Judge",
    color="#4b5563",
    validate=_check_length,
)
def judge(candidates: Candidates, image: bool = True, max_new_tokens: int = 16) -> Array:
    """Pairwise judge: N - 1 games, the winner stays.

    The score is the number of the last game won. A reply that chooses neither leaves the
    winner so far in place. With image=False the model judges the texts alone.
    """
    asked = candidates.asked
    assert asked is not None
    scores = np.zeros(len(candidates))
    winner, choices = 0, []
    for challenger in range(1, len(candidates)):
        first, second = candidates[winner].text, candidates[challenger].text
        prompt = judge_prompt(asked.conversation.transcript, first, second)
        (reply,) = asked.replies([prompt], image=image, max_new_tokens=max_new_tokens)
        choices.append(judge_choice(reply))
        if choices[-1] == 1:
            winner = challenger
        scores[winner] = challenger
    _warn_unread("judge", choices)
    return scores


def _warn_unread(scorer: str, choices: Sequence[int | None]) -> None:
    """Warn if there were replies and none was a choice."""
    if choices and all(choice is None for choice in choices):
        warnings.warn(UnreadReplies(scorer, len(choices)), stacklevel=2)


def usc_prompt(question: str, responses: Sequence[str]) -> str:
    """Return the prompt of Universal Self-Consistency: all responses, numbered from 0."""
    numbered = "\n\n".join(f"Response {i}: {text.strip()}" for i, text in enumerate(responses))
    return USC.format(question=question, responses=numbered)


def usc_choice(reply: str, n: int) -> int | None:
    """Return the number that the reply chooses: the last `Response <number>` below n, or None.

    A reply of nothing but one number counts too.
    """
    named = _CHOICE.findall(reply)
    if not named and _NUMBER.fullmatch(reply.strip(" .\n*")):
        named = [reply.strip(" .\n*")]
    # Python converts no number of thousands of digits, and none of them is a choice.
    valid = [int(number) for number in named if len(number) < _DIGITS and int(number) < n]
    return valid[-1] if valid else None


def judge_prompt(question: str, first: str, second: str) -> str:
    """Return the prompt of the pairwise judge: which of two responses is right."""
    return JUDGE.format(question=question, first=first.strip(), second=second.strip())


def judge_choice(reply: str) -> int | None:
    """Return 0 for A, 1 for B, None if the reply names neither or both without choosing.

    "Response B", "the answer is B" and a first line of "B" choose; the article "a" does not.
    """
    letter = chosen_letter(reply, "AB")
    return None if letter is None else "AB".index(letter)


LETTERS = string.ascii_uppercase
# What cannot follow the article: "A is right" and "A because ..." speak of the letter.
_NOT_A_NOUN = (
    "or|and|is|was|has|does|seems|looks|because|since|as|for|but|which|that|than|over|not|in|on|of"
)
_ARTICLE = re.compile(rf"\bA(?=\s+(?!(?:{_NOT_A_NOUN})\b)[a-z])")
_LIST = r"\s*[A-Z]\s*(?:,|or\b|and\b|$)"  # "A, B and C" chooses none of them
_FIRST = re.compile(
    rf"[\s*(\[\"']*([A-Za-z])(?:\s*[)\]]|[\s*\"']*(?:$|\n|[.:](?![A-Za-z])|,(?!{_LIST})))"
)
# Blanks stand in one place of a pattern only: two would share a long run of them in every way.
_OPTION = re.compile(r"\b(?:response|option|choice)\s*(?:[:(\[*]+\s*)?\(?([A-Z])\b", re.IGNORECASE)
_ANSWER = re.compile(r"\b(?:answer|is)\s*(?:[:(\[*\"']+\s*)?\(?([A-Z])\b(?!'[a-z])", re.IGNORECASE)
_ALONE = re.compile(r"(?<![A-Za-z])(?<![A-Za-z]')([A-Z])(?![A-Za-z]|'[A-Za-z])")


def chosen_letter(reply: str, letters: str = LETTERS) -> str | None:
    """Return the letter that a reply chooses, or None if it chooses none or several.

    In this order: a letter that is the first line, or stands before punctuation or a closing
    bracket at the beginning; the only one that is called a response, an option, a choice or the
    answer; the only one that stands alone.

    Args:
        reply: the text.
        letters: the capital letters that can be chosen; others are words like any.
    """
    text = reply.strip()
    first = _FIRST.match(text)
    if first and first[1].upper() in letters:
        return first[1].upper()
    without_article = _ARTICLE.sub("", text)
    called = {*_OPTION.findall(text), *_ANSWER.findall(without_article)}
    alone = set(_ALONE.findall(without_article)) - {"I"}
    for named in (called, alone):
        chosen = {letter for letter in named if letter in letters}  # capitals only
        if chosen:
            return chosen.pop() if len(chosen) == 1 else None
    return None

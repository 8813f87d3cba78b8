"""What the model is told when it judges responses, and how its reply is read."""

from __future__ import annotations

import re
from collections.abc import Sequence

USC = """Several responses were given to this question about the image: {question}

{responses}

Evaluate the responses and select the one that is most consistent with the others, by majority \
consensus. Start your answer with "The most consistent response is Response X"."""

JUDGE = """Two responses were given to a question about the image.

Question: {question}

Response A: {first}

Response B: {second}

Which response is more accurate with respect to the image? Answer with a single letter, A or B."""

_CHOICE = re.compile(r"\bresponse\s*[#:(\[*]*\s*(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_NAMED = re.compile(r"\b(?:response|answer|option|is)\s*[:(\[*]*\s*\(?([AB])\b", re.IGNORECASE)
_ARTICLE = re.compile(r"\bA(?=\s+(?!(?:or|and|is|was|has|seems|looks)\b)[a-z])")
_LETTER = re.compile(r"(?<![A-Za-z'])([AB])(?![A-Za-z'])")


def usc_prompt(question: str, responses: Sequence[str]) -> str:
    """Universal Self-Consistency: all responses, numbered from 0."""
    numbered = "\n\n".join(f"Response {i}: {text.strip()}" for i, text in enumerate(responses))
    return USC.format(question=question, responses=numbered)


def usc_choice(reply: str, n: int) -> int | None:
    """The number that the reply chooses: the last `Response <number>` below n, or None.

    A reply of nothing but one number counts too.
    """
    named = [int(number) for number in _CHOICE.findall(reply)]
    if not named and _NUMBER.fullmatch(reply.strip(" .\n*")):
        named = [int(reply.strip(" .\n*"))]
    valid = [number for number in named if number < n]
    return valid[-1] if valid else None


def judge_prompt(question: str, first: str, second: str) -> str:
    """Pairwise judge: which of two responses is right about the image."""
    return JUDGE.format(question=question, first=first.strip(), second=second.strip())


def judge_choice(reply: str) -> int | None:
    """0 for A, 1 for B; None if the reply names neither or both without choosing.

    "Response B", "the answer is B" and a first line of "B" choose; the article "a" does not.
    """
    text = reply.strip()
    head = re.match(r"[\s*(\[\"']*([ABab])[\s*)\]\"'.:,]*(?:$|\n|[.:,])", text)
    if head:
        return "AB".index(head[1].upper())
    named = {letter.upper() for letter in _NAMED.findall(text) if letter.isupper()}
    letters = named or set(_LETTER.findall(_ARTICLE.sub("", text)))
    return "AB".index(letters.pop()) if len(letters) == 1 else None

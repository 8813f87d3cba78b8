"""Who decides whether a free-text response is correct: a language model, or rules for yes and no.

A verdict is "correct", "incorrect", "unclear" (the response leaves the answer open) or "unparsable"
(the judge could not read the response, or its own words could not be read). What each counts is the
benchmark's to say.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, runtime_checkable
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from lookback.benchmarks.answers import yes_or_no

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
        """Return a verdict for each case, in their order."""


@runtime_checkable
class FallibleJudge(Protocol):
    """A judge that may be unable to judge a case, which then counts as unparsable."""

    def unjudged(self, cases: Sequence[Case]) -> dict[int, str]:
        """Return the positions of those that it was unable to judge, each with the reason."""
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
        return [self._verdict(case) for case in cases]

    def _verdict(self, case: Case) -> Verdict:
        answer = yes_or_no(case.prediction)
        if answer is None:
            return "unparsable"
        if answer == "unsure":
            return "unclear"
        return "correct" if answer == case.answer else "incorrect"


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
        prompt: what the model is asked, one of `PROMPTS`; by default "official".

    Raises:
        ValueError: an endpoint or a prompt is asked for without a model, OpenAI's endpoint
            without a key, or there is no such prompt.
    """
    model = model or os.environ.get(MODEL_VARIABLE)
    if not model:
        if url or key or cache or prompt:
            setting = "endpoint" if url or key or cache else "prompt"
            raise ValueError(
                f"a judge's {setting} is given but no model: "
                f"name one with --judge-model or {MODEL_VARIABLE}"
            )
        return RuleJudge()
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

# That of version 0.1, letter for letter: it asks for agreement.
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
    """Return the name if there is such a prompt; raise ValueError, which lists them, if not."""
    if name not in PROMPTS:
        raise ValueError(f"no judge's prompt named {name!r}; there are: {', '.join(PROMPTS)}")
    return name


def fill_prompt(case: Case, name: str = OFFICIAL) -> str:
    return PROMPTS[name].format(
        question=case.question, details=case.details, prediction=case.prediction.strip()
    )


OPENAI_URL = "https://api.openai.com/v1"
HIDDEN = "***"
_PORTS = {"http": 80, "https": 443}
SHORTEST = 4
"""Characters of a secret: hiding shorter ones would only garble words."""


class Endpoint:
    """An OpenAI-compatible endpoint.

    Args:
        url: its base URL.
        key: its API key; None where it needs none.

    Raises:
        ValueError: the URL is none, or the key cannot be sent; the message shows no secret.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url.strip()
        self.key = (key or "").strip() or None
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
        except ValueError:
            good = False
        if not good or re.search(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]", self.url):
            raise ValueError(
                f"the judge's URL {_without_secrets(self.url, self.key)!r} is none: write "
                f"http://host:port/v1, or {OPENAI_URL}"
            )
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):
            raise ValueError(
                "the judge's key has a character that cannot be sent (a line break, a letter with "
                "an accent): give the key alone"
            )

    @cached_property
    def shown(self) -> str:
        """The URL without anything secret; the same for the same endpoint."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        port = "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
        return self.hide(f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}/")

    def hide(self, text: str) -> str:
        """Return a text with every spelling of the key, and of the URL's secrets, replaced."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    @cached_property
    def _secrets(self) -> list[str]:
        """Longest first, so that no part of one is left."""
        parts = urlsplit(self.url)
        named = [self.key or "", unquote(parts.password or parts.username or "")]
        named += [value for _, value in parse_qsl(parts.query)]
        if parts.username or parts.password:
            pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
            named.append(base64.b64encode(pair.encode()).decode())
        spelled = {
            spelling
            for secret in named
            if len(secret) >= SHORTEST
            for spelling in (
                *(secret, quote(secret, safe=""), quote(secret), quote_plus(secret)),
                *(json.dumps(secret)[1:-1], repr(secret)[1:-1]),
            )
        }
        return sorted(spelled, key=len, reverse=True)


def _without_secrets(url: str, key: str | None) -> str:
    """Return a URL, perhaps a broken one, without what stands where a secret could."""
    plain = re.sub(r"^([^/]*//)?[^/]*@", rf"\1{HIDDEN}@", url.partition("?")[0])
    return plain.replace(key, HIDDEN) if key else plain

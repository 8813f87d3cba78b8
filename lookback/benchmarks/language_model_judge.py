"""A language model as the judge, at any OpenAI-compatible endpoint.

Asks in parallel, asks again with growing pauses when the endpoint is busy, slow or broken, and
keeps every reply on disk (`reply_cache`): a second run asks only what the first got no answer to.
What cannot be had in the end is an error, never a verdict.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookback.benchmarks.judge import Case, Progress, Verdict
from lookback.benchmarks.reply_cache import ReplyCache, content_key, default_cache

if TYPE_CHECKING:
    import openai

PROMPT = """You grade an answer about an image that you cannot see. Go by the reference answer only.

Question: {question}
Reference answer: {details}
Answer to grade: {prediction}

Reply with one word:
correct - the answer to grade agrees with the reference answer;
incorrect - it contradicts the reference answer;
unclear - it leaves open what the answer is."""

LONGEST_PAUSE = 60.0  # seconds
_LABEL = re.compile(r"\b(not correct|incorrect|correct|unclear)\b")


class JudgeError(OSError):
    """The endpoint cannot be used, or did not answer after all attempts."""


class BrokenReply(ValueError):
    """The endpoint answered, but not with a chat completion that has text."""


class LanguageModelJudge:
    """A `Judge` that asks a language model.

    Args:
        model: its name at the endpoint.
        url: the endpoint's base URL; None for OpenAI's own.
        key: its API key; endpoints of one's own often need none.
        cache: the file that keeps the replies; None for `reply_cache.default_cache`.
        workers: how many requests are under way at once.
        attempts: how often a request is made before giving up.
        pause: seconds before the second attempt, doubled for each further one; an endpoint that
            names a longer time is heard.
        timeout: seconds until an attempt counts as failed.
        progress: called after each reply with the number done and the number to do.
    """

    def __init__(
        self,
        model: str,
        url: str | None = None,
        key: str | None = None,
        cache: str | os.PathLike[str] | None = None,
        workers: int = 8,
        attempts: int = 6,
        pause: float = 1.0,
        timeout: float = 60.0,
        progress: Progress | None = None,
    ) -> None:
        self.name = model
        self.notes: list[str] = []
        self.cache = ReplyCache(Path(cache).expanduser() if cache else default_cache())
        self._client = _client(url, key, timeout)
        self._workers, self._attempts, self._pause = workers, attempts, pause
        self._progress = progress
        self._options: dict[str, Any] = {"temperature": 0}
        self._stop = threading.Event()

    def verdicts(self, cases: Sequence[Case]) -> list[Verdict]:
        """A verdict for each case; what is asked twice, here or in an earlier run, is asked once.

        Raises:
            JudgeError: the endpoint refused, or kept failing. Replies that came are kept.
        """
        prompts = [prompt(case) for case in cases]
        keys = [content_key(self.name, text) for text in prompts]
        missing = {
            key: text
            for key, text in zip(keys, prompts, strict=True)
            if self.cache.get(key) is None
        }
        self._ask_all(missing)
        return [parse_verdict(self.cache.get(key) or "") for key in keys]

    def _ask_all(self, missing: dict[str, str]) -> None:
        self._stop.clear()
        with ThreadPoolExecutor(self._workers) as pool:
            asked = [pool.submit(self._ask_and_keep, key, text) for key, text in missing.items()]
            try:
                for done, future in enumerate(as_completed(asked), start=1):
                    future.result()
                    if self._progress:
                        self._progress(done, len(asked))
            except BaseException:  # also an interruption: nobody should wait for the rest
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _ask_and_keep(self, key: str, text: str) -> None:
        self.cache.add(key, self.name, self._ask(text))

    def _ask(self, text: str) -> str:
        """The model's reply, after as many attempts as it takes and is allowed."""
        import openai

        broken = (
            openai.APIConnectionError,  # timeouts too
            openai.APIResponseValidationError,
            json.JSONDecodeError,
            BrokenReply,
        )
        failure: Exception | None = None
        for attempt in range(self._attempts):
            if attempt and self._stop.wait(self._wait(attempt, failure)):
                break
            options = self._options
            try:
                return self._attempt(text, options)
            except broken as error:
                failure = error
            except openai.APIStatusError as error:
                failure = error
                if error.status_code == 400 and "temperature" in str(error) and options:
                    self._options = {}  # some models take no temperature but their own
                elif error.status_code not in (408, 409, 429) and error.status_code < 500:
                    raise JudgeError(
                        f"the judge {self.name!r} at {self._client.base_url} refused: {error}"
                    ) from error
        raise JudgeError(
            f"the judge {self.name!r} at {self._client.base_url} gave no answer in "
            f"{self._attempts} attempts, the last: {failure}. What it answered before is kept in "
            f"{str(self.cache.path)!r}: run again to go on"
        ) from failure

    def _attempt(self, text: str, options: dict[str, Any]) -> str:
        reply = self._client.chat.completions.create(
            model=self.name, messages=[{"role": "user", "content": text}], **options
        )
        try:
            content: str | None = reply.choices[0].message.content
        except (AttributeError, IndexError, TypeError):
            raise BrokenReply(f"a reply that is no chat completion: {str(reply)[:80]!r}") from None
        if not content or not content.strip():
            raise BrokenReply("an empty reply")
        return content

    def _wait(self, attempt: int, failure: Exception | None) -> float:
        """Seconds before the next attempt: doubled each time, or as long as the endpoint asks."""
        wait = self._pause * float(2 ** (attempt - 1)) * random.uniform(0.75, 1.25)
        response = getattr(failure, "response", None)
        asked = response.headers.get("retry-after", "") if response is not None else ""
        if re.fullmatch(r"\d+(\.\d+)?", asked):
            wait = max(wait, float(asked))
        return min(wait, LONGEST_PAUSE)


def prompt(case: Case) -> str:
    """What the model is asked about a case."""
    return PROMPT.format(
        question=case.question, details=case.details, prediction=case.prediction.strip()
    )


def parse_verdict(reply: str) -> Verdict:
    """The verdict in a model's reply.

    A reply that begins with a verdict, or has one alone, says it. Anything else is unparsable.
    """
    text = _without_thoughts(reply).lower().strip(" \n\t*\"'`.#")
    labels: list[Verdict] = ["incorrect" if x == "not correct" else x for x in _LABEL.findall(text)]
    if labels and (len(set(labels)) == 1 or _LABEL.match(text)):
        return labels[0]
    return "unparsable"


def _without_thoughts(reply: str) -> str:
    """The reply without `<think>...</think>`; one that is not closed stays."""
    kept, done = [], 0
    while (start := reply.find("<think>", done)) >= 0:
        end = reply.find("</think>", start)
        if end < 0:
            break  # and none of those behind it is closed
        kept.append(reply[done:start])
        done = end + len("</think>")
    return "".join([*kept, reply[done:]])


def _client(url: str | None, key: str | None, timeout: float) -> openai.OpenAI:
    try:
        import openai
    except ImportError:
        raise ImportError(
            "a language model as the judge needs the openai package: "
            "pip install 'lookback-vlm[judge]'"
        ) from None
    return openai.OpenAI(base_url=url, api_key=key or "none", timeout=timeout, max_retries=0)

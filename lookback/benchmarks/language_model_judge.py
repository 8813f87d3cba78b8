"""A language model as the judge: an OpenAI-compatible endpoint, asked once for each prompt.

Attempts are counted here and not by the openai client, whose retries know neither a reply that is
broken though its status is 200 (half of the JSON, a gateway's page, no text) nor a limit of time
for a whole reply, however it drips.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import threading
from collections.abc import Coroutine, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lookback.benchmarks.judge import (
    OFFICIAL,
    OPENAI_URL,
    URL_VARIABLE,
    Case,
    Endpoint,
    FallibleJudge,
    Progress,
    Verdict,
    check_prompt,
    fill_prompt,
)
from lookback.io.json_values import check_text, half_character

if TYPE_CHECKING:
    import openai


T = TypeVar("T")
CACHE_VARIABLE = "LOOKBACK_CACHE"
LONGEST_PAUSE = 60.0  # seconds
_LABEL = re.compile(r"\b(not correct|incorrect|correct|unclear)\b")


def run_in_background(work: Coroutine[Any, Any, T]) -> T:
    """Return the work's result; whatever interrupts the caller ends the work too.

    The caller's thread only waits, so that Ctrl-C is heard at once; and it may have an event loop
    already, as in a notebook.
    """
    future = asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))
    try:
        return future.result()
    finally:
        future.cancel()  # does nothing to work that is done


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Return the event loop of a process; a forked child has none of its parent's threads."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=f"lookback-{process}", daemon=True).start()
    return loop


def default_cache() -> Path:
    """Return the file used unless another is named, in LOOKBACK_CACHE or the user's cache."""
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder).expanduser() / "judge.jsonl"
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "lookback" / "judge.jsonl"


def content_key(endpoint: str, model: str, prompt: str) -> str:
    """Return a hash of the question, the model and the endpoint's URL without its secrets."""
    return hashlib.sha256(json.dumps([endpoint, model, prompt]).encode()).hexdigest()


class ReplyCache:
    """Replies by content key, in memory and in a file to which several processes may append.

    Args:
        path: the file; it and its folder are made when the first reply is added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._replies: dict[str, str] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                entry = json.loads(line)
                self._replies[entry["key"]] = str(entry["reply"])
            except (ValueError, TypeError, KeyError, RecursionError):
                continue  # torn, by a process that was killed, or not ours

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, key: str) -> str | None:
        return self._replies.get(key)

    def add(self, key: str, model: str, reply: str) -> None:
        """Keep a reply; on return it is in the file."""
        line = json.dumps({"key": key, "model": model, "reply": reply}, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab", buffering=0) as file:
            # A break before it as well: the last line may be torn. In JSON's own spelling of half a
            # character, which UTF-8 cannot hold.
            file.write(f"\n{line}\n".encode("utf-8", "backslashreplace"))
        self._replies[key] = reply


class JudgeError(OSError):
    """The endpoint cannot be used, or did not answer after all attempts."""


class BrokenReply(ValueError):
    """The endpoint answered, but not with a chat completion that has text."""


class LanguageModelJudge(FallibleJudge):
    """A `Judge` that asks a language model.

    Args:
        model: its name at the endpoint.
        url: the endpoint's base URL; None for OPENAI_BASE_URL, else OpenAI's own.
        key: its API key; endpoints of one's own often need none.
        cache: the file that keeps the replies; None for `default_cache`.
        workers: how many requests are under way at once.
        attempts: how often a request is made before giving up.
        pause: seconds before the second attempt, doubled for each further one; an endpoint that
            names a longer time is heard.
        timeout: seconds until an attempt counts as failed, unless its whole reply is there.
        progress: called after each reply with the number done and the number to do.
        prompt: what it is asked, one of `judge.PROMPTS`; the judge's name says which.

    Raises:
        ValueError: the URL, the key or the model's name cannot be sent, or there is no such prompt.
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
        prompt: str = OFFICIAL,
    ) -> None:
        self.model, self._prompt = check_text(model, "the judge's model"), check_prompt(prompt)
        self.name = f"{model} ({prompt} prompt)"
        self.notes: list[str] = []
        self.cache = ReplyCache(Path(cache).expanduser() if cache else default_cache())
        self.endpoint = Endpoint(url or os.environ.get(URL_VARIABLE) or OPENAI_URL, key)
        self._client = _client(self.endpoint, timeout)
        self._workers, self._attempts, self._pause = workers, attempts, pause
        self._timeout, self._progress = timeout, progress
        self._options: dict[str, Any] = {"temperature": 0}

    def verdicts(self, cases: Sequence[Case]) -> list[Verdict]:
        """Return a verdict for each case; no prompt is asked twice, here or in a later run.

        Raises:
            JudgeError: the endpoint refused, or kept failing. Replies that came are kept.
        """
        prompts = [fill_prompt(case, self._prompt) for case in cases]
        missing = {
            text: None
            for text in prompts
            if half_character(text) is None and self._reply(text) is None
        }
        if missing:
            run_in_background(self._ask_all(list(missing)))
        return [parse_verdict(self._reply(text) or "") for text in prompts]

    def unjudged(self, cases: Sequence[Case]) -> dict[int, str]:
        """Return cases with half a character, which is no text, in the prompt or in the reply."""
        reasons = {}
        for number, case in enumerate(cases):
            text = fill_prompt(case, self._prompt)
            if (half := half_character(text)) is not None:
                reasons[number] = f"half a character, {half!r}, cannot be shown to the judge"
            elif (half := half_character(self._reply(text) or "")) is not None:
                reasons[number] = f"the judge's reply has half a character, {half!r}"
        return reasons

    def _key(self, prompt: str) -> str:
        return content_key(self.endpoint.shown, self.model, prompt)

    def _reply(self, prompt: str) -> str | None:
        return self.cache.get(self._key(prompt))

    async def _ask_all(self, prompts: list[str]) -> None:
        gate, done = asyncio.Semaphore(self._workers), 0

        async def ask(text: str) -> None:
            nonlocal done
            async with gate:
                reply = await self._ask(text)
            self.cache.add(self._key(text), self.model, self.endpoint.hide(reply))
            done += 1
            if self._progress:
                self._progress(done, len(prompts))

        try:
            async with asyncio.TaskGroup() as group:
                for text in prompts:
                    group.create_task(ask(text))
        except BaseExceptionGroup as failures:  # the first ends all others
            raise failures.exceptions[0] from None

    async def _ask(self, text: str) -> str:
        """Return the model's reply, after as many attempts as it takes and is allowed."""
        import openai

        broken = (
            openai.APIConnectionError,
            openai.APIResponseValidationError,
            *(ValueError, RecursionError),  # no JSON; a BrokenReply
        )
        failure: Exception | None = None
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(self._wait(attempt, failure))
            options = self._options
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._attempt(text, options)
            except TimeoutError:
                failure = BrokenReply(f"no whole reply in {self._timeout:g} seconds")
            except broken as error:
                failure = error
            except openai.APIStatusError as error:
                failure = error
                if error.status_code == 400 and "temperature" in str(error) and options:
                    self._options = {}  # some models take no temperature but their own
                elif error.status_code not in (408, 409, 429) and error.status_code < 500:
                    raise self._error(f"refused: {error}") from None
        raise self._error(
            f"gave no answer in {self._attempts} attempts, the last: {failure}. What it answered "
            f"before is kept in {str(self.cache.path)!r}: run again to go on"
        )

    def _error(self, what: str) -> JudgeError:
        """Return an error of the endpoint, without its cause, which may quote the key."""
        where = f"the judge {self.model!r} at {self.endpoint.shown}"
        error = JudgeError(f"{where} {self.endpoint.hide(what)}")
        error.__suppress_context__ = True
        return error

    async def _attempt(self, text: str, options: dict[str, Any]) -> str:
        reply = await self._client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": text}], **options
        )
        try:
            content = reply.choices[0].message.content
        except (AttributeError, IndexError, TypeError):
            shown = self.endpoint.hide(str(reply))[:80]
            raise BrokenReply(f"a reply that is no chat completion: {shown!r}") from None
        if not isinstance(content, str) or not content.strip():
            raise BrokenReply("a reply without text")
        return content

    def _wait(self, attempt: int, failure: Exception | None) -> float:
        """Return seconds before the next attempt: doubled each time, or what the endpoint says."""
        wait = self._pause * float(2 ** (attempt - 1)) * random.uniform(0.75, 1.25)
        response = getattr(failure, "response", None)
        retry_after = response.headers.get("retry-after", "") if response is not None else ""
        if re.fullmatch(r"\d+(\.\d+)?", retry_after):
            wait = max(wait, float(retry_after))
        return min(wait, LONGEST_PAUSE)


def parse_verdict(reply: str) -> Verdict:
    """Return the verdict in a model's reply.

    A reply that begins with a verdict, or has one alone, says it. Anything else is unparsable, and
    so is what is no whole text.
    """
    if half_character(reply) is not None:
        return "unparsable"
    text = _without_thoughts(reply).lower().strip(" \n\t*\"'`.#")
    labels: list[Verdict] = ["incorrect" if x == "not correct" else x for x in _LABEL.findall(text)]
    if labels and (len(set(labels)) == 1 or _LABEL.match(text)):
        return labels[0]
    return "unparsable"


def _without_thoughts(reply: str) -> str:
    """Return the reply without `<think>...</think>`; one that is not closed stays."""
    kept, done = [], 0
    while (start := reply.find("<think>", done)) >= 0:
        end = reply.find("</think>", start)
        if end < 0:
            break  # and none of those behind it is closed
        kept.append(reply[done:start])
        done = end + len("</think>")
    return "".join([*kept, reply[done:]])


def _client(endpoint: Endpoint, timeout: float) -> openai.AsyncOpenAI:
    try:
        import openai
    except ImportError:
        raise ImportError(
            "a language model as the judge needs the openai package: "
            "pip install 'lookback-vlm[judge]'"
        ) from None
    return openai.AsyncOpenAI(
        base_url=endpoint.url, api_key=endpoint.key or "none", timeout=timeout, max_retries=0
    )

"""The model that lmms-eval asks: N candidates per document, of which the best one is the answer.

Two classes, since lmms-eval has two kinds of requests: `LookBack` is given messages, and
`LookBackSimple` (`--force_simple`) a text and what is shown with it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from lookback.conversations import Conversation
from lookback.engines import Engine, load, optional_settings, require
from lookback.errors import error_line
from lookback.integrations.lmms_eval import missing
from lookback.integrations.lmms_eval.tasks import (
    Log,
    Settings,
    conversation_of,
    simple_conversation,
    source_of,
    unsupported_kwargs,
)
from lookback.runs.sources import item_seed
from lookback.scores.base import best_first, get_scorer
from lookback.scores.formula import Array
from lookback.signals import Asked, Candidates

try:
    from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts
    from lmms_eval.api.model import lmms
    from loguru import logger
except ModuleNotFoundError as error:
    raise missing(error) from error


@dataclass(frozen=True)
class Request:
    """A document to be answered, for the so-manieth time, with its task's settings."""

    task: str
    split: str
    doc_id: int
    repeat: int
    read: Callable[[], Conversation]
    generation: dict[str, Any]

    @property
    def id(self) -> str:
        """Its name, of which its seed is made: the order of documents does not matter."""
        again = f"#{self.repeat}" if self.repeat else ""
        return f"{self.task}/{self.split}/{self.doc_id}{again}"


class LookBack(lmms):
    """Best-of-N for tasks that give messages.

    Args:
        given: as `--model_args` names them; see `Settings`.

    Raises:
        ValueError: a setting is wrong.
    """

    is_simple = False

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.settings = settings = Settings.of(given)
        self._rank = int(os.environ.get("RANK", 0))
        self._world_size = int(os.environ.get("WORLD_SIZE", 1))
        self.log = None if settings.log is None else Log(settings.log, self._rank)
        self.engine: Engine = load(
            settings.pretrained, engine=settings.engine, quiet=True, **self._loading()
        )
        uses = ("sample", *get_scorer(settings.scorer).uses)
        require(self.engine, uses, f"scorer {settings.scorer!r}")
        self._said: set[str] = set()

    def _loading(self) -> dict[str, Any]:
        """How the engine is loaded: of several processes each takes a GPU of its own."""
        loading = self.settings.loading
        chosen = {"device", "device_map"} & loading.keys()
        if self._world_size > 1 and not chosen and torch.cuda.is_available():
            loading["device"] = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        return loading

    @property
    def device(self) -> torch.device:
        """Where lmms-eval puts the numbers that processes exchange."""
        return torch.device(self.engine.identity().device or "cpu")

    def clean(self) -> None:
        """Let go of the model: lmms-eval asks no more."""
        del self.engine
        super().clean()

    def generate_until(self, requests: list[Instance]) -> list[Any]:
        """The best of N for each document, in their order."""
        results: list[Any] = [GenerationResult(text="") for _ in requests]
        asked = list(self._requests(requests))
        size = max(self.settings.batch_size, self.engine.in_flight)
        bar = tqdm(total=len(asked), desc="LookBack", disable=self.rank != 0)
        for start in range(0, len(asked), size):
            batch = asked[start : start + size]
            for (place, request), found in zip(
                batch, self._draw([r for _, r in batch]), strict=True
            ):
                results[place] = self._answer(request, *found)
                bar.update()
        bar.close()
        return results

    def _requests(self, requests: Sequence[Instance]) -> Iterator[tuple[int, Request]]:
        """What is to be answered, with its place; none that only makes processes even."""
        times: Counter[tuple[Any, ...]] = Counter()
        for place, one in enumerate(requests):
            if (one.metadata or {}).get("__padding_only__"):
                continue
            read, generation, *where = self._read(one.args)
            doc_id, task, split = where
            document = (task, split, doc_id)
            repeat, times[document] = times[document], times[document] + 1
            yield place, Request(task, split, doc_id, repeat, read, dict(generation or {}))

    def _read(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """How a request's conversation is read; its generation_kwargs, doc_id, task and split."""
        _, to_messages, generation, doc_id, task, split = args

        def read() -> Conversation:
            return conversation_of(to_messages(self.task_dict[task][split][doc_id]))

        return read, generation, doc_id, task, split

    def _draw(self, requests: Sequence[Request]) -> list[tuple[Conversation, Candidates]]:
        """The candidates of some documents, drawn in one call."""
        conversations, questions = [], []
        for one in requests:
            self._warn(one)
            conversation = _named(one.id, one.read)
            conversations.append(conversation)
            questions.append(
                {
                    "messages": conversation.messages(),
                    "source": source_of(conversation),
                    "seed": item_seed(self.settings.seed, one.id),
                    **_named(one.id, partial(self.settings.sampling, one.generation)),
                }
            )
        more = optional_settings(self.engine, {"prune": self.settings.pruning})
        found = self.engine.sample_many(questions, return_exceptions=True, **more)
        for one, candidates in zip(requests, found, strict=True):
            if isinstance(candidates, Exception):
                raise RuntimeError(f"{one.id}: {error_line(candidates)}") from candidates
        return list(zip(conversations, found, strict=True))

    def _warn(self, request: Request) -> None:
        """Say, once per task, what nothing is done with."""
        passed_over = unsupported_kwargs(request.generation)
        if passed_over and request.task not in self._said:
            self._said.add(request.task)
            logger.warning(f"{request.task}: LookBack does nothing with {passed_over}")

    def _answer(self, request: Request, conversation: Conversation, found: Candidates) -> Any:
        """The best candidate as lmms-eval wants it; an empty text if all of them are empty."""
        scores = np.full(len(found), np.nan)
        best: int | None = 0
        if self.settings.n > 1:
            known = replace(found, asked=Asked(self.engine, conversation))
            scores = _named(request.id, partial(self._scores, known))
            best = None if np.isnan(scores).all() else int(best_first(scores)[0])
        if self.log is not None:
            self.log.write(request, found, scores, best)
        drawn = sum(len(one.token_ids) for one in found)
        counts = TokenCounts(input_tokens=len(found.prompt_ids), output_tokens=drawn)
        return GenerationResult("" if best is None else found[best].text, counts)

    def _scores(self, candidates: Candidates) -> Array:
        return candidates.scores(self.settings.scorer, **self.settings.scorer_settings)

    def loglikelihood(self, requests: list[Instance]) -> list[Any]:
        """The loss of each given response, and whether the model would say it by itself.

        The loss is the mean of -log p over its tokens, as all models of lmms-eval give it: its
        multiple-choice tasks take the choice with the *lowest*, whatever the base class says. Each
        pair is wrapped: lmms-eval 0.7.3 makes a bare one a text, which its tasks cannot read.
        """
        results: list[Any] = []
        bar = tqdm(total=len(requests), desc="LookBack", disable=self.rank != 0)
        for key, group in groupby(requests, key=_document):
            if len(key) != 4:
                raise NotImplementedError(
                    "a response without a question and a document (acc_mutual_info) is not scored"
                )
            given = list(group)
            losses = _named(f"{key[1]}/{key[2]}/{key[3]}", partial(self._losses, given))
            results += [GenerationResult(pair) for pair in losses]
            bar.update(len(given))
        bar.close()
        return results

    def _losses(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Of several responses to one document: one prefill, and what is greedy drawn once."""
        context, _, to_visual, doc_id, task, split = requests[0].args
        document = self.task_dict[task][split][doc_id]
        targets = [one.args[1] for one in requests]
        texts = [one if isinstance(one, str) else str(one(document)) for one in targets]
        asked = simple_conversation(context, to_visual(document))
        what: dict[str, Any] = {"messages": asked.messages(), "source": source_of(asked)}
        # The blank between question and answer of a plain text: here the answer has its own turn.
        scored = self.engine.score(responses=[text.strip() for text in texts], **what)
        longest = max(len(one.token_ids) for one in scored)
        [greedy] = self.engine.sample(n=1, temperature=0.0, max_new_tokens=longest, **what)
        said = greedy.token_ids.tolist()
        return [
            (-float(one.log_prob.mean()), one.token_ids.tolist() == said[: len(one.token_ids)])
            for one in scored
        ]

    def generate_until_multi_round(self, requests: list[Instance]) -> list[Any]:
        """Refused.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "LookBack answers a document once; tasks of several rounds "
            "(generate_until_multi_round) ask anew after each answer"
        )


class LookBackSimple(LookBack):
    """Best-of-N for tasks that give a text and what is shown with it."""

    is_simple = True

    def _read(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        context, generation, to_visual, doc_id, task, split = args

        def read() -> Conversation:
            return simple_conversation(context, to_visual(self.task_dict[task][split][doc_id]))

        return read, generation, doc_id, task, split


def _document(request: Instance) -> tuple[Any, ...]:
    """Requests with the same context about the same document are scored together."""
    context, _, *more = request.args
    return (context, *more[-2:], more[-3]) if len(more) == 4 else (context,)


def _named(document: str, work: Callable[[], Any]) -> Any:
    """What `work` gives; what it raises names the document.

    Raises:
        RuntimeError: from what was raised.
    """
    try:
        return work()
    except Exception as error:
        raise RuntimeError(f"{document}: {error_line(error)}") from error

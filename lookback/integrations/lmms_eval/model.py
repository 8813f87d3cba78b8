"""The model that lmms-eval asks: N candidates per document, of which the best one is the answer.

Two classes, since lmms-eval has two kinds of requests: `LookBack` is given messages, and
`LookBackSimple` (`--force_simple`) a text and what is shown with it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
        repeat = f"#{self.repeat}" if self.repeat else ""
        return f"{self.task}/{self.split}/{self.doc_id}{repeat}"


class LookBack(lmms):
    """Best-of-N for tasks that give messages.

    Args:
        model_args: as `--model_args` names them; see `Settings`.

    Raises:
        ValueError: a setting is wrong.
    """

    is_simple = False

    def __init__(self, **model_args: Any) -> None:
        super().__init__()
        self.settings = settings = Settings.of(model_args)
        self._rank = int(os.environ.get("RANK", 0))
        self._world_size = int(os.environ.get("WORLD_SIZE", 1))
        self.log = None if settings.log is None else Log(settings.log, self._rank)
        loading = settings.loading
        chosen = {"device", "device_map"} & loading.keys()
        if self._world_size > 1 and not chosen and torch.cuda.is_available():
            # Each process takes a GPU of its own.
            loading["device"] = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        self.engine: Engine = load(
            settings.pretrained, engine=settings.engine, quiet=True, **loading
        )
        uses = ("sample", *get_scorer(settings.scorer).uses)
        require(self.engine, uses, f"scorer {settings.scorer!r}")
        self._warned: set[str] = set()

    @property
    def device(self) -> torch.device:
        """Where lmms-eval puts the numbers that processes exchange."""
        return torch.device(self.engine.identity().device or "cpu")

    def clean(self) -> None:
        """Release the model: lmms-eval asks no more."""
        del self.engine
        super().clean()

    def generate_until(self, requests: list[Instance]) -> list[Any]:
        """Return the best of N for each document, in their order."""
        results: list[Any] = [GenerationResult(text="") for _ in requests]
        places = list(self._requests(requests))
        size = max(self.settings.batch_size, self.engine.in_flight)
        with tqdm(total=len(places), desc="LookBack", disable=self.rank != 0) as bar:
            for start in range(0, len(places), size):
                batch = places[start : start + size]
                drawn = self._sample([request for _, request in batch])
                for (place, request), candidates in zip(batch, drawn, strict=True):
                    results[place] = self._answer(request, candidates)
                    bar.update()
        return results

    def _requests(self, requests: Sequence[Instance]) -> Iterator[tuple[int, Request]]:
        """Yield what is to be answered, with its place; none that only makes processes even."""
        times: Counter[tuple[Any, ...]] = Counter()
        for place, instance in enumerate(requests):
            if (instance.metadata or {}).get("__padding_only__"):
                continue
            read, generation, doc_id, task, split = self._read(instance.args)
            document = (task, split, doc_id)
            repeat, times[document] = times[document], times[document] + 1
            yield place, Request(task, split, doc_id, repeat, read, dict(generation or {}))

    def _read(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what reads a conversation; its generation_kwargs, doc_id, task and split."""
        _, to_messages, generation, doc_id, task, split = args

        def read() -> Conversation:
            return conversation_of(to_messages(self.task_dict[task][split][doc_id]))

        return read, generation, doc_id, task, split

    def _sample(self, requests: Sequence[Request]) -> list[Candidates]:
        """Return the candidates of some documents, drawn in one call."""
        conversations, questions = [], []
        for request in requests:
            self._warn(request)
            with _named(request.id):
                conversation = request.read()
                sampling = self.settings.sampling(request.generation)
            conversations.append(conversation)
            questions.append(
                {
                    "messages": conversation.messages(),
                    "source": source_of(conversation),
                    "seed": item_seed(self.settings.seed, request.id),
                    **sampling,
                }
            )
        more = optional_settings(self.engine, {"prune": self.settings.pruning})
        drawn = self.engine.sample_many(questions, return_exceptions=True, **more)
        for i, (request, candidates) in enumerate(zip(requests, drawn, strict=True)):
            with _named(request.id):
                if isinstance(candidates, Exception):
                    raise candidates
            drawn[i] = replace(candidates, asked=Asked(self.engine, conversations[i]))
        return drawn

    def _warn(self, request: Request) -> None:
        """Say, once per task, which of its settings have no effect."""
        ignored = unsupported_kwargs(request.generation)
        if ignored and request.task not in self._warned:
            self._warned.add(request.task)
            logger.warning(f"{request.task}: LookBack does nothing with {ignored}")

    def _answer(self, request: Request, candidates: Candidates) -> Any:
        """Return the best candidate; an empty text if all of them are empty."""
        scores = np.full(len(candidates), np.nan)
        best: int | None = 0
        if self.settings.n > 1:
            with _named(request.id):
                scores = candidates.scores(self.settings.scorer, **self.settings.scorer_settings)
            best = None if np.isnan(scores).all() else int(best_first(scores)[0])
        if self.log is not None:
            self.log.write(request, candidates, scores, best)
        drawn = sum(len(candidate.token_ids) for candidate in candidates)
        counts = TokenCounts(input_tokens=len(candidates.prompt_ids), output_tokens=drawn)
        return GenerationResult("" if best is None else candidates[best].text, counts)

    def loglikelihood(self, requests: list[Instance]) -> list[Any]:
        """Return the loss of each given response, and whether the model would say it by itself.

        The loss is the mean of -log p over its tokens, as all models of lmms-eval give it: its
        multiple-choice tasks take the choice with the *lowest*, whatever the base class says. Each
        pair is wrapped: lmms-eval 0.7.3 makes a bare one a text, which its tasks cannot read.
        """
        results: list[Any] = []
        with tqdm(total=len(requests), desc="LookBack", disable=self.rank != 0) as bar:
            for key, group in groupby(requests, key=_document):
                if len(key) != 4:
                    raise NotImplementedError(
                        "a response without a question and a document (acc_mutual_info) is not "
                        "scored"
                    )
                instances = list(group)
                with _named(f"{key[1]}/{key[2]}/{key[3]}"):
                    results += [GenerationResult(pair) for pair in self._losses(instances)]
                bar.update(len(instances))
        return results

    def _losses(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Score several responses to one document: one prefill, and one greedy response drawn."""
        context, _, to_visual, doc_id, task, split = requests[0].args
        document = self.task_dict[task][split][doc_id]
        targets = [instance.args[1] for instance in requests]
        texts = [text if isinstance(text, str) else str(text(document)) for text in targets]
        asked = simple_conversation(context, to_visual(document))
        what: dict[str, Any] = {"messages": asked.messages(), "source": source_of(asked)}
        # The blank between question and answer of a plain text: here the answer has its own turn.
        scored = self.engine.score(responses=[text.strip() for text in texts], **what)
        longest = max(len(response.token_ids) for response in scored)
        [greedy] = self.engine.sample(n=1, temperature=0.0, max_new_tokens=longest, **what)
        greedy_ids = greedy.token_ids.tolist()
        return [
            (
                -float(response.log_prob.mean()),
                response.token_ids.tolist() == greedy_ids[: len(response.token_ids)],
            )
            for response in scored
        ]

    def generate_until_multi_round(self, requests: list[Instance]) -> list[Any]:
        """Raise NotImplementedError."""
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
    """Return a key that requests with the same context about the same document share."""
    context, _, *more = request.args
    return (context, *more[-2:], more[-3]) if len(more) == 4 else (context,)


@contextmanager
def _named(document: str) -> Iterator[None]:
    """Raise a RuntimeError that names the document from whatever is raised within."""
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{document}: {error_line(error)}") from error

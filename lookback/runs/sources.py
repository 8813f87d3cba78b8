"""Where an item's candidates come from: the model, a file, or a run.

(The *source* of candidates, here, is not the source that A_t is measured on.)
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.benchmarks.responses import check_response, read_line, response_of
from lookback.engines import Ability, optional_settings
from lookback.io.files import read_bytes
from lookback.io.storage import AnyPath, to_path
from lookback.runs.items import Question
from lookback.runs.layout import RunError
from lookback.runs.manifest import MANIFEST
from lookback.runs.plan import Plan
from lookback.runs.run import Run
from lookback.signals import Candidate, Candidates, Signals

if TYPE_CHECKING:
    from lookback.benchmarks.base import Item
    from lookback.conversations import Conversation
    from lookback.engines import Engine

_NONE = np.empty(0, np.float32)
NOTHING = Signals(np.empty(0, np.int64), (), _NONE, _NONE, _NONE, _NONE)


@dataclass(frozen=True)
class ProvidedResponse:
    """A response that exists already."""

    text: str
    token_ids: list[int] | None = None  # where it is known how the model spelled it
    finish: str = "given"  # why it ended

    @property
    def empty(self) -> bool:
        """Whether there is nothing to score."""
        return not (self.text.strip() if self.token_ids is None else self.token_ids)


class CandidateSource(ABC):
    """Candidates for each item."""

    identity: dict[str, Any] | None = None  # in the run's settings; None if the model draws them
    uses: Ability = "score"  # the engine's ability that it needs

    def places(self, items: Sequence[Item]) -> list[int]:
        """Return the positions of the items that it has candidates for."""
        return list(range(len(items)))

    def in_flight(self, engine: Engine) -> int:
        """Return how many items to ask an engine about at once."""
        return 1

    @abstractmethod
    def answers(
        self, engine: Engine, questions: Sequence[Question], report: Callable[[int], None]
    ) -> list[Candidates | Exception]:
        """Return the candidates of some items with their signals, or what went wrong with an item.

        `report` is called with how many more are answered.
        """


class DrawnCandidates(CandidateSource):
    """The model draws them; each item has a seed of its own, each candidate a random stream."""

    uses: Ability = "sample"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def in_flight(self, engine: Engine) -> int:
        return self.plan.in_flight or engine.in_flight

    def answers(
        self, engine: Engine, questions: Sequence[Question], report: Callable[[int], None]
    ) -> list[Candidates | Exception]:
        plan, reported = self.plan, 0

        def progress(done: int, total: int) -> None:
            nonlocal reported
            report(done - reported)
            reported = done

        requests = [
            {
                "messages": question.conversation.messages(),
                "source": question.source,
                "seed": item_seed(plan.seed, question.item.id),
            }
            for question in questions
        ]
        return engine.sample_many(
            requests,
            return_exceptions=True,
            progress=progress,
            n=plan.n,
            temperature=plan.temperature,
            top_p=plan.top_p,
            max_new_tokens=plan.max_new_tokens,
            **optional_settings(engine, {"by_layer": plan.by_layer, "prune": plan.prune}),
        )


class ScoredResponses(CandidateSource):
    """Responses that exist already: scored item after item, each with one prefill."""

    by_layer: bool

    @abstractmethod
    def responses_to(self, engine: Engine, question: Question) -> list[ProvidedResponse]:
        """Return the responses to an item."""

    def answers(
        self, engine: Engine, questions: Sequence[Question], report: Callable[[int], None]
    ) -> list[Candidates | Exception]:
        answers: list[Candidates | Exception] = []
        for question in questions:
            try:
                answers.append(
                    scored(
                        engine,
                        question.conversation,
                        question.source,
                        self.responses_to(engine, question),
                        self.by_layer,
                    )
                )
            except Exception as error:
                answers.append(error)
            report(1)
        return answers


class FileResponses(ScoredResponses):
    """Responses of any other engine: {"id": ..., "responses": [...]} or "response" per line.

    Lines with one response each may repeat an id; they are taken in order. `"token_ids"` beside
    them, or in responses that are {"text": ..., "token_ids": [...]}, say how they are spelled.
    """

    def __init__(self, path: AnyPath, by_layer: bool) -> None:
        self.path, self.by_layer = path, by_layer
        data = read_bytes(path)
        self.identity = {"sha256": hashlib.sha256(data).hexdigest()}
        self.responses: dict[str, list[ProvidedResponse]] = {}
        for number, line in enumerate(data.decode("utf-8-sig").split("\n"), start=1):
            if line.strip():
                try:
                    name, responses = read_entry(line)
                except ValueError as error:
                    raise RunError(f"{str(path)!r}, line {number}: {error}") from None
                self.responses.setdefault(name, []).extend(responses)
        if not self.responses:
            raise RunError(f"{str(path)!r} has no responses")

    def places(self, items: Sequence[Item]) -> list[int]:
        known = {name: p for p, item in enumerate(items) for name in (item.id, *item.aliases)}
        unknown = [name for name in self.responses if name not in known]
        if unknown:
            raise RunError(
                f"{str(self.path)!r} has responses to {len(unknown)} ids that are not among the "
                f"{len(items)} items, e.g. {unknown[0]!r}: is it for another benchmark or split?"
            )
        return sorted({known[name] for name in self.responses})

    def responses_to(self, engine: Engine, question: Question) -> list[ProvidedResponse]:
        item = question.item
        names = [name for name in (item.id, *item.aliases) if name in self.responses]
        return [response for name in names for response in self.responses[name]]


class RunResponses(ScoredResponses):
    """The candidates of another run: token by token if it is the same model's, else their texts."""

    def __init__(self, path: AnyPath, by_layer: bool) -> None:
        self.run, self.by_layer = Run(path), by_layer
        if not self.run.finished:
            status = "not finished" if self.run.manifest.status == "running" else "without answers"
            raise RunError(f"{str(path)!r} is {status}: run its command again first")
        self.identity = {"run": self.run.id}
        self.rows = {int(place): row for row, place in enumerate(self.run.places)}

    def places(self, items: Sequence[Item]) -> list[int]:
        return sorted(self.rows)

    def responses_to(self, engine: Engine, question: Question) -> list[ProvidedResponse]:
        same = self.run.model == engine.name
        return [
            ProvidedResponse(c.text, c.token_ids.tolist() if same else None, c.finish)
            for c in self.run.candidates(self.rows[question.place])
        ]


def get_source(plan: Plan) -> CandidateSource:
    """Return the source that a plan names; raise RunError if it cannot be read."""
    if plan.candidates is None:
        return DrawnCandidates(plan)
    path = to_path(plan.candidates)
    if path.is_dir():
        return RunResponses(path, plan.by_layer)
    if not path.is_file():
        raise RunError(f"no candidates in {str(path)!r}: neither a file nor a run ({MANIFEST})")
    return FileResponses(path, plan.by_layer)


def scored(
    engine: Engine,
    conversation: Conversation,
    source: str | None,
    responses: Sequence[ProvidedResponse],
    by_layer: bool = False,
) -> Candidates:
    """Return responses with their signals; an empty one stays, with none."""
    filled = [response for response in responses if not response.empty]
    if not filled:
        raise ValueError(f"all {len(responses)} responses are empty: there is nothing to score")
    candidates = engine.score(
        messages=conversation.messages(),
        source=source,
        responses=[r.text if r.token_ids is None else r.token_ids for r in filled],
        **optional_settings(engine, {"by_layer": by_layer}),
    )
    recorded = iter(candidates)
    layers = candidates[0].by_layer
    nothing = NOTHING if layers is None else replace(NOTHING, by_layer=layers[:0])
    items = [
        Candidate(index, r.text, nothing if r.empty else next(recorded).signals, r.finish)
        for index, r in enumerate(responses)
    ]
    return replace(candidates, items=tuple(items))


def read_entry(line: str) -> tuple[str, list[ProvidedResponse]]:
    """Return the id and the responses of a line of a file."""
    name, entry = read_line(line)
    if "responses" not in entry:
        return name, [_check_provided(response_of(entry), entry.get("token_ids"))]
    responses = entry["responses"]
    if not isinstance(responses, list) or not all(isinstance(r, (str, dict)) for r in responses):
        raise ValueError(f"the responses are no list of strings but {responses!r:.60}")
    all_ids = entry.get("token_ids")
    if all_ids is None:
        return name, [_check_provided(*_text_and_ids(response)) for response in responses]
    if not isinstance(all_ids, list) or len(all_ids) != len(responses):
        count = len(all_ids) if isinstance(all_ids, list) else f"{all_ids!r:.60}"
        raise ValueError(f"token_ids are not a list per response: {count} for {len(responses)}")
    if not all(isinstance(response, str) for response in responses):
        raise ValueError("token_ids stand beside the responses: these must then be strings")
    return name, [_check_provided(text, ids) for text, ids in zip(responses, all_ids, strict=True)]


def _text_and_ids(response: str | dict[str, Any]) -> tuple[Any, Any]:
    if isinstance(response, str):
        return response, None
    return response.get("text"), response.get("token_ids")


def _check_provided(text: Any, token_ids: Any) -> ProvidedResponse:
    check_response(text)
    if token_ids is None:
        return ProvidedResponse(text)
    if not isinstance(token_ids, list) or not all(
        type(one) is int and one >= 0 for one in token_ids
    ):
        raise ValueError(f"token_ids are no list of whole numbers from 0 but {token_ids!r:.60}")
    if text.strip() and not token_ids:
        raise ValueError(f"token_ids are empty, and the response is not: {text!r:.60}")
    return ProvidedResponse(text, token_ids)


def item_seed(seed: int, item: str) -> int:
    """Return the seed of one item's candidates: another item, or another seed, draws others."""
    digest = hashlib.sha256(f"{seed}/{item}".encode()).digest()
    return int.from_bytes(digest[:6], "big")

"""What a worker does: shard after shard, each table of it that does not exist yet."""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from lookback.engines import optional_settings, require
from lookback.errors import error_line
from lookback.io.storage import AnyPath
from lookback.runs.executors import EngineInfo
from lookback.runs.items import Questions
from lookback.runs.layout import (
    SHARD,
    TOKEN_COLUMNS,
    RunError,
    read_candidates,
    read_table,
)
from lookback.runs.looks import empty_row, find_picks, look_row
from lookback.runs.manifest import Manifest
from lookback.runs.records import read_record, write_shard
from lookback.runs.sources import get_source
from lookback.scores.base import get_scorer
from lookback.signals import BY_LAYER, PRUNED, Asked, Candidates

if TYPE_CHECKING:
    from lookback.conversations import Images, Messages
    from lookback.engines import Engine
    from lookback.runs.plan import Plan

Report = Callable[[int], None]
"""Called with how many more pieces of work are done; a piece is one table of one item."""


@dataclass(frozen=True)
class Answer:
    """The answer to the question about an item."""

    head: dict[str, Any]  # the item's row, with its error if it failed
    candidates: Candidates | None  # None if it failed
    timing: dict[str, Any]


class Worker:
    """A benchmark's items and a model, ready to work on any shard once the model is loaded."""

    def __init__(self, plan: Plan, folder: AnyPath) -> None:
        self.folder, self.plan = folder, plan
        self.benchmark = plan.load_benchmark()
        self.items = plan.items(self.benchmark)
        self.source = get_source(plan)
        self.places = self.source.places(self.items)  # in ascending order
        if not self.places:
            raise RunError(f"there are no items to ask about in {plan.benchmark}")
        self.questions = Questions(plan, self.items, self.places)
        self.columns = (*TOKEN_COLUMNS, BY_LAYER) if plan.by_layer else TOKEN_COLUMNS
        self.engine: Engine

    def load(self) -> EngineInfo:
        """Load the model; anything else that can be wrong was said before."""
        self.engine = self.plan.load_engine()
        require(self.engine, [self.source.uses], "this run")
        require(self.engine, ["look"] if self.plan.look else [], "--look")
        optional_settings(self.engine, {"by_layer": self.plan.by_layer, "prune": self.plan.prune})
        for name in self.plan.scorers:
            base = name.partition("@")[0]
            require(self.engine, get_scorer(base).uses, f"scorer {base!r}")
        return EngineInfo.of(self.engine, self.in_flight)

    @property
    def shards(self) -> list[int]:
        """The shards that have items."""
        return sorted({place // SHARD for place in self.places})

    def places_in(self, shards: Collection[int]) -> list[int]:
        """Return the positions of the items of some shards."""
        places: list[int] = []
        for shard in shards:
            first, end = (bisect_left(self.places, n * SHARD) for n in (shard, shard + 1))
            places += self.places[first:end]
        return places

    @property
    def in_flight(self) -> int:
        """How many items its engine is asked about at once."""
        return self.source.in_flight(self.engine)

    def work(self, shards: Sequence[int], report: Report) -> None:
        """Make every table of some shards that is not recorded."""
        records = {shard: read_record(self.folder, shard) for shard in shards}
        self._sample([shard for shard, record in records.items() if record is None], report)
        for shard, record in records.items():
            places = self.places_in([shard])
            for name in self.plan.scorers:
                if record is None or f"scores/{name}" not in record.tables:
                    self._score(name, shard, places, report)
            if self.plan.look and (record is None or "looks" not in record.tables):
                self._look(shard, places, report)

    def _sample(self, shards: Sequence[int], report: Report) -> None:
        """Ask about all items of some shards, and write each shard when it has all of its own."""
        places = self.places_in(shards)
        last = {place // SHARD: place for place in places}
        answers: list[Answer] = []
        for first in range(0, len(places), self.in_flight):
            for answer in self.sample(places[first : first + self.in_flight], report):
                answers.append(answer)
                place = answer.head["item"]
                if place == last[place // SHARD]:
                    self._write_sampled(place // SHARD, answers)
                    answers = []

    def _write_sampled(self, shard: int, answers: Sequence[Answer]) -> None:
        rows = [row for a in answers for row in self.rows(a.head["item"], a.candidates)]
        tables = {"candidates": rows, "items": [answer.head for answer in answers]}
        timings = {"sample": [answer.timing for answer in answers]}
        write_shard(self.folder, shard, tables, timings, by_layer=self.plan.by_layer)

    def sample(self, places: Sequence[int], report: Report = lambda count: None) -> list[Answer]:
        """Ask about some items in one call; what goes wrong with one is its error.

        Where several are in flight nobody can tell how long each took: each has its share.
        """
        began = time.perf_counter()
        heads = {place: self._head(place) for place in places}
        questions = []
        for place, head in heads.items():
            try:
                questions.append(self.questions.of(place))
                head["image"] = questions[-1].image
            except Exception as error:
                head["error"] = _message(error)
                report(1)
        reported = 0

        def progress(count: int) -> None:
            nonlocal reported
            reported += count
            report(count)

        answers = self.source.answers(self.engine, questions, progress) if questions else []
        if reported < len(questions):  # an engine need not report
            report(len(questions) - reported)
        by_place = {q.place: answer for q, answer in zip(questions, answers, strict=True)}
        ms = _since(began) / len(places)
        return [self._answer(head, by_place.get(place), ms) for place, head in heads.items()]

    def _head(self, place: int) -> dict[str, Any]:
        """Return an item's row before it is asked about."""
        item = self.items[place]
        return {
            "item": place,
            "id": item.id,
            "question": item.question,
            "messages": None,
            "source": None,
            "truth": json.dumps(item.truth, ensure_ascii=False, sort_keys=True),
            "image": None,
            "prompt_ids": None,
            "error": None,
        }

    def _answer(
        self, head: dict[str, Any], result: Candidates | Exception | None, ms: float
    ) -> Answer:
        """Complete an item's row; the result is None if it could not be asked about."""
        candidates = None
        if isinstance(result, Exception):
            head["error"] = _message(result)
        elif head["error"] is None:
            try:
                candidates = _check_candidates(result)
                head["prompt_ids"] = candidates.prompt_ids.tolist()
                head["messages"] = json.dumps(candidates.messages, ensure_ascii=False)
                if candidates.source is not None:
                    head["source"] = json.dumps(candidates.source)
            except Exception as error:
                head["error"], candidates = _message(error), None
        return Answer(head, candidates, _timing("sample", head["item"], len(candidates or ()), ms))

    def rows(self, place: int, candidates: Candidates | None) -> list[dict[str, Any]]:
        """Return the rows of an item's candidates with their quality; a pruned one has none.

        Raises:
            Exception: the benchmark's judge failed, as it would for all others.
        """
        if candidates is None:
            return []
        whole = [c.text for c in candidates if c.finish != PRUNED]
        texts = list(dict.fromkeys(whole))  # many say the same: judge it once
        quality = dict(zip(texts, self.benchmark.scores(self.items[place], texts), strict=True))
        return [
            {
                "item": place,
                "index": c.index,
                "text": c.text,
                "finish": c.finish,
                "quality": math.nan if c.finish == PRUNED else quality[c.text],
                "length": len(c.signals),
            }
            | {name: _lists(getattr(c, name)) for name in self.columns}
            for c in candidates
        ]

    def _score(self, name: str, shard: int, places: list[int], report: Report) -> None:
        """Write the scores of one scorer for the items of a shard that have candidates."""
        manifest = Manifest.read(self.folder)
        items = read_table(self.folder, "items", shard, ("item", "error")).to_pylist()
        failed = {row["item"] for row in items if row["error"] is not None}
        # A run continues with the settings it was started with, whatever the defaults are now.
        settings = get_scorer(name.partition("@")[0]).changed_since(manifest.scorers[name])
        rows, timings = [], []
        for place in places:
            if place in failed:
                continue
            candidates = read_candidates(self.folder, manifest, place)
            row, timing = self.score(name, place, candidates, settings)
            rows.append(row)
            timings.append(timing)
            report(1)
        write_shard(self.folder, shard, {f"scores/{name}": rows}, {name: timings})

    def score(
        self,
        name: str,
        place: int,
        candidates: Candidates,
        settings: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return an item's row of scores, and how long it took; what goes wrong is its error."""
        base, _, count = name.partition("@")
        engine = ReplyRecorder(self.engine)
        row: dict[str, Any] = {"item": place, "scores": None, "replies": None, "error": None}
        first = candidates[: int(count) if count else None]
        began = time.perf_counter()
        try:
            question = self.questions.of(place)
            asked = replace(first, asked=Asked(cast("Engine", engine), question.conversation))
            values = get_scorer(base).of_candidates(asked, settings or {}).tolist()
            row["scores"] = [None if math.isnan(value) else value for value in values]
            row["replies"] = engine.replies
        except Exception as error:
            row["error"] = _message(error)
        return row, _timing(name, place, len(first), _since(began))

    def _look(self, shard: int, places: list[int], report: Report) -> None:
        """Write where the picks of those items of a shard looked that are among the first."""
        manifest = Manifest.read(self.folder)
        items = read_table(self.folder, "items", shard, ("item", "error")).to_pylist()
        fine = {row["item"] for row in items if row["error"] is None}
        wanted = fine.intersection(self.places[: self.plan.look])
        rows: list[dict[str, Any]] = []
        timings = []
        for place in places:
            if place in wanted:
                began = time.perf_counter()
                looks = self.look(place, read_candidates(self.folder, manifest, place))
                timings.append(_timing("look", place, len(looks), _since(began)))
                rows += looks
            report(1)
        write_shard(self.folder, shard, {"looks": rows}, {"look": timings})

    def look(self, place: int, candidates: Candidates) -> list[dict[str, Any]]:
        """Return the rows of an item's picks; what goes wrong is their error."""
        rows = []
        for index, methods in sorted(find_picks(candidates).items()):
            try:
                question = self.questions.of(place)
                look = self.engine.look(
                    messages=question.conversation.messages(),
                    response=candidates[index],
                    source=question.source,
                )
                rows.append(look_row(place, index, methods, look, question.conversation))
            except Exception as error:
                rows.append(empty_row(place, index, methods) | {"error": _message(error)})
        return rows


class ReplyRecorder:
    """An engine that keeps its replies."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.replies: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(
        self,
        image: Images = None,
        prompts: str | Sequence[str] | None = None,
        *,
        messages: Messages | None = None,
        **settings: Any,
    ) -> list[str]:
        replies = self._engine.generate(image, prompts, messages=messages, **settings)
        self.replies += replies
        return replies


def _lists(values: Any) -> Any:
    """Return what Arrow takes: it knows arrays of one dimension alone."""
    return list(values) if getattr(values, "ndim", 1) > 1 else values


def _check_candidates(result: object) -> Candidates:
    if not isinstance(result, Candidates):
        raise TypeError(f"the engine gave {type(result).__name__}, not Candidates")
    return result


def _since(began: float) -> float:
    """Return the milliseconds since then."""
    return 1000 * (time.perf_counter() - began)


def _timing(stage: str, place: int, responses: int, ms: float) -> dict[str, Any]:
    return {"stage": stage, "item": place, "responses": responses, "ms": round(ms, 3)}


def _message(error: Exception) -> str:
    return error_line(error)[:1000]

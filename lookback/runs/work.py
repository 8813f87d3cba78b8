"""The work of one process on a run: shard after shard, each table of it if it is not there yet."""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from lookback.engines import optional_settings, require
from lookback.runs.layout import (
    SHARD,
    TOKEN_COLUMNS,
    RunError,
    read_table,
    replacing,
)
from lookback.runs.looks import empty_row, find_picks, look_row
from lookback.runs.manifest import Manifest
from lookback.runs.records import read_record, write_shard
from lookback.runs.sources import Questions, get_source
from lookback.runs.stored import read_candidates
from lookback.scores.base import get_scorer
from lookback.signals import BY_LAYER, PRUNED, Asked, Candidates
from lookback.storage import AnyPath

if TYPE_CHECKING:
    from lookback.conversations import Images, Messages
    from lookback.engines import Engine
    from lookback.runs.plan import Plan

Report = Callable[[str, int, "str | None"], None]
"""Called after each piece of work with its stage, the item's position, and its error if any."""


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

    def load(self) -> Worker:
        """Load the model; what else can be wrong was said before, at once."""
        self.engine = self.plan.load_engine()
        require(self.engine, [self.source.uses], "this run")
        require(self.engine, ["look"] if self.plan.look else [], "--look")
        optional_settings(self.engine, {"by_layer": self.plan.by_layer, "prune": self.plan.prune})
        for name in self.plan.scorers:
            base = name.partition("@")[0]
            require(self.engine, get_scorer(base).uses, f"scorer {base!r}")
        return self

    @property
    def shards(self) -> list[int]:
        """Those that have items."""
        return sorted({place // SHARD for place in self.places})

    def places_in(self, shards: Collection[int]) -> list[int]:
        """The positions of the items of some shards."""
        found: list[int] = []
        for shard in shards:
            first, end = (bisect_left(self.places, one * SHARD) for one in (shard, shard + 1))
            found += self.places[first:end]
        return found

    def work(self, shard: int, report: Report) -> None:
        """Make every table of a shard that is not recorded."""
        places = self.places_in([shard])
        record = read_record(self.folder, shard)
        if record is None:
            self._sample(shard, places, report)
        for name in self.plan.scorers:
            if record is None or f"scores/{name}" not in record.tables:
                self._score(name, shard, places, report)
        if self.plan.look and (record is None or "looks" not in record.tables):
            self._look(shard, places, report)

    def _sample(self, shard: int, places: list[int], report: Report) -> None:
        rows: list[dict[str, Any]] = []
        heads, timings = [], []
        for place in places:
            head, candidates, timing = self.sample(place)
            heads.append(head)
            timings.append(timing)
            rows += self.rows(place, candidates)
            report("sample", place, head["error"])
        self._write_timings("sample", shard, timings)
        tables = {"candidates": rows, "items": heads}
        write_shard(self.folder, shard, tables, by_layer=self.plan.by_layer)

    def sample(self, place: int) -> tuple[dict[str, Any], Candidates | None, dict[str, Any]]:
        """An item's row, its candidates, and how long it took; what goes wrong is its error."""
        item = self.items[place]
        head = {
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
        began, candidates = time.perf_counter(), None
        try:
            question = self.questions.of(place)
            head["image"] = question.image
            candidates = self.source.candidates(self.engine, question, place, item)
            head["prompt_ids"] = candidates.prompt_ids.tolist()
            head["messages"] = json.dumps(candidates.messages, ensure_ascii=False)
            if candidates.source is not None:
                head["source"] = json.dumps(candidates.source)
        except Exception as error:
            head["error"] = _message(error)
        return head, candidates, _timing("sample", place, len(candidates or ()), began)

    def rows(self, place: int, candidates: Candidates | None) -> list[dict[str, Any]]:
        """The rows of an item's candidates with their quality; a pruned one has none.

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
        """Scores of one scorer for the items of a shard that have candidates."""
        manifest = Manifest.read(self.folder)
        items = read_table(self.folder, "items", shard, ("item", "error")).to_pylist()
        failed = {row["item"] for row in items if row["error"] is not None}
        rows, timings = [], []
        for place in places:
            if place in failed:
                continue
            row, timing = self.score(name, place, read_candidates(self.folder, manifest, place))
            rows.append(row)
            timings.append(timing)
            report(name, place, row["error"])
        self._write_timings(name, shard, timings)
        write_shard(self.folder, shard, {f"scores/{name}": rows})

    def score(
        self, name: str, place: int, candidates: Candidates
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """An item's row of scores, and how long it took; what goes wrong is its error."""
        base, _, count = name.partition("@")
        engine = Listening(self.engine)
        row: dict[str, Any] = {"item": place, "scores": None, "replies": None, "error": None}
        first = candidates[: int(count) if count else None]
        began = time.perf_counter()
        try:
            question = self.questions.of(place)
            asked = replace(first, asked=Asked(cast("Engine", engine), question.conversation))
            values = get_scorer(base).of_candidates(asked, {}).tolist()
            row["scores"] = [None if math.isnan(value) else value for value in values]
            row["replies"] = engine.replies
        except Exception as error:
            row["error"] = _message(error)
        return row, _timing(name, place, len(first), began)

    def _look(self, shard: int, places: list[int], report: Report) -> None:
        """Where the picks of those items of a shard looked that are among the first."""
        manifest = Manifest.read(self.folder)
        items = read_table(self.folder, "items", shard, ("item", "error")).to_pylist()
        fine = {row["item"] for row in items if row["error"] is None}
        wanted = fine.intersection(self.places[: self.plan.look])
        rows: list[dict[str, Any]] = []
        timings = []
        for place in places:
            error = None
            if place in wanted:
                began = time.perf_counter()
                found = self.look(place, read_candidates(self.folder, manifest, place))
                timings.append(_timing("look", place, len(found), began))
                error = next((row["error"] for row in found if row["error"]), None)
                rows += found
            report("look", place, error)
        self._write_timings("look", shard, timings)
        write_shard(self.folder, shard, {"looks": rows})

    def look(self, place: int, candidates: Candidates) -> list[dict[str, Any]]:
        """The rows of an item's picks; what goes wrong is their error."""
        rows = []
        for index, methods in sorted(find_picks(candidates).items()):
            try:
                question = self.questions.of(place)
                found = self.engine.look(
                    messages=question.conversation.messages(),
                    response=candidates[index],
                    source=question.source,
                )
                rows.append(look_row(place, index, methods, found, question.conversation))
            except Exception as error:
                rows.append(empty_row(place, index, methods) | {"error": _message(error)})
        return rows

    def _write_timings(self, stage: str, shard: int, timings: list[dict[str, Any]]) -> None:
        path = self.folder / "timings" / f"{stage}-{shard:05d}.json"
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(timings), encoding="utf-8")


class Listening:
    """An engine that remembers what it replied."""

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
        """As the engine's."""
        replies = self._engine.generate(image, prompts, messages=messages, **settings)
        self.replies += replies
        return replies


def _lists(values: Any) -> Any:
    """What Arrow takes: it knows arrays of one dimension alone."""
    return list(values) if getattr(values, "ndim", 1) > 1 else values


def _timing(stage: str, place: int, responses: int, began: float) -> dict[str, Any]:
    took = 1000 * (time.perf_counter() - began)
    return {"stage": stage, "item": place, "responses": responses, "ms": round(took, 3)}


def _message(error: Exception) -> str:
    """One line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:1000]

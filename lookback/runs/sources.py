"""Where an item's candidates come from (the model, a file, a run), and which image is shown.

(The *source* of candidates, here, is not the source that A_t is measured on.)
"""

from __future__ import annotations

import hashlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.conversations import NO_SOURCE, Conversation
from lookback.engines import Ability, optional_settings
from lookback.io.files import read_bytes
from lookback.io.storage import AnyPath, to_path
from lookback.runs.given import Given, read_entry
from lookback.runs.layout import RunError
from lookback.runs.manifest import MANIFEST
from lookback.runs.plan import Plan
from lookback.runs.run import Run
from lookback.signals import Candidate, Candidates, Signals

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.benchmarks.base import Item
    from lookback.engines import Engine

_NONE = np.empty(0, np.float32)
NOTHING = Signals(np.empty(0, np.int64), (), _NONE, _NONE, _NONE, _NONE)


class Source(ABC):
    """Candidates for each item.

    Attributes:
        identity: its part of the run's settings; None if the model draws them.
        uses: what it asks of an engine.
    """

    identity: dict[str, Any] | None = None
    uses: Ability = "score"

    def places(self, items: Sequence[Item]) -> list[int]:
        """The positions of the items that it has candidates for."""
        return list(range(len(items)))

    def in_flight(self, engine: Engine) -> int:
        """How many items to ask an engine about at once."""
        return 1

    @abstractmethod
    def answers(
        self, engine: Engine, questions: Sequence[Question], report: Callable[[int], None]
    ) -> list[Candidates | Exception]:
        """The candidates of some items with their signals, or what went wrong with an item.

        Args:
            engine: is asked.
            questions: of the items.
            report: called with how many more are answered.
        """


class Drawn(Source):
    """The model draws them; each item has a seed of its own, each candidate a random stream."""

    uses: Ability = "sample"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def in_flight(self, engine: Engine) -> int:
        """As many as the plan says, else as the engine wants."""
        return self.plan.in_flight or engine.in_flight

    def answers(
        self, engine: Engine, questions: Sequence[Question], report: Callable[[int], None]
    ) -> list[Candidates | Exception]:
        """Draw them, all in one call."""
        plan, told = self.plan, 0

        def progress(done: int, total: int) -> None:
            nonlocal told
            report(done - told)
            told = done

        asked = [
            {
                "messages": one.conversation.messages(),
                "source": one.source,
                "seed": item_seed(plan.seed, one.item.id),
            }
            for one in questions
        ]
        return engine.sample_many(
            asked,
            return_exceptions=True,
            progress=progress,
            n=plan.n,
            temperature=plan.temperature,
            top_p=plan.top_p,
            max_new_tokens=plan.max_new_tokens,
            **optional_settings(engine, {"by_layer": plan.by_layer, "prune": plan.prune}),
        )


class Scored(Source):
    """Responses that exist already: scored item after item, each with one prefill."""

    by_layer: bool

    @abstractmethod
    def given(self, engine: Engine, question: Question) -> list[Given]:
        """The responses to an item."""

    def answers(
        self, engine: Engine, questions: Sequence[Question], report: Callable[[int], None]
    ) -> list[Candidates | Exception]:
        """Score them."""
        found: list[Candidates | Exception] = []
        for one in questions:
            try:
                given = self.given(engine, one)
                found.append(scored(engine, one.conversation, one.source, given, self.by_layer))
            except Exception as error:
                found.append(error)
            report(1)
        return found


class FromFile(Scored):
    """Responses of any other engine: {"id": ..., "responses": [...]} or "response" per line.

    Lines with one response each may repeat an id; they are taken in order. `"token_ids"` beside
    them, or in responses that are {"text": ..., "token_ids": [...]}, say how they are spelled.
    """

    def __init__(self, path: AnyPath, by_layer: bool) -> None:
        self.path, self.by_layer = path, by_layer
        data = read_bytes(path)
        self.identity = {"sha256": hashlib.sha256(data).hexdigest()}
        self.responses: dict[str, list[Given]] = {}
        for number, line in enumerate(data.decode("utf-8-sig").split("\n"), start=1):
            if line.strip():
                try:
                    name, said = read_entry(line)
                except ValueError as error:
                    raise RunError(f"{str(path)!r}, line {number}: {error}") from None
                self.responses.setdefault(name, []).extend(said)
        if not self.responses:
            raise RunError(f"{str(path)!r} has no responses")

    def places(self, items: Sequence[Item]) -> list[int]:
        """Of the items that the file has responses to."""
        known = {name: p for p, item in enumerate(items) for name in (item.id, *item.aliases)}
        unknown = [name for name in self.responses if name not in known]
        if unknown:
            raise RunError(
                f"{str(self.path)!r} has responses to {len(unknown)} ids that are not among the "
                f"{len(items)} items, e.g. {unknown[0]!r}: is it for another benchmark or split?"
            )
        return sorted({known[name] for name in self.responses})

    def given(self, engine: Engine, question: Question) -> list[Given]:
        """In the order of the file."""
        item = question.item
        names = [name for name in (item.id, *item.aliases) if name in self.responses]
        return [one for n in names for one in self.responses[n]]


class FromRun(Scored):
    """The candidates of another run: token by token if it is the same model's, else their texts."""

    def __init__(self, path: AnyPath, by_layer: bool) -> None:
        self.run, self.by_layer = Run(path), by_layer
        if not self.run.finished:
            status = "not finished" if self.run.manifest.status == "running" else "without answers"
            raise RunError(f"{str(path)!r} is {status}: run its command again first")
        self.identity = {"run": self.run.id}
        self.rows = {int(place): row for row, place in enumerate(self.run.places)}

    def places(self, items: Sequence[Item]) -> list[int]:
        """Of the items that have candidates there."""
        return sorted(self.rows)

    def given(self, engine: Engine, question: Question) -> list[Given]:
        """In the order of the run."""
        same = self.run.model == engine.name
        return [
            Given(c.text, c.token_ids.tolist() if same else None, c.finish)
            for c in self.run.candidates(self.rows[question.place])
        ]


def get_source(plan: Plan) -> Source:
    """The source that a plan names.

    Raises:
        RunError: it cannot be read.
    """
    if plan.candidates is None:
        return Drawn(plan)
    path = to_path(plan.candidates)
    if path.is_dir():
        return FromRun(path, plan.by_layer)
    if not path.is_file():
        raise RunError(f"no candidates in {str(path)!r}: neither a file nor a run ({MANIFEST})")
    return FromFile(path, plan.by_layer)


def scored(
    engine: Engine,
    conversation: Conversation,
    source: str | None,
    responses: Sequence[Given],
    by_layer: bool = False,
) -> Candidates:
    """Given responses with their signals; an empty one stays, with none."""
    filled = [one for one in responses if not one.empty]
    if not filled:
        raise ValueError(f"all {len(responses)} responses are empty: there is nothing to score")
    found = engine.score(
        messages=conversation.messages(),
        source=source,
        responses=[one.text if one.token_ids is None else one.token_ids for one in filled],
        **optional_settings(engine, {"by_layer": by_layer}),
    )
    recorded = iter(found)
    layers = found[0].by_layer
    nothing = NOTHING if layers is None else replace(NOTHING, by_layer=layers[:0])
    items = [
        Candidate(index, one.text, nothing if one.empty else next(recorded).signals, one.finish)
        for index, one in enumerate(responses)
    ]
    return replace(found, items=tuple(items))


@dataclass(frozen=True)
class Question:
    """What the model is shown and asked.

    Attributes:
        item: which it is about.
        place: the item's position in the split.
        conversation: with its images.
        source: what A_t is measured on.
        image: the id of the item that the images belong to; None for none.
    """

    item: Item
    place: int
    conversation: Conversation
    source: str | None
    image: str | None


class Questions:
    """What is asked about each item, and with which image."""

    def __init__(self, plan: Plan, items: Sequence[Item], places: Sequence[int]) -> None:
        self.mode, self.seed, self.source = plan.image, plan.seed, plan.source
        self.items, self.places = items, places

    def of(self, place: int) -> Question:
        """The question of the item at a position of the split.

        A random one is that of another of the items in `places` (an item that failed may have an
        image that cannot be read); one that looks the same, as when two questions are about one
        picture, is drawn again.
        """
        item = self.items[place]
        if self.mode == "none" and item.messages is None:  # its image need not be readable
            return self._question(place, Conversation.of(None, item.question), None)
        own = item.conversation
        if self.mode == "none":
            own = own.with_images(None)
        if not own.parts("image") and not own.parts("video"):
            return self._question(place, own, None)
        if self.mode == "own":
            return self._question(place, own, item.id)
        images, other = self._random(item)
        return self._question(place, own.with_images(images), other)

    def _question(self, place: int, conversation: Conversation, image: str | None) -> Question:
        """Without image and marked text there is nothing to look at, and that is known."""
        blind = image is None and not any(part.source for part in conversation.parts("text"))
        source = NO_SOURCE if blind else self.source
        return Question(self.items[place], place, conversation, source, image)

    def _random(self, item: Item) -> tuple[list[Image], str]:
        """The images of another item, and its id."""
        own = item.conversation.images
        rng = np.random.default_rng([self.seed, zlib.crc32(item.id.encode())])
        for _ in range(100):
            other = self.items[self.places[int(rng.integers(len(self.places)))]]
            images = other.conversation.images if other.id != item.id else []
            if images and not _same(own[0], images[0]):
                return images, other.id
        raise RunError("100 random images were all the item's own: are there others?")


def item_seed(seed: int, item: str) -> int:
    """The seed of one item's candidates: another item, or another seed, draws others."""
    digest = hashlib.sha256(f"{seed}/{item}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _same(first: Image, second: Image) -> bool:
    return first.size == second.size and first.tobytes() == second.tobytes()

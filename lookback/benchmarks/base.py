"""What every benchmark offers: items to ask about, a score for one response, a summary of many.

A benchmark knows nothing of models: it hands out images and questions and judges text. What it may
offer beside that is a protocol of its own (`Mentioning`, `Preparing`, `Judged`, `Unjudging`,
`Fingerprinted`, `LeavingOut`), which a class names among its bases.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload, runtime_checkable

from lookback.conversations import Conversation
from lookback.io.limits import TEXT_CHARACTERS
from lookback.registry import Registry

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.conversations import Messages


@dataclass(frozen=True)
class Item:
    """One question about one image, or a whole conversation.

    Attributes:
        id: unique within the benchmark; names split and position.
        question: the whole prompt text beside the image; of a conversation, what is asked last.
        truth: what `Benchmark.score` needs, as JSON-able data.
        load: makes the image; called at every access to `image`. None if it is asked without one.
        aliases: other ids that a file of responses may use for it.
        messages: instead of image and question: a conversation in the chat format.

    Raises:
        LimitError: the question is too long.
    """

    id: str
    question: str
    truth: dict[str, Any]
    load: Callable[[], Image] | None
    aliases: tuple[str, ...] = ()
    messages: Messages | None = None

    def __post_init__(self) -> None:
        TEXT_CHARACTERS.check(len(self.question), "the question")

    @property
    def image(self) -> Image | None:
        """The (first) image, read or drawn now; None for an item that has none."""
        if self.messages is not None:
            return next(iter(self.conversation.images), None)
        return None if self.load is None else self.load()

    @property
    def conversation(self) -> Conversation:
        if self.messages is not None:
            return Conversation.from_messages(self.messages)
        return Conversation.of(self.image, self.question)


class Items(Sequence[Item]):
    """Items made on access, so that a long split costs nothing until it is read.

    Args:
        indices: which positions of the split these are.
        make: the item at a position; must be pure.
    """

    def __init__(self, indices: Sequence[int], make: Callable[[int], Item]) -> None:
        self._indices = indices
        self._make = make

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Items: ...

    def __getitem__(self, index: int | slice) -> Item | Items:
        if isinstance(index, slice):
            return Items(self._indices[index], self._make)
        return self._make(self._indices[index])


class Benchmark(Protocol):
    """Items, a prompt and a metric.

    Attributes:
        name: as `get_benchmark` takes it.
        title: what tables and figures call it.
        primary: the key of `aggregate`'s result that a table shows; the mean of `score`.
        source: where its items come from, in words.
        default_split: the split that responses are scored on, unless another is asked for.
        notes: what a reader of its numbers should know about how this instance computes them.
    """

    name: str
    title: str
    primary: str
    source: str
    default_split: str
    notes: list[str]

    def items(self, split: str = "test", limit: int | None = None) -> Sequence[Item]:
        """Return the first `limit` items of a split (all if None), made on access."""

    def score(self, item: Item, response: str) -> float:
        """Return the quality of a response, in [0, 1]; higher is better; NaN if it is not known."""

    def scores(self, item: Item, responses: Sequence[str]) -> list[float]:
        """Return the quality of several responses to one item."""

    def aggregate(self, items: Sequence[Item], responses: Sequence[str]) -> dict[str, float]:
        """Return metrics over one response per item, in per cent."""


@runtime_checkable
class Mentioning(Protocol):
    """A benchmark that knows which words of a response name objects, and whether they are there."""

    def mentions(self, item: Item, response: str) -> list[tuple[int, int, bool]]:
        """Return (start, end, right) of each mention, in characters of the response."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A benchmark that reads many responses faster together than one by one."""

    def prepare(self, items: Sequence[Item], responses: Sequence[str]) -> None:
        """Read responses that will be asked about soon, to any of the items."""
        ...


@runtime_checkable
class Judged(Protocol):
    """A benchmark whose responses somebody judges."""

    def judge_name(self) -> str:
        """Return who judges, which is shown beside every number."""
        ...


@runtime_checkable
class Unjudging(Protocol):
    """A benchmark that may be unable to judge a response, which then counts as wrong."""

    def unjudged(self, items: Sequence[Item], responses: Sequence[str]) -> dict[int, str]:
        """Return the positions of those that it was unable to judge, each with the reason."""
        ...


@runtime_checkable
class Fingerprinted(Protocol):
    """A benchmark whose items are a user's own file: a run is of that very file."""

    def fingerprint(self) -> str:
        """Return a text that is the same for the same items."""
        ...


@runtime_checkable
class LeavingOut(Protocol):
    """A benchmark whose data may have items that cannot be read; it has the others."""

    def left_out(self) -> list[str]:
        """Return which items those are and why, a line each."""
        ...


@dataclass(frozen=True)
class BenchmarkKind:
    """A registered benchmark: `make` is its class, or a function that makes one."""

    name: str
    make: Callable[..., Benchmark]
    title: str

    @property
    def origin(self) -> object:
        return self.make

    @property
    def settings(self) -> tuple[str, ...]:
        """What it takes beside the folder of its files."""
        return tuple(name for name in inspect.signature(self.make).parameters if name != "data")


B = TypeVar("B", bound=Callable[..., Any])


def benchmark(name: str, *, title: str | None = None) -> Callable[[B], B]:
    """Register a class as the benchmark `name`; its `name` and `title` are put on it.

    Args:
        name: what users call it.
        title: what tables and figures call it; its name by default.
    """

    def register(make: B) -> B:
        shown = title or name
        if isinstance(make, type):
            made: Any = make
            made.name, made.title = name, shown
        BENCHMARKS.add(BenchmarkKind(name, make, shown))
        return make

    return register


def _adopt(name: str, make: Any) -> None:
    benchmark(name)(make)


BENCHMARKS: Registry[BenchmarkKind] = Registry(
    "benchmark",
    {
        "vqav2": "lookback.benchmarks.vqav2",
        "chair": "lookback.benchmarks.chair",
        "hallusionbench": "lookback.benchmarks.hallusionbench",
        "amber": "lookback.benchmarks.amber",
        "scenes-vqa": "lookback.benchmarks.scenes",
        "scenes-caption": "lookback.benchmarks.scenes",
        "scenes-pairs": "lookback.benchmarks.scenes",
        "scenes-amber": "lookback.benchmarks.scenes",
        "own": "lookback.benchmarks.own",
    },
    _adopt,
)
"""In the order of the paper's tables."""
GENERATED: tuple[str, ...] = tuple(n for n in BENCHMARKS.builtin if n.startswith("scenes-"))


def get_kind(name: str) -> BenchmarkKind:
    """Return the registered benchmark of a name, or of what is before a colon ("own:mine")."""
    return BENCHMARKS.get(name.partition(":")[0])


def get_benchmark(
    name: str, data: str | os.PathLike[str] | None = None, **settings: Any
) -> Benchmark:
    """The benchmark of that name, its module loaded only now.

    Args:
        name: one that `lookback benchmarks` lists; for data of one's own "own" or, as runs of
            `mine.jsonl` have it, "own:mine".
        data: the folder of its files, or one that has a folder of its name; None for the
            environment variable LOOKBACK_DATA. For data of one's own the file. Generated
            benchmarks need none.
        settings: what this benchmark alone takes, e.g. HallusionBench's `judge`.

    Raises:
        ValueError: there is no such benchmark, or it takes no such setting; the message lists
            those there are. Or the data are not those of a name with a colon.
    """
    kind = get_kind(name)
    unknown = sorted(settings.keys() - set(kind.settings))
    if unknown:
        raise ValueError(f"{name} has no setting {', '.join(unknown)}")
    takes_data = "data" in inspect.signature(kind.make).parameters
    made = kind.make(data, **settings) if takes_data else kind.make(**settings)
    if ":" in name and made.name != name:
        given = f"with the data {os.fspath(data)!r}" if data else "without data"
        raise ValueError(f"no benchmark {name!r} {given}: that is {made.name!r}")
    return made


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise ValueError(f"limit = {limit}: give a number of items, or None for all")


def mean_percent(values: Sequence[float]) -> float:
    return 100 * sum(values) / len(values) if values else 0.0


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean; 0 if both are."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def share(part: int, whole: int) -> float:
    """Return part / whole; 0 for an empty whole, as the paper says it for CHAIR."""
    return part / whole if whole else 0.0


def all_right(groups: Sequence[Hashable], scores: Sequence[float]) -> float:
    """Return the share of groups in which every score is 1, in per cent."""
    worst: dict[Hashable, float] = {}
    for group, score in zip(groups, scores, strict=True):
        worst[group] = min(score, worst.get(group, 1.0))
    return mean_percent([score == 1 for score in worst.values()])


class MeanOfScores(ABC):
    """A benchmark whose main metric is the mean of its responses' scores."""

    primary: str

    @abstractmethod
    def score(self, item: Item, response: str) -> float:
        """Return the quality of one response, in [0, 1]; higher is better."""

    def scores(self, item: Item, responses: Sequence[str]) -> list[float]:
        return [self.score(item, response) for response in responses]

    def aggregate(self, items: Sequence[Item], responses: Sequence[str]) -> dict[str, float]:
        """Return the mean score and what else the benchmark reports, in per cent."""
        scores = [self.score(i, r) for i, r in zip(items, responses, strict=True)]
        if not scores:
            raise ValueError("no items to aggregate")
        return {self.primary: mean_percent(scores)} | self.details(items, responses, scores)

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        """Return further metrics in per cent; none unless a benchmark has some."""
        return {}

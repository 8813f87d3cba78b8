"""Who works on a run: this process alone, or a team of workers that run elsewhere.

A team hands out shards, passes on what its workers report, and knows what to do when one dies. That
is written once, here; what a worker is (a process of this machine, an actor of a Ray cluster) is a
subclass. What a worker does with a shard is always `lookback.runs.work.Worker`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lookback.engines import Identity
from lookback.io.storage import AnyPath
from lookback.runs.layout import SHARD, RunError

if TYPE_CHECKING:
    from lookback.engines import Engine
    from lookback.runs.plan import Plan
    from lookback.runs.work import Report, Worker


@dataclass(frozen=True)
class Account:
    """What a loaded model tells of itself.

    Attributes:
        identity: which model it is.
        defaults: its family's alpha and lam.
        in_flight: how many items it is asked about at once.
        node: on which machine it is.
    """

    identity: Identity
    defaults: Mapping[str, float]
    in_flight: int = 1
    node: str = "this machine"

    @classmethod
    def of(cls, engine: Engine, in_flight: int = 1, node: str = "this machine") -> Account:
        """That of an engine."""
        return cls(engine.identity(), dict(engine.family.defaults), in_flight, node)


@dataclass(frozen=True)
class Portion:
    """Shards that a worker is handed together.

    Attributes:
        plan: what to do; may name more scorers than when the worker was started.
        shards: their numbers.
    """

    plan: Plan
    shards: tuple[int, ...]


class Crew(ABC):
    """Whoever works on a run."""

    @abstractmethod
    def load(self) -> Account:
        """Load a model, the first of perhaps several, and tell which it is."""

    @abstractmethod
    def work(self, portions: Sequence[Portion], report: Report) -> None:
        """Do all portions.

        Raises:
            RunError: workers died, and others in their place, too.
            Exception: what stopped a worker.
        """

    def close(self) -> None:  # noqa: B027  (nothing to do for one that works here)
        """Let all workers go, whatever they do."""


class Alone(Crew):
    """This process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def load(self) -> Account:
        """Load the model here."""
        return self.worker.load()

    def work(self, portions: Sequence[Portion], report: Report) -> None:
        """One after the other."""
        for portion in portions:
            self.worker.plan = portion.plan
            self.worker.work(portion.shards, report)


class Message(NamedTuple):
    """What a worker tells, or what is found out about it.

    Attributes:
        worker: its number.
        kind: "ready" with its account, "pieces" with how many more are done, "done" with what came
            of its portion, "error" with what stopped it, "died" with the reason.
        value: see there.
    """

    worker: int
    kind: Literal["ready", "pieces", "done", "error", "died"]
    value: Any = None


class Team(Crew):
    """Several workers, each with a model of its own, which take portion after portion.

    An error of one stops all.

    Args:
        plan: what the workers load.
        folder: of the run.
        workers: how many there are at most.
        say: told in a line what a user should know.
    """

    restarts = 0
    """How often a portion is handed out again after its worker died."""
    remedy = "run the same command again, perhaps with fewer --workers"

    def __init__(
        self,
        plan: Plan,
        folder: AnyPath,
        workers: int,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.plan, self.folder, self.workers, self.say = plan, folder, workers, say
        self.accounts: dict[int, Account] = {}
        self._hired: set[int] = set()
        self._busy: dict[int, Portion] = {}
        self._pieces: Counter[int] = Counter()
        self._deaths: Counter[int] = Counter()
        self._first: Account | None = None
        self._next_number = 0

    @abstractmethod
    def start(self, worker: int) -> None:
        """Start a worker, which loads its model and tells when it is ready."""

    @abstractmethod
    def give(self, worker: int, portion: Portion) -> None:
        """Hand a portion to a worker that is ready."""

    @abstractmethod
    def receive(self) -> Message:
        """Wait for the next message."""

    def keep(self, value: Any) -> None:
        """Keep what came of a portion; a worker of this machine has written it itself."""

    def load(self) -> Account:
        """Start one worker; the others are started when it is known how many have work."""
        self._hire()
        while self._first is None:
            self._take(self.receive(), deque(), lambda count: None)
        return self._first

    def work(self, portions: Sequence[Portion], report: Report) -> None:
        """Hand out portions until all are done."""
        waiting = deque(portions)
        while len(self._hired) < min(self.workers, len(portions)):
            self._hire()
        for worker in list(self.accounts):
            self._give_next(worker, waiting)
        while waiting or self._busy:
            self._take(self.receive(), waiting, report)

    def _take(self, message: Message, waiting: deque[Portion], report: Report) -> None:
        worker, kind, value = message
        if kind == "ready":
            self._check(value)
            self._deaths[-1] = 0
            self.accounts[worker] = value
            self._give_next(worker, waiting)
        elif kind == "pieces":
            self._pieces[worker] += value
            report(value)
        elif kind == "done":
            self.keep(value)
            del self._busy[worker]
            self._pieces[worker] = 0  # they are kept, whatever becomes of the worker
            self._give_next(worker, waiting)
        elif kind == "died":
            report(-self._pieces[worker])  # they are to be done again
            self._bury(worker, value, waiting)
        else:
            raise value

    def _hire(self) -> None:
        worker = self._next_number
        self._next_number += 1
        self._hired.add(worker)
        self.start(worker)

    def _give_next(self, worker: int, waiting: deque[Portion]) -> None:
        if waiting:
            self._busy[worker] = waiting.popleft()
            self.give(worker, self._busy[worker])

    def _check(self, account: Account) -> None:
        """Another model on another machine would make another run of it.

        Raises:
            RunError: it is not the first worker's.
        """
        first = self._first = self._first or account
        for one in fields(Identity):
            here, there = getattr(account.identity, one.name), getattr(first.identity, one.name)
            if here != there:
                raise RunError(
                    f"the worker on {account.node} has another {one.name} than that on "
                    f"{first.node}: {here!r}, not {there!r}; make them the same, or choose the "
                    "machines"
                )

    def _bury(self, worker: int, reason: str, waiting: deque[Portion]) -> None:
        """Hand the portion of a dead worker out again, and start another worker in its place.

        Raises:
            RunError: it was handed out often enough.
        """
        portion = self._busy.pop(worker, None)
        self._hired.discard(worker)
        account = self.accounts.pop(worker, None)
        where = f" on {account.node}" if account and self.restarts else ""
        key = portion.shards[0] if portion else -1  # -1: while it loaded, or had nothing to do
        self._deaths[key] += 1
        if self._deaths[key] > self.restarts:
            times = f", {self._deaths[key]} times in a row" if self._deaths[key] > 1 else ""
            what = f" at shard {key}" if portion and self.restarts else ""
            raise RunError(f"a worker{where} died{what}{times} ({reason}): {self.remedy}")
        again = f": shard {key} is handed out again" if portion else ""
        self.say(f"a worker{where} died ({reason}){again}")
        if portion:
            waiting.appendleft(portion)
        if len(self._hired) < self.workers:
            self._hire()
        for other in set(self.accounts) - set(self._busy):
            self._give_next(other, waiting)


def plan_portions(plan: Plan, shards: Sequence[int], in_flight: int) -> list[Portion]:
    """Shards as portions: of several each if an engine wants so many questions in flight.

    What is lost at most when a worker dies is its portion.
    """
    size = max(1, in_flight // SHARD)
    return [Portion(plan, tuple(shards[i : i + size])) for i in range(0, len(shards), size)]

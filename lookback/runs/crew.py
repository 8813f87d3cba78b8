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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lookback.engines import Identity
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
class Job:
    """Shards to make, in one go.

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
    def work(self, jobs: Sequence[Job], report: Report) -> None:
        """Do all jobs.

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

    def work(self, jobs: Sequence[Job], report: Report) -> None:
        """One after the other."""
        for job in jobs:
            self.worker.plan = job.plan
            self.worker.work(job.shards, report)


class Message(NamedTuple):
    """What a worker tells, or what is found out about it.

    Attributes:
        worker: its number.
        kind: "ready" with its account, "pieces" with how many more are done, "done" with what came
            of its job, "error" with what stopped it, "died" with the reason.
        value: see there.
    """

    worker: int
    kind: Literal["ready", "pieces", "done", "error", "died"]
    value: Any = None


class Team(Crew):
    """Several workers, each with a model of its own: each takes the next job; an error stops all.

    Args:
        plan: what the workers load.
        folder: of the run.
        workers: how many there are at most.
        say: told in a line what a user should know.
    """

    restarts = 0
    """How often a job is handed out again after its worker died."""
    remedy = "run the same command again, perhaps with fewer --workers"

    def __init__(
        self, plan: Plan, folder: Path, workers: int, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self.plan, self.folder, self.workers, self.say = plan, folder, workers, say
        self.accounts: dict[int, Account] = {}
        self._hired: set[int] = set()
        self._busy: dict[int, Job] = {}
        self._pieces: Counter[int] = Counter()
        self._deaths: Counter[int] = Counter()
        self._first: Account | None = None
        self._next_number = 0

    @abstractmethod
    def start(self, worker: int) -> None:
        """Start a worker, which loads its model and tells when it is ready."""

    @abstractmethod
    def give(self, worker: int, job: Job) -> None:
        """Hand a job to a worker that is ready."""

    @abstractmethod
    def receive(self) -> Message:
        """Wait for the next message."""

    def keep(self, value: Any) -> None:
        """Keep what came of a job; a worker of this machine has written it itself."""

    def load(self) -> Account:
        """Start one worker; the others are started when it is known how many have work."""
        self._hire()
        while self._first is None:
            self._take(self.receive(), deque(), lambda count: None)
        return self._first

    def work(self, jobs: Sequence[Job], report: Report) -> None:
        """Hand out jobs until all are done."""
        waiting = deque(jobs)
        while len(self._hired) < min(self.workers, len(jobs)):
            self._hire()
        for worker in list(self.accounts):
            self._give_next(worker, waiting)
        while waiting or self._busy:
            self._take(self.receive(), waiting, report)

    def _take(self, message: Message, waiting: deque[Job], report: Report) -> None:
        worker, kind, value = message
        if kind == "ready":
            self._check(value)
            self.accounts[worker] = value
            self._give_next(worker, waiting)
        elif kind == "pieces":
            self._pieces[worker] += value
            report(value)
        elif kind == "done":
            self.keep(value)
            del self._busy[worker]
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

    def _give_next(self, worker: int, waiting: deque[Job]) -> None:
        if waiting:
            self._busy[worker] = waiting.popleft()
            self._pieces[worker] = 0
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

    def _bury(self, worker: int, reason: str, waiting: deque[Job]) -> None:
        """Hand the job of a dead worker out again, and start another worker in its place.

        Raises:
            RunError: it was handed out often enough.
        """
        job = self._busy.pop(worker, None)
        self._hired.discard(worker)
        account = self.accounts.pop(worker, None)
        where = f" on {account.node}" if account and self.restarts else ""
        key = job.shards[0] if job else -1  # -1: while it loaded, or had nothing to do
        self._deaths[key] += 1
        if self._deaths[key] > self.restarts:
            times = f", the {self._deaths[key]}th in a row" if self._deaths[key] > 1 else ""
            what = f" at shard {key}" if job and self.restarts else ""
            raise RunError(f"a worker{where} died{what}{times} ({reason}): {self.remedy}")
        again = f": shard {key} is handed out again" if job else ""
        self.say(f"a worker{where} died ({reason}){again}")
        if job:
            waiting.appendleft(job)
        if len(self._hired) < self.workers:
            self._hire()
        for other in set(self.accounts) - set(self._busy):
            self._give_next(other, waiting)


def plan_jobs(plan: Plan, shards: Sequence[int], in_flight: int) -> list[Job]:
    """Shards as jobs: of several, whose items are asked about together, if an engine wants so many.

    A shard is the least that is kept; so a job's shards are what is lost at most.
    """
    size = max(1, in_flight // SHARD)
    return [Job(plan, tuple(shards[i : i + size])) for i in range(0, len(shards), size)]

"""What every study takes and returns, and the registry of studies.

    @study("main", paper="tab:main_results", title="Main", needs_quality=True)
    def main(runs: Runs) -> Result:
        '''Methods x benchmarks x N.'''

A study works on recorded runs alone: no model is loaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from lookback.benchmarks.base import BENCHMARKS
from lookback.errors import error_line
from lookback.registry import (
    WRONG_KIND,
    FunctionEntry,
    Registry,
    SettingError,
    did_you_mean,
    is_interrupt,
    wrong_kind,
)
from lookback.runs import Run
from lookback.runs.layout import RunError
from lookback.runs.part import Complete, items_with_quality
from lookback.studies.common.budgets import budget_notes, check_budgets, default_budgets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lookback.studies.common.tables import Table

ALL = "all"
"""What commands call all studies; no study may have this name."""
HUMAN = "human"
"""What commands call the study of votes, `lookback.studies.human`: it is of no runs."""
F = TypeVar("F", bound=Callable[..., Any])


class StudyError(ValueError):
    """The runs lack what a study needs; the message says what, and how to get it."""


@dataclass(frozen=True)
class Result:
    """What a study returns.

    Attributes:
        rows: the tidy table: the same keys in each row, numbers and texts as values.
        tables: the paper's tables.
        figure: the paper's figure, if there is one.
        notes: what a reader of the numbers should know, a sentence each.
        files: further files by name; "folder/name" puts one into a folder.
    """

    rows: list[dict[str, Any]]
    tables: list[Table] = field(default_factory=list)
    figure: Figure | None = None
    notes: list[str] = field(default_factory=list)
    files: dict[str, str | bytes] = field(default_factory=dict)


class Runs(Sequence[Run]):
    """The runs of a study, and the N (how many candidates to select from) that it shows.

    Args:
        runs: at least one; another `Runs` passes on its N.
        notes: become notes of the result.
        ns: the N that every study shows; by default 5 and 25, or all that a smaller run has.

    Raises:
        StudyError: there are no runs, or one has fewer candidates than an N.
    """

    def __init__(
        self, runs: Sequence[Run], notes: Sequence[str] = (), ns: Iterable[int] | None = None
    ) -> None:
        self._runs = list(runs)
        self.notes = list(notes)
        if not self._runs:
            raise StudyError("no runs given")
        if ns is None and isinstance(runs, Runs):
            ns = runs.ns
        self.ns: tuple[int, ...] | None = None if ns is None else check_budgets(ns)
        for run in self.largest if self.ns else ():
            n = max(self.ns or ())
            if run.n < n:
                raise StudyError(
                    f"N = {n}: {run.path} ({title(run)}, {run.model}) has {run.n} candidates per "
                    f"item: ask for at most {run.n} with --n, or give other runs"
                )
            run.check_draw(min(self.ns or ()))

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index: Any) -> Any:
        return self._runs[index]

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def own(self) -> list[Run]:
        """The runs that are no controls: each item was asked about its own image."""
        return [run for run in self if run.image == "own"]

    @property
    def largest(self) -> list[Run]:
        """The run with most candidates of each model and benchmark.

        Of several the first, but a pruned one only if all are.
        """
        largest: dict[tuple[str, str], Run] = {}
        for run in self.own:
            key = (run.model, run.benchmark)
            if run.n and (key not in largest or _size(run) > _size(largest[key])):
                largest[key] = run
        if not largest:
            kind = "have no candidates" if self.own else "are all controls"
            raise StudyError(f"these runs {kind}: give those with candidates of their own")
        benchmarks: dict[str, str] = {}
        for run in largest.values():  # tables know benchmarks by their titles
            name = benchmarks.setdefault(title(run), run.benchmark)
            if name != run.benchmark:
                raise StudyError(
                    f"the benchmarks {name!r} and {run.benchmark!r} are both called {title(run)!r} "
                    "in tables: give the runs of one at a time, or another title"
                )
        return list(largest.values())

    def budgets(self, run: Run) -> list[int]:
        """Return the N of a run, from small to large; may be empty if it is none of `largest`."""
        return default_budgets(run) if self.ns is None else list(filter(run.has_draw, self.ns))

    def budget(self, run: Run) -> int:
        """Return the N of a study that shows one: the largest, or all of a run that has less."""
        return max(self.budgets(run), default=run.n)

    def control(self, run: Run, image: str) -> Run | None:
        """Return the run that scored the candidates of `run` with another image, if any."""
        matches = (other for other in self if other.image == image and other.controls == run.id)
        return next(matches, None)

    def with_control(self, image: str) -> list[tuple[Run, Run]]:
        """Return the largest runs that have such a control, each with it.

        Raises:
            StudyError: none has.
        """
        controls = [(run, self.control(run, image)) for run in self.largest]
        pairs = [(run, control) for run, control in controls if control is not None]
        if not pairs:
            raise StudyError(
                f"no run here has a control with image {image!r}: make one with `lookback run "
                f"--candidates RUN --image {image} --out DIR` and give both"
            )
        return pairs

    def complete(self) -> Runs:
        """Return the same runs without pruned candidates, and a note on each that had some."""
        pruned = [run for run in self if run.pruned.any()]
        if not pruned:
            return self
        notes = [
            f"{title(run)}, {run.model}: {int(run.pruned.sum())} of {len(run.pruned)} candidates "
            f"in {run.path.name} were pruned and count nowhere; of fewer than N = {run.n} it tells "
            "nothing."
            for run in pruned
            if run.image == "own"
        ]
        kept = [Complete(run) if run in pruned else run for run in self]
        return Runs(kept, [*self.notes, *notes], self.ns)

    def with_quality(self, name: str) -> Runs:
        """Return the same runs with only the items whose candidates all have a quality, with notes.

        Controls stay as they are: the quality of their candidates is that of their run's.

        Raises:
            StudyError: there are candidates, but no item has a quality; it names the study.
        """
        kept: list[Run] = []
        notes = [*self.notes]
        for run in self:
            part = items_with_quality(run) if run.image == "own" and run.n else run
            missing = len(run.places) - len(part.places)
            if missing:
                kind = f"{missing} of {len(run.places)}" if part.n else f"all {missing}"
                notes.append(
                    f"{title(run)}, {run.model}: {kind} items have candidates without a quality "
                    "and are left out."
                )
            if part.n or not missing:
                kept.append(part)
        if len(notes) > len(self.notes) and not any(r.n for r in kept if r.image == "own"):
            raise StudyError(
                f"study {name!r} needs to know how good the responses are, and no item of these "
                "runs has a quality: name answers and a metric in the data (see `lookback run "
                "--data`) and run again"
            )
        return Runs(kept, notes, self.ns)


def title(run: Run) -> str:
    """Return the name of a run's benchmark in tables and figures."""
    if run.manifest.title:
        return run.manifest.title
    if run.benchmark in BENCHMARKS.names():
        return BENCHMARKS.get(run.benchmark).title
    return run.benchmark


def one_budget(runs: Runs, run: Run, n: int | None) -> int:
    """Return the N of a study that shows one and has a setting `n` for it.

    A smaller run has all its candidates; None means the N of the other studies.
    """
    if n is not None and n < 1:
        raise StudyError(f"n = {n}: must be at least 1")
    budget = runs.budget(run) if n is None else min(n, run.n)
    run.check_draw(budget)
    return budget


def other_run_note(run: Run, has: str) -> str:
    """Return a note that a study uses another run than others do, which has what it needs."""
    return (
        f"{title(run)}, {run.model}: of {run.path.name}, which has {has}; other studies are of the "
        "run with most candidates."
    )


def _size(run: Run) -> tuple[int, bool]:
    return run.n, not run.steered


@dataclass(frozen=True)
class Study(FunctionEntry):
    """A registered study.

    Attributes:
        function: from runs and settings to a result.
        about: a line on what it shows.
        paper: the paper's labels for it; empty if it is not in the paper.
        title: its heading on a page.
        needs_quality: whether it gets only items whose responses' quality is known.
    """

    name: str
    function: Callable[..., Result]
    about: str
    paper: str
    title: str
    needs_quality: bool

    @property
    def own(self) -> bool:
        """Whether a user or another package registered it."""
        return STUDIES.own(self.name)

    def __call__(self, runs: Sequence[Run], params: Mapping[str, Any] | None = None) -> Result:
        """Run the study.

        Raises:
            StudyError: the runs lack what it needs; or it is a user's own, and failed.
            SettingError: it has no such setting.
        """
        from lookback.studies.common.controls import gain_notes

        unknown = set(params or {}) - set(self.params)
        if unknown:
            known = ", ".join(self.params) or "none"
            raise SettingError(
                f"study {self.name!r} has no setting {min(unknown)!r}; it has: {known}"
            )
        given = self.prepare(runs)
        result = self._call(given, params or {})
        notes = [*budget_notes(result.rows), *gain_notes(given, result.rows)]
        return replace(result, notes=[*notes, *result.notes, *given.notes])

    def prepare(self, runs: Sequence[Run]) -> Runs:
        """Return the runs as the function gets them: without pruned candidates, with gains.

        And, if it needs quality, with only the items that have one.
        """
        from lookback.studies.common.controls import with_gains

        given = (runs if isinstance(runs, Runs) else Runs(runs)).complete()
        if self.needs_quality:
            given = given.with_quality(self.name)
        return with_gains(given)

    def _call(self, runs: Runs, params: Mapping[str, Any]) -> Result:
        """Return the function's result; an error in a user's own study names the study."""
        try:
            result = self.function(runs, **params)
        except (StudyError, RunError):
            raise
        except BaseException as error:
            if self.own and not is_interrupt(error):
                raise StudyError(f"study {self.name!r} failed: {error_line(error)}") from error
            if params and isinstance(error, WRONG_KIND):
                raise wrong_kind(f"study {self.name!r}", params, error) from error
            raise  # its messages are ours already
        if not isinstance(result, Result):
            raise StudyError(
                f"study {self.name!r} gave {result!r:.60}: it must give a lookback.studies.Result"
            )
        return result


def study(
    name: str, *, paper: str = "", title: str | None = None, needs_quality: bool = False
) -> Callable[[F], F]:
    """Register a function as the study `name`; the first line of its docstring describes it.

    Args:
        name: what users call it.
        paper: the paper's labels for it.
        title: its heading on a page; its name by default.
        needs_quality: whether it gets only items whose responses' quality is known; StudyError
            is raised if there are none.
    """
    if name in (ALL, HUMAN):
        meant = {ALL: "all studies", HUMAN: "the study of votes"}[name]
        raise ValueError(f"a study cannot be named {name!r}: commands mean {meant} by it")

    def register(function: F) -> F:
        about = (inspect.getdoc(function) or "").split("\n")[0]
        STUDIES.add(Study(name, function, about, paper, title or name, needs_quality))
        return function

    return register


def _adopt(name: str, function: Any) -> None:
    study(name)(function)


STUDIES: Registry[Study] = Registry(
    "study",
    {
        name: f"lookback.studies.{name.replace('-', '_')}"
        for name in (
            *("main", "scaling", "budget", "ablation", "sensitivity", "image-sensitivity"),
            *("random-image", "decomposition", "pos", "layers", "seeds", "oracle", "judge"),
            *("overhead", "combine", "disagreements", "tokens"),
        )
    },
    _adopt,
    plural="studies",
)
"""In the paper's order."""


def get_study(name: str) -> Study:
    """Return the study called `name`; raise ValueError with the known names if there is none."""
    names = STUDIES.names()
    if name == HUMAN:
        raise ValueError(
            "study 'human' is of votes, not of runs: `lookback study human VOTES`, or "
            "lookback.studies.human.human(paths)"
        )
    if name not in names:
        known = [*names, HUMAN, ALL]
        hint = did_you_mean(name, known)
        raise ValueError(f"no study named {name!r}; there are: {', '.join(known)}{hint}")
    return STUDIES.get(name)

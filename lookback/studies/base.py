"""What every study gives, and the registry that knows them all.

    @study("main", paper="tab:main_results")
    def main(runs: Runs) -> Result:
        '''Methods x benchmarks x N.'''

A study works on recorded runs alone: no model is loaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lookback.runs import Run
from lookback.studies.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDIES = (
    "main",
    "scaling",
    "ablation",
    "sensitivity",
    "image-sensitivity",
    "random-image",
    "decomposition",
    "pos",
    "seeds",
    "oracle",
    "judge",
    "overhead",
    "disagreements",
    "tokens",
)
"""All of them, in the paper's order; each is the module of its name, with _ for -."""


class StudyError(ValueError):
    """The runs given do not have what a study needs; the message says what and how to get it."""


@dataclass(frozen=True)
class Result:
    """What a study gives.

    Attributes:
        rows: the tidy table: the same keys in each, a number or a word in each.
        tables: the paper's tables.
        figure: the paper's figure; None where there is none.
        notes: what a reader of the numbers should know, a sentence each.
        files: further files by name.
    """

    rows: list[dict[str, Any]]
    tables: list[Table] = field(default_factory=list)
    figure: Figure | None = None
    notes: list[str] = field(default_factory=list)
    files: dict[str, str | bytes] = field(default_factory=dict)


class Runs(Sequence[Run]):
    """The runs that a study is given."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = list(runs)
        if not self._runs:
            raise StudyError("no runs given")

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index: Any) -> Any:
        return self._runs[index]

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def own(self) -> list[Run]:
        """Those that are no controls: each item was asked about its own image."""
        return [run for run in self if run.image == "own"]

    @property
    def largest(self) -> list[Run]:
        """Of each model and benchmark the run with most candidates, the first of several."""
        found: dict[tuple[str, str], Run] = {}
        for run in self.own:
            key = (run.model, run.benchmark)
            if run.n and (key not in found or run.n > found[key].n):
                found[key] = run
        if not found:
            kind = "have no candidates" if self.own else "are all controls"
            raise StudyError(f"these runs {kind}: give those with candidates of their own")
        return list(found.values())

    def control(self, run: Run, image: str) -> Run | None:
        """The run that scores the candidates of `run` with no image or a random one."""
        for other in self:
            if other.image == image and other.controls == run.id:
                return other
        return None

    def controlled(self, image: str) -> list[tuple[Run, Run]]:
        """The largest runs that have such a control, each with it.

        Raises:
            StudyError: none has.
        """
        pairs = [(run, self.control(run, image)) for run in self.largest]
        found = [(run, control) for run, control in pairs if control is not None]
        if not found:
            raise StudyError(
                f"no run here has a control with image {image!r}: make one with `lookback run "
                f"--candidates RUN --image {image} --out DIR` and give both"
            )
        return found


@dataclass(frozen=True)
class Study:
    """A registered study.

    Attributes:
        name: what users call it.
        paper: the paper's labels for it; empty if it is not in the paper.
        function: from runs and settings to a result.
        about: a line on what it shows.
    """

    name: str
    paper: str
    function: Callable[..., Result]
    about: str

    @property
    def params(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(inspect.signature(self.function).parameters)[1:]

    def __call__(self, runs: Sequence[Run], params: Mapping[str, Any] | None = None) -> Result:
        """Do it.

        Raises:
            StudyError: the runs do not have what it needs.
            TypeError: it has no such setting.
        """
        unknown = set(params or {}) - set(self.params)
        if unknown:
            known = ", ".join(self.params) or "none"
            raise TypeError(f"study {self.name!r} has no setting {min(unknown)!r}; it has: {known}")
        return self.function(Runs(runs), **(params or {}))


_STUDIES: dict[str, Study] = {}


def study(name: str, paper: str = "") -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register a function as the study `name`; the first line of its docstring describes it."""

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        about = (inspect.getdoc(function) or "").split("\n")[0]
        _STUDIES[name] = Study(name, paper, function, about)
        return function

    return register


def get_study(name: str) -> Study:
    """The study called `name`, its module loaded only now; an unknown name lists the known ones."""
    if name not in STUDIES:
        raise ValueError(f"no study named {name!r}; there are: {', '.join(STUDIES)}, all")
    import_module(f"lookback.studies.{name.replace('-', '_')}")
    return _STUDIES[name]

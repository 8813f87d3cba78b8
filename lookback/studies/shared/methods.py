"""Which scorers tables and figures show, and in which order; and the order of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lookback.benchmarks.base import BENCHMARKS
from lookback.runs import Run
from lookback.scores.base import Scorer, get_scorer, scorers

GREEDY = "greedy"
"""One answer by greedy decoding: no scorer, but what a selection among N answers competes with."""


def paper_methods() -> list[str]:
    """Those of the paper's main table, in its order."""
    found = [s for s in _shown() if s.paper is not None and not s.own]
    return [s.name for s in sorted(found, key=lambda s: s.paper or 0)]


def other_methods() -> list[str]:
    """The package's others, but for those that know the truth."""
    return [s.name for s in _shown() if s.paper is None and not s.own and s.needs != "truth"]


def own_methods(runs: Iterable[Run]) -> list[str]:
    """The user's own that these runs have scores of, but for those that know the truth.

    One that needs a model must have been recorded, for any N.
    """
    recorded = {name.partition("@")[0] for run in runs for name in run.recorded}
    own = [s for s in _shown() if s.own and s.needs != "truth"]
    return [s.name for s in own if s.from_signals or s.name in recorded]


def ceilings() -> list[str]:
    """Those that know the truth: no rivals."""
    return [s.name for s in _shown() if s.needs == "truth"]


def all_methods(runs: Iterable[Run]) -> list[str]:
    """The paper's, the others, the user's own, and what none of them can surpass."""
    return [*paper_methods(), *other_methods(), *own_methods(runs), *ceilings()]


def titles(methods: Sequence[str]) -> list[str]:
    """What tables and figures call them."""
    return [title_of(method) for method in methods]


def title_of(method: str) -> str:
    """What tables and figures call a scorer, or greedy decoding."""
    return "Greedy decoding" if method == GREEDY else get_scorer(method).title


def color_of(method: str) -> str:
    """The colour of a scorer, or of greedy decoding, in figures."""
    return "#7c3aed" if method == GREEDY else get_scorer(method).color


def in_order(runs: list[Run]) -> list[Run]:
    """By model as given, and by benchmark in the registry's order; unknown ones last."""
    models = list(dict.fromkeys(run.model for run in runs))
    known = BENCHMARKS.names()

    def key(run: Run) -> tuple[int, int, str]:
        name = run.benchmark.partition(":")[0]
        position = known.index(name) if name in known else len(known)
        return models.index(run.model), position, run.benchmark

    return sorted(runs, key=key)


def _shown() -> list[Scorer]:
    """Without those that always pick what another one picks."""
    return [s for s in scorers().values() if s.same_as is None]

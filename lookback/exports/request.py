"""What is asked of an export, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lookback.runs import Run
from lookback.runs.layout import RunError
from lookback.scores.base import get_scorer
from lookback.storage import AnyPath


@dataclass(frozen=True)
class Request:
    """What is asked of an export.

    Attributes:
        run: what to write.
        out: where.
        scorers: whose scores and ranks candidates get; the first one's picks are the answers.
        params: settings that some scorers are given, by the scorer's name.
        n: of each item the first n candidates; None for all.
        flat: a row per candidate, not per item.
        signals: with tokens and what was recorded of each.
        images: with the images.
        insist: an image that cannot be had is an error, as somebody asked for it.
    """

    run: Run
    out: AnyPath
    scorers: tuple[str, ...] = ("lookback",)
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    n: int | None = None
    flat: bool = False
    signals: bool = False
    images: bool = False
    insist: bool = False

    def __post_init__(self) -> None:
        run = self.run
        if not self.scorers or len(set(self.scorers)) < len(self.scorers):
            raise ValueError(f"--scorers {','.join(self.scorers)}: name each once, at least one")
        if self.n is not None and not 1 <= self.n <= run.n:
            raise RunError(f"N = {self.n}: {run.path} has {run.n} candidates per item")
        run.check_draw(self.n)
        for name in self.scorers:
            scorer = get_scorer(name)
            scorer.check(self.params.get(name, {}))
            if not scorer.from_signals and run.n:  # said before anything is written
                run.scores(name, self.n, **self.params.get(name, {}))

    @property
    def size(self) -> int:
        """How many candidates an item has at most."""
        return self.run.n if self.n is None else self.n

    def settings_of(self, scorer: str) -> dict[str, Any]:
        """What a scorer is used with: its own settings, the family's, those that were given."""
        found, given = get_scorer(scorer), self.params.get(scorer, {})
        if found.from_signals:
            return found.defaults | found.settings(self.run.defaults, given)
        name = self.run.recording(scorer, self.size)
        return {} if name is None else self.run.recorded_settings(name)


def shared_params(
    scorers: tuple[str, ...], alpha: float | None, lam: float | None
) -> dict[str, dict[str, float]]:
    """`--alpha` and `--lam` for the scorers that are computed from signals and have them.

    Raises:
        SettingError: none has one that was given.
    """
    given = {name: value for name, value in (("alpha", alpha), ("lam", lam)) if value is not None}
    kinds = [one for one in map(get_scorer, scorers) if one.from_signals]
    for name in given:
        if kinds and not any(name in one.params for one in kinds):
            kinds[0].check({name: given[name]})
        elif not kinds:
            raise ValueError(
                f"--{name} is LookBack's: the scores of {', '.join(scorers)} are recorded"
            )
    return {one.name: {k: v for k, v in given.items() if k in one.params} for one in kinds}


@dataclass(frozen=True)
class Written:
    """What an export wrote.

    Attributes:
        items: how many, failed ones too.
        failed: how many of them failed.
        candidates: how many.
        images: how many; None if they were not asked for.
        metrics: by scorer, the mean quality of its picks; None where no quality is known.
        notes: what a reader should know.
    """

    items: int
    failed: int
    candidates: int
    images: int | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

"""What every scorer is: a function with a name, what it needs, and how tables and figures show it.

A scorer gives one number per response. Most work on a ragged batch of signals and texts, of one
question or of a whole run:

    @scorer("mean_log_prob", title="Mean log p")
    def mean_log_prob(batch):
        return batch.mean(batch.log_prob)

Those that need a model (`needs="model"` or "clip") get the candidates of one question instead, with
the engine and the conversation in `candidates.asked`.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

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
from lookback.scores import HOMES
from lookback.scores.batch import SignalBatch, check_quality
from lookback.scores.formula import Array

if TYPE_CHECKING:
    from lookback.signals import Candidates

NEEDS = {
    "signals": "what was recorded",
    "texts": "what was recorded, and the texts",
    "truth": "the quality of each response",
    "clip": "a CLIP model",
    "model": "the model, again",
}
"""What scorers may need beside the responses' signals, from the cheapest to the dearest."""
F = TypeVar("F", bound=Callable[..., Any])
KINDS: dict[type, tuple[Any, str]] = {
    bool: ((bool, np.bool_), "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
}
"""By the type of a setting's default: what a value must be an instance of, and in words."""
GREY = "#94a3b8"
"""The colour of a scorer that names none."""


class ScorerError(ValueError):
    """A scorer failed, or returned something else than one number per response; it is named."""


@dataclass(frozen=True)
class Scorer(FunctionEntry):
    """A registered scorer.

    Attributes:
        name: what users call it.
        function: from a batch (or the candidates of one question) and settings to scores.
        about: one line of description.
        needs: a key of `NEEDS`.
        uses: the abilities (`lookback.engines.ABILITIES`) that its engine must have.
        joint: whether a response's score depends on the other candidates.
        title: its name in tables and figures.
        color: its colour in figures.
        lower_is_better: whether a low value of `function` is good; its scores are then negated, so
            that a high score is good everywhere else.
        expected: for a scorer whose picks count by their expectation: over all candidates alike
            ("uniform"), or with its scores as probabilities ("shares").
        paper: its line in the paper's main table, from 1; None if it is not there.
        same_as: another scorer that always picks the same; tables then show that one alone.
        validate: called with all settings by name; raises ValueError if one is out of range.
    """

    name: str
    function: Callable[..., Any]
    about: str
    needs: str = "signals"
    uses: tuple[Any, ...] = ()
    joint: bool = False
    title: str = ""
    color: str = GREY
    lower_is_better: bool = False
    expected: Literal["uniform", "shares"] | None = None
    paper: int | None = None
    same_as: str | None = None
    validate: Callable[..., None] | None = None

    @property
    def own(self) -> bool:
        """Whether a user or another package registered it."""
        return SCORERS.own(self.name)

    @property
    def defaults(self) -> dict[str, Any]:
        """Return the default of each setting; None for one without."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        return {p.name: None if p.default is p.empty else p.default for p in parameters}

    def changed_since(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the recorded settings that are no longer the defaults."""
        now = json.loads(json.dumps(self.defaults, default=str))  # as they would be read again
        return {k: value for k, value in recorded.items() if k in now and value != now[k]}

    @property
    def from_signals(self) -> bool:
        """Whether it needs no model; the others score one question at a time."""
        return self.needs not in ("model", "clip")

    def of_batch(
        self, batch: SignalBatch, defaults: Mapping[str, float], params: Mapping[str, Any]
    ) -> Array:
        """Return one score per response: higher is better, NaN for an empty or pruned one.

        Args:
            batch: the responses.
            defaults: the model family's settings; those the scorer does not have are ignored.
            params: the caller's settings; one the scorer does not have is an error.
        """
        if not self.from_signals:
            raise SettingError(
                f"scorer {self.name!r} needs {NEEDS[self.needs]}: use rank() or best()"
            )
        if self.needs == "truth" and batch.quality is None:
            raise SettingError(
                f"scorer {self.name!r} needs the truth: give quality=[...], a number per response"
            )
        settings = self.settings(defaults, params)
        scores = np.full(len(batch.lengths), np.nan)
        kept = batch.scorable
        if kept.any():
            scores[kept] = self._call(batch.only_scorable(), int(kept.sum()), settings)
        return scores

    def of_candidates(self, candidates: Candidates, params: Mapping[str, Any]) -> Array:
        """Return the same for the candidates of one question; works for every scorer."""
        own = dict(params)
        if self.from_signals:
            batch = candidates.batch()
            if self.needs == "truth" and "quality" in own:
                batch = batch.with_quality(own.pop("quality"))
            return self.of_batch(batch, candidates.defaults, own)
        settings = self.settings(candidates.defaults, own)
        if not len(candidates):
            raise ValueError("there are no candidates to score")
        if candidates.asked is None:
            raise ValueError(
                f"scorer {self.name!r} needs {NEEDS[self.needs]}, and these candidates have "
                "neither engine nor image with them: score them again with engine.score(...)"
            )
        candidates.asked.engine.require(self.uses, f"scorer {self.name!r}")
        scores = np.full(len(candidates), np.nan)
        kept = np.array([c.scorable for c in candidates])
        if kept.any():
            scores[kept] = self._call(candidates.scorable(), int(kept.sum()), settings)
        return scores

    def check(self, params: Mapping[str, Any], count: int | None = None) -> None:
        """Check settings; of the package's own scorers the values too.

        Args:
            params: the settings.
            count: how many responses will be scored, where no quality is known but one in `params`.

        Raises:
            SettingError: there is no such setting, or its value is of another kind.
            ValueError: a value is out of range, or the quality of the responses is missing.
        """
        has = {*self.params, *(["quality"] if self.needs == "truth" else [])}
        unknown = set(params) - has
        if unknown:
            known = ", ".join(sorted(has)) or "none"
            hint = did_you_mean(min(unknown), has)
            raise SettingError(
                f"scorer {self.name!r} has no setting {min(unknown)!r}; it has: {known}{hint}"
            )
        if count is not None and self.needs == "truth":
            if "quality" not in params:
                raise ValueError(
                    f"scorer {self.name!r} needs {NEEDS['truth']}, which nobody knows here: give "
                    f"it, --set 'quality=[...]' with {count} numbers, or rank by another; "
                    "`lookback scorers` lists them"
                )
            check_quality(params["quality"], count)
        defaults = self.defaults
        if not self.own:
            for name, value in params.items():
                self._check_value(name, value, type(defaults.get(name)))
        if self.validate is not None:
            try:
                self.validate(**(defaults | {k: v for k, v in params.items() if k in defaults}))
            except WRONG_KIND as error:
                raise wrong_kind(f"scorer {self.name!r}", params, error) from error

    def _check_value(self, name: str, value: Any, kind: type) -> None:
        """Raise an error unless a value is of the kind of the setting's default."""
        if kind not in KINDS:
            return  # None, or a text: the scorer itself says what it takes
        takes, called = KINDS[kind]
        if not isinstance(value, takes) or (isinstance(value, bool) and kind is not bool):
            raise SettingError(
                f"scorer {self.name!r} cannot work with {name} = {value!r:.60}: must be {called}"
            )
        if not -math.inf < value < math.inf:
            raise ValueError(f"{name} = {value}: must be a finite number")

    def settings(self, defaults: Mapping[str, float], params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings to call its function with: the family's, then the caller's."""
        self.check(params)
        # The family's alpha and lambda are LookBack's; a scorer that means something else by these
        # names needs the model, and has defaults of its own.
        own = {k: v for k, v in defaults.items() if k in self.params} if self.from_signals else {}
        return own | dict(params)

    def _call(self, what: Any, count: int, settings: Mapping[str, Any]) -> Array:
        """Return its scores of `count` responses, checked."""
        try:
            values = self.function(what, **settings)
        except BaseException as error:
            if self.own and not is_interrupt(error):
                raise ScorerError(f"scorer {self.name!r} failed: {error_line(error)}") from error
            if settings and isinstance(error, WRONG_KIND):
                raise wrong_kind(f"scorer {self.name!r}", settings, error) from error
            raise  # its messages are ours already
        try:
            scores = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ScorerError(
                f"scorer {self.name!r} gave {values!r:.60}: it must give one number per response"
            ) from None
        if scores.shape != (count,):
            shape = f"{scores.size} values" if scores.ndim == 1 else f"an array of {scores.shape}"
            raise ScorerError(
                f"scorer {self.name!r} gave {shape} for {count} responses: it must give one number "
                "per response"
            )
        return -scores if self.lower_is_better else scores


def scorer(
    name: str,
    *,
    needs: str = "signals",
    uses: Sequence[str] = (),
    joint: bool = False,
    title: str | None = None,
    color: str = GREY,
    lower_is_better: bool = False,
    expected: Literal["uniform", "shares"] | None = None,
    paper: int | None = None,
    same_as: str | None = None,
    validate: Callable[..., None] | None = None,
) -> Callable[[F], F]:
    """Register a function as the scorer `name`; the first line of its docstring describes it.

    Args:
        name: what users call it.
        needs: a key of `NEEDS`.
        uses: the abilities that its engine must have, e.g. ("generate",).
        joint: whether a response's score depends on the other candidates.
        title: its name in tables and figures; `name` by default.
        color: its colour in figures, e.g. "#c2410c".
        lower_is_better: whether a low value is good.
        expected: see `Scorer`.
        paper: see `Scorer`.
        same_as: see `Scorer`.
        validate: called with all settings by name, before a model is loaded; raises ValueError if
            one is out of range.
    """
    if needs not in NEEDS:
        raise ValueError(f"needs = {needs!r}: a scorer needs one of {', '.join(NEEDS)}")

    def register(function: F) -> F:
        about = (inspect.getdoc(function) or "").split("\n")[0]
        SCORERS.add(
            Scorer(
                name,
                function,
                about,
                needs,
                tuple(uses),
                joint,
                title or name,
                color,
                lower_is_better,
                expected,
                paper,
                same_as,
                validate,
            )
        )
        return function

    return register


def _adopt(name: str, function: Any) -> None:
    scorer(name)(function)


SCORERS: Registry[Scorer] = Registry("scorer", HOMES, _adopt)


def get_scorer(name: str) -> Scorer:
    """Return the scorer called `name`.

    Raises:
        ValueError: there is none; the message lists those there are, by what they need.
    """
    if name in SCORERS.names():
        return SCORERS.get(name)
    by_need: dict[str, list[str]] = {}
    for known in scorers().values():
        by_need.setdefault(known.needs, []).append(known.name)
    listed = "; ".join(f"{', '.join(names)} ({NEEDS[need]})" for need, names in by_need.items())
    hint = did_you_mean(name, SCORERS.names())
    raise ValueError(f"no scorer named {name!r}; there are: {listed}{hint}")


def scorers() -> dict[str, Scorer]:
    """Return every scorer by name, from those that need least to those that need most."""
    costs = list(NEEDS)
    return dict(sorted(SCORERS.all().items(), key=lambda item: costs.index(item[1].needs)))


def best_first(scores: Array) -> NDArray[np.intp]:
    """Return indices from the highest score to the lowest; ties keep their order, NaN is last."""
    # Highest first: sort by (is it NaN, -score, place).
    return np.lexsort((np.arange(len(scores)), -np.nan_to_num(scores), np.isnan(scores)))

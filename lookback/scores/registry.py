"""One registry of scorers: what each is called, what it needs, which settings it has.

A scorer is a function that gives one number a response, higher is better. Most work on a ragged
batch of signals and texts, of one question or of a whole run:

    @scorer("mean_log_prob")
    def mean_log_prob(batch):
        return batch.mean(batch.log_prob)

Those that look again (`needs="model"` or "clip") get the candidates of one question instead, with
the engine and the image in `candidates.asked`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lookback.scores.formula import Array, concatenate, ragged_starts
from lookback.signals import SIGNALS, Signals

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


@dataclass(frozen=True, eq=False)
class SignalBatch:
    """The responses to one question or to many: their tokens' signals one after another.

    Attributes:
        lengths: (R,), the number of tokens of each response.
        sizes: the number of responses to each question; they stand together.
        texts: the R responses.
        log_prob, lookback, self_certainty, entropy: the signals of all tokens.
        quality: (R,), how good each response is, where that is known.
    """

    lengths: NDArray[np.intp]
    sizes: NDArray[np.intp]
    texts: tuple[str, ...]
    log_prob: Array
    lookback: Array
    self_certainty: Array
    entropy: Array
    quality: Array | None = None

    @classmethod
    def of(
        cls,
        signals: Sequence[Signals],
        texts: Sequence[str] | None = None,
        sizes: Sequence[int] | None = None,
        quality: Sequence[float] | None = None,
    ) -> SignalBatch:
        """The batch of some responses.

        Args:
            signals: one record a response.
            texts: the responses; by default what their tokens say.
            sizes: how many responses each question has; by default it is one question.
            quality: how good each response is.
        """
        if not signals:
            raise ValueError("there are no candidates to score")
        flat = {name: concatenate([getattr(s, name) for s in signals]) for name in SIGNALS}
        said = ["".join(s.tokens) for s in signals] if texts is None else texts
        counts = np.asarray([len(signals)] if sizes is None else sizes, dtype=np.intp)
        known = None if quality is None else np.asarray(quality, dtype=np.float64)
        for name, got in (("texts", len(said)), ("sizes", counts.sum())):
            if got != len(signals):
                raise ValueError(f"{name} are of {got} responses, signals of {len(signals)}")
        if known is not None and known.shape != (len(signals),):
            raise ValueError(f"quality has {known.size} values for {len(signals)} responses")
        arrays = {name: values for name, (values, _) in flat.items()}
        return cls(flat[SIGNALS[0]][1], counts, tuple(said), **arrays, quality=known)

    def mean(self, values: Array) -> Array:
        """The mean of a per-token array over each response."""
        return self.sum(values) / self.lengths

    def sum(self, values: Array) -> Array:
        """The sum of a per-token array over each response."""
        starts = ragged_starts(self.lengths, len(values))
        return np.asarray(np.add.reduceat(values, starts))

    def questions(self) -> list[slice]:
        """The responses of each question, as a slice of the batch."""
        ends = np.cumsum(self.sizes).tolist()
        return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def without_empty(self) -> SignalBatch:
        """The same batch with empty responses left out (they own no tokens)."""
        filled = self.lengths > 0
        if filled.all():
            return self
        sizes = np.array([filled[part].sum() for part in self.questions()], dtype=np.intp)
        return SignalBatch(
            self.lengths[filled],
            sizes,
            tuple(t for t, kept in zip(self.texts, filled, strict=True) if kept),
            **{name: getattr(self, name) for name in SIGNALS},
            quality=None if self.quality is None else self.quality[filled],
        )


@dataclass(frozen=True)
class Scorer:
    """A registered scorer.

    Attributes:
        name: what users call it.
        function: from a batch (or the candidates of one question) and settings to scores.
        about: a line on what it is.
        needs: a key of `NEEDS`.
        image: whether the picture has a say in its scores.
        together: whether a response's score depends on which others it stands with.
    """

    name: str
    function: Callable[..., Array]
    about: str
    needs: str
    image: bool
    together: bool

    @property
    def params(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(inspect.signature(self.function).parameters)[1:]

    @property
    def looks_again(self) -> bool:
        """Whether it needs the model or another one: it then works on one question at a time."""
        return self.needs in ("model", "clip")

    def of_batch(
        self, batch: SignalBatch, defaults: Mapping[str, float], params: Mapping[str, Any]
    ) -> Array:
        """One score a response, higher is better, NaN for an empty one.

        Args:
            batch: the responses.
            defaults: the model family's settings; those the scorer does not have are ignored.
            params: the caller's settings; one the scorer does not have is an error.
        """
        if self.looks_again:
            raise TypeError(f"scorer {self.name!r} needs {NEEDS[self.needs]}: use rank() or best()")
        if self.needs == "truth" and batch.quality is None:
            raise TypeError(
                f"scorer {self.name!r} needs the truth: give quality=[...], a number a response"
            )
        settings = self._settings(defaults, params)
        scores = np.full(len(batch.lengths), np.nan)
        filled = batch.lengths > 0
        if filled.any():
            scores[filled] = self.function(batch.without_empty(), **settings)
        return scores

    def of_candidates(self, candidates: Candidates, params: Mapping[str, Any]) -> Array:
        """The same for the candidates of one question; for all scorers."""
        given = dict(params)
        if not self.looks_again:
            batch = candidates.batch()
            if self.needs == "truth" and "quality" in given:
                batch = SignalBatch.of(
                    [c.signals for c in candidates], batch.texts, quality=given.pop("quality")
                )
            return self.of_batch(batch, candidates.defaults, given)
        if not len(candidates):
            raise ValueError("there are no candidates to score")
        if candidates.asked is None:
            raise ValueError(
                f"scorer {self.name!r} needs {NEEDS[self.needs]}, and these candidates have "
                "neither engine nor image with them: score them again with engine.score(...)"
            )
        settings = self._settings(candidates.defaults, given)
        scores = np.full(len(candidates), np.nan)
        filled = np.array([len(c.signals) > 0 for c in candidates])
        if filled.any():
            scores[filled] = self.function(candidates.filled(), **settings)
        return scores

    def check(self, params: Mapping[str, Any]) -> None:
        """Raise a TypeError that names a setting which this scorer does not have."""
        has = {*self.params, *(["quality"] if self.needs == "truth" else [])}
        unknown = set(params) - has
        if unknown:
            known = ", ".join(sorted(has)) or "none"
            raise TypeError(
                f"scorer {self.name!r} has no setting {min(unknown)!r}; it has: {known}"
            )

    def _settings(self, defaults: Mapping[str, float], params: Mapping[str, Any]) -> dict[str, Any]:
        self.check(params)
        # The family's alpha and lambda are LookBack's; a scorer that means something else by these
        # names looks again, and has defaults of its own.
        own = {} if self.looks_again else {k: v for k, v in defaults.items() if k in self.params}
        return own | dict(params)


_SCORERS: dict[str, Scorer] = {}


def scorer(
    name: str, *, needs: str = "signals", image: bool = False, together: bool = False
) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Register a function as the scorer `name`; the first line of its docstring describes it.

    Args:
        name: what users call it.
        needs: a key of `NEEDS`.
        image: whether the picture has a say in its scores.
        together: whether a response's score depends on which others it stands with.
    """
    if needs not in NEEDS:
        raise ValueError(f"needs = {needs!r}: a scorer needs one of {', '.join(NEEDS)}")

    def register(function: Callable[..., Array]) -> Callable[..., Array]:
        if name in _SCORERS and _SCORERS[name].function is not function:
            raise ValueError(f"there is already a scorer named {name!r}")
        about = (inspect.getdoc(function) or "").split("\n")[0]
        _SCORERS[name] = Scorer(name, function, about, needs, image, together)
        return function

    return register


def get_scorer(name: str) -> Scorer:
    """The scorer called `name`; an unknown name lists the known ones."""
    try:
        return scorers()[name]
    except KeyError:
        raise ValueError(f"no scorer named {name!r}; there are: {', '.join(scorers())}") from None


def scorers() -> dict[str, Scorer]:
    """Every registered scorer by name, from those that need least to those that need most.

    Beside the built-in ones and those registered so far: what the modules and files register that
    the environment variable LOOKBACK_PLUGINS names (separated like the entries of PATH).
    """
    import lookback.scores  # noqa: F401  (registers the built-in ones)

    for plugin in filter(None, os.environ.get("LOOKBACK_PLUGINS", "").split(os.pathsep)):
        load_plugin(plugin)
    costs = list(NEEDS)
    return dict(sorted(_SCORERS.items(), key=lambda item: costs.index(item[1].needs)))


def load_plugin(plugin: str) -> None:
    """Import a module by its name, or a Python file by its path, once; it registers scorers."""
    if not plugin.endswith(".py"):
        importlib.import_module(plugin)
        return
    path = Path(plugin).resolve()
    name = f"lookback_plugin_{path.stem}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise FileNotFoundError(f"no plugin {plugin}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def best_first(scores: Array) -> NDArray[np.intp]:
    """Indices from the highest score to the lowest; ties keep their order and NaN comes last."""
    # Highest first: sort by (is it NaN, -score, place).
    return np.lexsort((np.arange(len(scores)), -np.nan_to_num(scores), np.isnan(scores)))

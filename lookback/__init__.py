"""LookBack: which of N answers does the image support?

    import lookback

    lb = lookback.load("llava-hf/llava-1.5-7b-hf")
    best = lb.sample("photo.jpg", "What is on the table?", n=25, seed=42).best("lookback")

Importing this package loads neither torch nor transformers: names are fetched when first used.
"""

from __future__ import annotations as _annotations

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from lookback.benchmarks.base import benchmark
    from lookback.benchmarks.metrics import metric
    from lookback.conversations import Conversation, SourceError
    from lookback.engines import (
        AbilityError,
        Engine,
        Identity,
        UnsupportedModelError,
        engine,
        load,
    )
    from lookback.engines.transformers import record
    from lookback.families import FAMILIES, Family
    from lookback.looks.look import Look, Picture
    from lookback.runs import Run, open_run
    from lookback.scores.base import scorer, scorers
    from lookback.scores.formula import (
        lookback_score,
        lookback_scores,
        relevance,
        token_scores,
    )
    from lookback.signals import Candidate, Candidates, Signals
    from lookback.steering.pruning import Pruning
    from lookback.studies import study

__version__ = "0.2.0"

_HOMES = {
    "lookback.benchmarks.metrics": ("metric",),
    "lookback.benchmarks.base": ("benchmark",),
    "lookback.conversations": ("Conversation", "SourceError"),
    "lookback.engines": (
        "AbilityError",
        "Engine",
        "Identity",
        "UnsupportedModelError",
        "engine",
        "load",
    ),
    "lookback.engines.transformers": ("record",),
    "lookback.families": ("FAMILIES", "Family"),
    "lookback.looks.look": ("Look", "Picture"),
    "lookback.runs": ("Run", "open_run"),
    "lookback.scores.base": ("scorer", "scorers"),
    "lookback.scores.formula": ("lookback_score", "lookback_scores", "relevance", "token_scores"),
    "lookback.signals": ("Candidate", "Candidates", "Signals"),
    "lookback.steering.pruning": ("Pruning",),
    "lookback.studies": ("study",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "FAMILIES",
    "AbilityError",
    "Candidate",
    "Candidates",
    "Conversation",
    "Engine",
    "Family",
    "Identity",
    "Look",
    "Picture",
    "Pruning",
    "Run",
    "Signals",
    "SourceError",
    "UnsupportedModelError",
    "benchmark",
    "engine",
    "load",
    "lookback_score",
    "lookback_scores",
    "metric",
    "open_run",
    "record",
    "relevance",
    "scorer",
    "scorers",
    "study",
    "token_scores",
]


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lookback' has no attribute {name!r}")
    return getattr(_importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

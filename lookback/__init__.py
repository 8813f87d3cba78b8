"""LookBack: which of N answers does the image support?

    import lookback

    lb = lookback.load("llava-hf/llava-1.5-7b-hf")
    best = lb.sample("photo.jpg", "What is on the table?", n=25, seed=42).best("lookback")

Importing this package loads neither torch nor transformers: names are fetched when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lookback.engines import Engine, UnsupportedModelError
    from lookback.engines.transformers import load, record
    from lookback.families import FAMILIES, Family
    from lookback.runs import Run, open_run
    from lookback.scores.formula import (
        lookback_score,
        lookback_scores,
        relevance,
        token_scores,
    )
    from lookback.scores.registry import scorer, scorers
    from lookback.signals import Candidate, Candidates, Signals

__version__ = "0.1.0"

_HOME = {
    "load": "lookback.engines.transformers",
    "record": "lookback.engines.transformers",
    "Engine": "lookback.engines",
    "UnsupportedModelError": "lookback.engines",
    "FAMILIES": "lookback.families",
    "Family": "lookback.families",
    "Run": "lookback.runs",
    "open_run": "lookback.runs",
    "lookback_score": "lookback.scores.formula",
    "lookback_scores": "lookback.scores.formula",
    "relevance": "lookback.scores.formula",
    "token_scores": "lookback.scores.formula",
    "scorer": "lookback.scores.registry",
    "scorers": "lookback.scores.registry",
    "Candidate": "lookback.signals",
    "Candidates": "lookback.signals",
    "Signals": "lookback.signals",
}

__all__ = [
    "FAMILIES",
    "Candidate",
    "Candidates",
    "Engine",
    "Family",
    "Run",
    "Signals",
    "UnsupportedModelError",
    "load",
    "lookback_score",
    "lookback_scores",
    "open_run",
    "record",
    "relevance",
    "scorer",
    "scorers",
    "token_scores",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lookback' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])

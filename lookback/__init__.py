"""LookBack: which of N answers does the image support?

    import lookback

    lb = lookback.load("llava-hf/llava-1.5-7b-hf")
    best = lb.sample("photo.jpg", "What is on the table?", n=25, seed=42).best("lookback")

Importing this package loads neither torch nor transformers: names are fetched when first used.
"""

from __future__ import annotations as _annotations

import ast as _ast
import importlib as _importlib
import typing as _typing
from pathlib import Path as _Path

__version__ = "0.2.0"


def _read_stub() -> dict[str, str]:
    """Return the module of each public name, as the imports of the stub beside this file say it."""
    stub = _ast.parse(_Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, _ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOMES = _read_stub()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lookback' has no attribute {name!r}")
    return getattr(_importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

"""Libraries that an export needs, asked for by name."""

from __future__ import annotations

import importlib
from typing import Any


def need(module: str, package: str, form: str) -> Any:
    """The module of a library.

    Raises:
        ImportError: it is not installed; the message says what to do.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = getattr(error, "name", None) or package
        why = "" if name.partition(".")[0] == module.partition(".")[0] else f" ({error})"
        raise ImportError(
            f"--to {form} needs {package}{why}: pip install 'lookback-vlm[export]'"
        ) from error

"""The boundary of the command: every error becomes one line on stderr and a status.

What users can cause is an error with a message of its own, raised where the thing can be named: a
ValueError, an OSError, an ImportError, a SettingError; or a FloatingPointError, where a model's
numbers are not finite. All else is a bug, of a plugin if it passed through one and else of
LookBack, and the line says so. `LOOKBACK_TRACEBACK=1` shows where it was.
"""

from __future__ import annotations

import os
import sys
import traceback

from lookback.cli.terminal import LONGEST, printable
from lookback.errors import error_line
from lookback.registry import SettingError, plugin_in

TRACEBACK_VARIABLE = "LOOKBACK_TRACEBACK"
EXPECTED = (ValueError, OSError, ImportError, SettingError, FloatingPointError)


def report(error: Exception) -> None:
    """Say in one line what is wrong; before it the traceback, if the environment asks for it."""
    if os.environ.get(TRACEBACK_VARIABLE, "") not in ("", "0"):
        traceback.print_exception(error)
    print(f"lookback: {explain(error)}", file=sys.stderr)


def explain(error: Exception) -> str:
    """An error in one line: what users did, which plugin failed, or that it is a bug."""
    if (plugin := plugin_in(error.__traceback__)) is not None:
        line = plugin_failure(plugin, error)
    elif isinstance(error, MemoryError):
        line = f"out of memory{_after_colon(error)}: ask for less at once, or free some memory"
    elif isinstance(error, EXPECTED):
        line = str(error) or type(error).__name__
    else:
        line = (
            f"this is a bug: {error_line(error)}; please report it in the project's issue tracker, "
            f"with the command and the traceback ({TRACEBACK_VARIABLE}=1 shows it)"
        )
    line = printable(" ".join(line.split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}... ({len(line)} characters)"


def plugin_failure(plugin: str, error: BaseException) -> str:
    """What is said of a plugin that raised an error."""
    return f"the plugin {plugin} failed: {error_line(error)} ({TRACEBACK_VARIABLE}=1 shows where)"


def _after_colon(error: Exception) -> str:
    return f": {error}" if str(error) else ""

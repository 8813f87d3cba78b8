"""The `lookback` command: parse, call, print. Results on stdout, everything else on stderr."""

from __future__ import annotations

import io
import sys
import warnings
from typing import TextIO

# isort: off
# Each module adds its commands; --help lists them in this order.
import lookback.cli.annotate
import lookback.cli.ask
import lookback.cli.score
import lookback.cli.benchmarks
import lookback.cli.demo
import lookback.cli.export
import lookback.cli.kept_runs
import lookback.cli.look
import lookback.cli.models
import lookback.cli.runs
import lookback.cli.serve
import lookback.cli.studies  # noqa: F401

# isort: on
from lookback.cli.app import app
from lookback.cli.terminal import report, say

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; a failure becomes one line on stderr and exit status 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # there may be none
        # Characters that the encoding lacks, in file names and answers, are printed as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # e.g. `lookback ask ... | head`
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:
        report(error)
        sys.exit(1)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a library's warning as a note: one line, without its place in the code."""
    say(f"warning: {message}")

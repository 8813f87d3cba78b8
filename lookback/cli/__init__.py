"""The `lookback` command: parse, call, print. Results on stdout, everything else on stderr."""

from __future__ import annotations

import sys

import lookback.cli.answers
import lookback.cli.benchmarks
import lookback.cli.models
import lookback.cli.runs  # noqa: F401  (each adds its commands)
from lookback.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; expected failures become one line on stderr and exit status 1."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # e.g. `lookback ask ... | head`
        sys.stderr.close()
        sys.exit(141)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"lookback: {error}", file=sys.stderr)
        sys.exit(1)

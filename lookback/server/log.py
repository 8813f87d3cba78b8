"""The server's log: one line per request, and nothing that anybody asked."""

from __future__ import annotations

import ctypes
import logging
import sys
import warnings
from contextlib import suppress

from PIL import _imaging

LOG = logging.getLogger("lookback.server")
LONGEST = 2000
"""Characters of a line: a method, or a question that is logged, has any length."""


class LineFormatter(logging.Formatter):
    """Cuts lines that are too long."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as its line, or lines with a traceback."""
        lines = super().format(record).split("\n")
        return "\n".join(x if len(x) <= LONGEST else f"{x[:LONGEST]}..." for x in lines)


def start_log(quiet: bool = False) -> None:
    """Write it to stderr; `quiet`: failures alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    silence_pillow()
    own = logging.WARNING if quiet else logging.INFO
    for name, level in ((LOG.name, own), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def silence_pillow() -> None:
    """Keep out of the log what Pillow says of strangers' pictures: up to a line for each tag."""
    warnings.filterwarnings("ignore", module="PIL")
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    with suppress(OSError, AttributeError):  # libtiff, which writes to stderr itself
        ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)

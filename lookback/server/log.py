"""The server's log: one line per request, and nothing that anybody asked."""

from __future__ import annotations

import logging
import sys

LOG = logging.getLogger("lookback.server")


def start_log(quiet: bool = False) -> None:
    """Write it to stderr; `quiet`: failures alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    own = logging.WARNING if quiet else logging.INFO
    for name, level in ((LOG.name, own), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)

"""The server's process: uvicorn, its socket, its signals, its log."""

from __future__ import annotations

import ctypes
import logging
import socket
import sys
import warnings
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI
from PIL import _imaging

from lookback.io.hosts import cannot_serve, check_host
from lookback.server.connections import Connection
from lookback.server.settings import Settings


class Server(uvicorn.Server):
    """A server that sends away those who wait when it is told to end; who is at work goes on."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: no new requests, a grace for those at work, then all of them are given up."""
        self.config.app.state.desk.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 takes one that is free.

    Raises:
        OSError: it cannot be had.
        ValueError: the host is empty.
    """
    check_host(host)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # asyncio turns Nagle's algorithm off for sockets that are said to be TCP's.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(1024)
    except (OSError, OverflowError) as error:
        raise cannot_serve(host, port, error) from None
    found.set_inheritable(True)
    return found


def address(bound: socket.socket) -> str:
    """The URL of what is served there."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: FastAPI, settings: Settings) -> Server:
    """A server for the application, not yet started."""
    protocol: Any = partial(Connection, limits=settings.limits, clients={})
    config: Any = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        access_log=False,
        log_config=None,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(settings.limits.grace)),
    )
    return Server(config)


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

"""The server's process: uvicorn, its connections, its socket, its signals, its log.

uvicorn waits for the first byte of a connection, for the rest of a request's head and for a client
that does not read its answer, however long it takes. Here a timer always runs, and beyond so many
connections one that waits for its client is dropped for each that comes.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import socket
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from PIL import _imaging
from uvicorn.protocols.http.h11_impl import H11Protocol

from lookback.io.hosts import cannot_serve, check_host
from lookback.server.errors import LOG
from lookback.server.settings import Limits, Settings

HEAD = 65_536
"""Bytes of a request's head."""
MOST = 800
"""Open connections, with the usual limits: a process may have 1024 files open, sockets included."""
SPARE = 256
"""Connections that one address may have beside those of requests that are served or queued."""
CHUNKS = 10_000
"""Of a body whose length is not said before: each takes as long to parse as a large one."""


class Parser(h11.Connection):
    """Refuses a body in too many chunks."""

    def next_event(self) -> Any:
        """Return what came next; raise RemoteProtocolError for one chunk too many."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.chunks = 0
        elif isinstance(event, h11.Data) and event.chunk_start:
            self.chunks += 1
            if self.chunks > CHUNKS:
                raise h11.RemoteProtocolError("too many chunks")
        return event


class Connection(H11Protocol):
    """A connection that is dropped when its client takes too long, or has too many of them.

    Args:
        limits: a client has `body_seconds` to send the head of its next request, and as long after
            the deadline to take the answer.
        clients: the connections of each address; shared by all of them.
        settings: uvicorn's.
    """

    def __init__(
        self, *, limits: Limits, clients: dict[str, set[Connection]], **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.conn = Parser(h11.SERVER, HEAD)
        self._limits, self._clients = limits, clients
        self._app, self.app = self.app, self._serve
        self._timer: asyncio.TimerHandle | None = None
        self.since = 0.0

    @property
    def address(self) -> str:
        """The address of the client, or of a proxy before the server."""
        return self.client[0] if self.client else ""

    @property
    def waits_for_client(self) -> bool:
        """Whether there is no request, or one of which not all has come."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer; beyond a limit, drop another connection."""
        super().connection_made(transport)
        own = self._clients.setdefault(self.address, set())
        own.add(self)
        self._start_timer(self._limits.body_seconds)
        allowed = self._limits.queue + self._limits.in_flight + SPARE
        if len(own) > allowed:
            self._make_room(own)
        elif len(self.connections) > max(MOST, 2 * allowed):
            self._make_room(self.connections)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        super().connection_lost(exc)
        self._stop_timer()
        own = self._clients.get(self.address, set())
        own.discard(self)
        if not own:
            self._clients.pop(self.address, None)

    def _make_room(self, others: Iterable[Any]) -> None:
        """Drop the connection that has waited for its client for longest, or refuse this one."""
        waiting = [other for other in others if other is not self and other.waits_for_client]
        if waiting:
            min(waiting, key=lambda other: other.since).transport.abort()
        else:
            self.limit_concurrency = 0  # its request is answered with 503

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        # The deadline and the time for the body are `Guard`'s: it has said so by then.
        self._start_timer(self._limits.seconds + 2 * self._limits.body_seconds)
        try:
            await self._app(scope, receive, send)
            await self.flow.drain()
        finally:
            if scope is self.scope and self in self.connections:  # no other came, and it is open
                self._start_timer(self._limits.body_seconds)

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self.since = self.loop.time()
        # Not `close`, which waits until all is sent.
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """A server that refuses waiting requests when it is told to end; those at work go on."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new requests; those at work are given up after a grace period."""
        self.config.app.state.scheduler.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 takes one that is free.

    Raises:
        OSError: the address cannot be had.
        ValueError: the host is empty.
    """
    check_host(host)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # asyncio turns Nagle's algorithm off for sockets that are said to be TCP's.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(1024)
    except (OSError, OverflowError) as error:
        raise cannot_serve(host, port, error) from None
    bound.set_inheritable(True)
    return bound


def address(bound: socket.socket) -> str:
    """Return the URL of what a socket serves."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: FastAPI, settings: Settings) -> Server:
    """Return a server for the application, not yet started."""
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


LONGEST = 2000
"""Characters of a line: a method, or a question that is logged, has any length."""


class LineFormatter(logging.Formatter):
    """Cuts lines that are too long."""

    def format(self, record: logging.LogRecord) -> str:
        lines = super().format(record).split("\n")
        return "\n".join(x if len(x) <= LONGEST else f"{x[:LONGEST]}..." for x in lines)


def start_log(quiet: bool = False) -> None:
    """Log to stderr; failures alone, if `quiet`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    silence_pillow()
    own = logging.WARNING if quiet else logging.INFO
    for name, level in ((LOG.name, own), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def silence_pillow() -> None:
    """Keep Pillow's warnings about clients' images out of the log: up to a line for each tag."""
    warnings.filterwarnings("ignore", module="PIL")
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    with suppress(OSError, AttributeError):  # libtiff, which writes to stderr itself
        ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)

"""The start and the end of a server: uvicorn, its socket, its signals."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn
from fastapi import FastAPI

from lookback.hosting import cannot_serve
from lookback.server.settings import Settings

CONNECTIONS = 2000
"""Open connections beyond which uvicorn answers 503."""


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
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        found = socket.socket(family, socket.SOCK_STREAM)
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
    config: Any = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        lifespan="off",
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(settings.limits.grace)),
        h11_max_incomplete_event_size=65536,
    )
    return Server(config)

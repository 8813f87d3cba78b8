"""The start and the end of a server: uvicorn, its socket, its signals."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from lookback.hosting import cannot_serve, check_host
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

"""What holds for every request, before and behind its route: an ASGI middleware.

A request gets an id, must know the key, may not be too large or too slow, and is logged in one
line without anything that it says.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders

from lookback.hosting import host_name
from lookback.server.errors import ApiError, tell
from lookback.server.log import LOG
from lookback.server.metrics import Metrics
from lookback.server.settings import MIB, Settings

OPEN = ("/", "/health", "/ready", "/docs", "/openapi.json", "/favicon.ico")
"""Paths that need no key."""
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """The middleware.

    Args:
        app: what it stands before.
        settings: key, limits and names.
        metrics: counts requests.
        paths: those that there are; others are counted as one.
    """

    def __init__(self, app: App, settings: Settings, metrics: Metrics, paths: set[str]) -> None:
        self.app, self.settings, self.metrics, self.paths = app, settings, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request pass, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request = Request(scope, headers, send)
        limits = self.settings.limits
        body = Body(receive, limits.body_mib * MIB, limits.body_seconds)
        try:
            self._check(scope["path"], headers)
            body.check_length(headers.get("content-length"))
            # Beyond its own deadline a request has a little time to say so; and to be read.
            async with asyncio.timeout(limits.seconds + limits.body_seconds) as whole:
                await self.app(scope, body.receive, request.send)
        except Exception as error:
            if isinstance(error, TimeoutError) and whole.expired():
                self.metrics.late.inc()
                error = ApiError(504, "this took too long", code="deadline")
            await self._answer(request, tell(error, request.id))
        finally:
            self._log(scope, request)

    def _check(self, path: str, headers: Headers) -> None:
        name = host_name(headers.get("host", ""))
        if self.settings.hosts is not None and name not in self.settings.hosts:
            raise ApiError(403, f"this server is not {name[:60]!r}", code="host")
        if self.settings.api_key is not None and path not in OPEN:
            given = headers.get("authorization", "").removeprefix("Bearer ").strip()
            if not hmac.compare_digest(given.encode("latin-1"), self.settings.api_key.encode()):
                raise ApiError(
                    401,
                    "a key is needed: Authorization: Bearer KEY",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )

    async def _answer(self, request: Request, error: ApiError) -> None:
        if request.status:  # its head is out: the connection breaks off
            return
        await error.answer()(request.scope, _nothing, request.send)

    def _log(self, scope: Scope, request: Request) -> None:
        seconds = time.monotonic() - request.began
        path = scope["path"] if scope["path"] in self.paths else "other"
        status = str(request.status or 499)
        self.metrics.requests.labels(path, status).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        LOG.info(
            "%s %s %s %s %.3fs %s",
            *(request.id, scope["method"], path, status, seconds, request.client),
        )


class Request:
    """One request, and what was answered so far."""

    def __init__(self, scope: Scope, headers: Headers, send: Send) -> None:
        given = headers.get("x-request-id", "")
        self.scope, self._send = scope, send
        self.id = given if _ID.fullmatch(given) else uuid4().hex
        self.client = (scope.get("client") or ("unknown",))[0]
        self.began = time.monotonic()
        self.status = 0
        scope.setdefault("state", {}).update(id=self.id, client=self.client, began=self.began)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the answer; its head gets the id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self.id
            headers["X-Content-Type-Options"] = "nosniff"
        await self._send(message)


class Body:
    """A request's body, counted while it comes.

    Args:
        receive: gives it.
        most: bytes.
        seconds: until all of it is there.
    """

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive, self._most, self._seconds = receive, most, seconds
        self._size, self._whole = 0, False
        self._until = time.monotonic() + seconds

    def check_length(self, declared: str | None) -> None:
        """Refuse a body by what its head says.

        Raises:
            ApiError: it is too large.
        """
        if declared is not None and declared.isdecimal() and int(declared[:18]) > self._most:
            raise self._too_large()

    async def receive(self) -> MutableMapping[str, Any]:
        """The next part.

        Raises:
            ApiError: it is too large, or too slow.
        """
        if self._whole:  # what comes now is that the client went away
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise ApiError(
                408, f"the request did not arrive within {self._seconds:g} s", code="slow"
            ) from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._size > self._most:
                raise self._too_large()
        return message

    def _too_large(self) -> ApiError:
        mib = self._most / MIB
        return ApiError(413, f"the request has more than {mib:g} MiB", code="too_large")


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}

"""What holds for every request, before and behind its route: an ASGI middleware.

A request gets an id, must know the key, may not be too large or too slow, and is logged in one
line without anything that it says.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders

from lookback.io.hosts import host_name
from lookback.server.errors import ApiError, tell
from lookback.server.metrics import Metrics
from lookback.server.process import LOG
from lookback.server.settings import MIB, Limits, Settings

PIECES = 20_000
"""Objects and lists of a request: to read one of millions stops the server for minutes."""
OPEN = ("/", "/health", "/ready", "/docs", "/openapi.json", "/favicon.ico")
"""Paths that need no key."""
DOCS_ASSETS = "/docs/assets/"
"""Nor do those below this one: Swagger UI's script and style."""
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
        check_room: raises ApiError if a client's request would find no place.
    """

    def __init__(
        self,
        app: App,
        settings: Settings,
        metrics: Metrics,
        paths: set[str],
        check_room: Callable[[str], None],
    ) -> None:
        self.app, self.settings, self.metrics, self.paths = app, settings, metrics, paths
        self._check_room = check_room
        self._held = HeldBytes(settings.limits.bodies_mib * MIB)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request pass, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request = Request(scope, headers, send)
        limits = self.settings.limits
        # What is asked of the model needs a place; the explorer's own requests do not.
        check_room = self._check_room if scope["path"].startswith("/v1/") else None
        body = Body(receive, request.client, limits, self._held, check_room)
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
            body.release()
            self._log(scope, request)

    def _check(self, path: str, headers: Headers) -> None:
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy before the server may have believed the other one: what follows on the
            # connection is somebody else's.
            words = "a request has either Transfer-Encoding or Content-Length"
            raise ApiError(400, words, code="framing", headers={"Connection": "close"})
        name = host_name(headers.get("host", ""))
        if self.settings.hosts is not None and name not in self.settings.hosts:
            raise ApiError(403, f"this server is not {name[:60]!r}", code="host")
        if self.settings.api_key is not None and not is_open(path):
            scheme, _, key = headers.get("authorization", "").partition(" ")
            known = self.settings.api_key.encode()
            right = hmac.compare_digest(key.strip().encode("latin-1"), known)
            if not right or scheme.lower() != "bearer":
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
        seconds = now() - request.began
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
        self.began = now()
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


class HeldBytes:
    """The bytes of all requests that are held at once, by client.

    Args:
        most: in all; one client may have half of them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sizes: Counter[str] = Counter()

    def add(self, client: str, size: int) -> None:
        """Raise ApiError if a client, or all together, hold too much with these."""
        self._sizes[client] += size
        if self._sizes[client] > self._most // 2 or self._sizes.total() > self._most:
            raise ApiError(
                429,
                "the requests that are held have too many bytes together: try again later",
                code="bodies_full",
                headers={"Retry-After": "5"},
            )

    def remove(self, client: str, size: int) -> None:
        """Forget what was added."""
        self._sizes -= Counter({client: size})  # which keeps no zeros


class Body:
    """A request's body, which is read once there is room for it, and counted while it comes.

    Args:
        receive: gives it.
        client: whose it is.
        limits: bytes, and seconds until all of it is there.
        held: counts the bytes of all requests.
        check_room: raises ApiError if there is no room for the client; None if none is needed.
    """

    def __init__(
        self,
        receive: Receive,
        client: str,
        limits: Limits,
        held: HeldBytes,
        check_room: Callable[[str], None] | None,
    ) -> None:
        self._receive, self._client, self._held = receive, client, held
        self._check_room = check_room
        self._most, self._seconds = limits.body_mib * MIB, limits.body_seconds
        # Texts have commas, too, and given responses one for each token.
        self._values = PIECES + limits.characters + limits.best_of * limits.tokens
        self._pieces = PIECES
        self._size, self._whole = 0, False
        self._until = now() + limits.body_seconds

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
            ApiError: it is too large, or too slow, or there is no room for it.
        """
        if self._whole:  # what comes now is that the client went away
            return await self._receive()
        if self._check_room is not None:
            self._check_room(self._client)
            self._check_room = None
        try:
            async with asyncio.timeout(max(0.0, self._until - now())):
                message = await self._receive()
        except TimeoutError:
            raise ApiError(
                408, f"the request did not arrive within {self._seconds:g} s", code="slow"
            ) from None
        if message["type"] == "http.request":
            data = message.get("body", b"")
            self._size += len(data)
            self._held.add(self._client, len(data))
            self._count(data)
            self._whole = not message.get("more_body", False)
            if self._size > self._most:
                raise self._too_large()
        return message

    def _count(self, data: bytes) -> None:
        """Raise ApiError if there is too much to read, by its commas and brackets."""
        self._values -= data.count(b",")
        self._pieces -= data.count(b"{") + data.count(b"[")
        if self._values < 0 or self._pieces < 0:
            words = "the request has too many values, objects or lists"
            raise ApiError(400, words, code="too_many_values")

    def release(self) -> None:
        """Say that it is held no longer."""
        self._held.remove(self._client, self._size)

    def _too_large(self) -> ApiError:
        mib = self._most / MIB
        return ApiError(413, f"the request has more than {mib:g} MiB", code="too_large")


def is_open(path: str) -> bool:
    return path in OPEN or path.startswith(DOCS_ASSETS)


def now() -> float:
    """Return the event loop's time, by which deadlines end."""
    return asyncio.get_running_loop().time()


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}

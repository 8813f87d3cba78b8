"""What holds for every request, before and behind its route: a middleware, and the metrics.

A request gets an id, must know the key, may not be too large or too slow, and is logged in one
line without anything that it says.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import prometheus_client as prometheus
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lookback.io.hosts import host_name
from lookback.server.errors import LOG, ApiError, from_exception
from lookback.server.scheduler import RequestScheduler
from lookback.server.settings import MIB, Limits, Settings
from lookback.signals import PRUNED, Candidates

if TYPE_CHECKING:
    from lookback.engines.base import PrefixCounts

PIECES = 20_000
"""Objects and lists of a request: to read one of millions stops the server for minutes."""
OPEN = ("/", "/health", "/ready", "/docs", "/openapi.json", "/favicon.ico")
"""Paths that need no key."""
DOCS_ASSETS = "/docs/assets/"
"""Nor do those below this one: Swagger UI's script and style."""
CLIENT_GONE = 499
"""The status in the log of a request whose client did not wait for its answer."""
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Guard:
    """The middleware.

    Args:
        app: what it protects.
        settings: key, limits and names.
        metrics: counts requests.
        paths: those that there are; others are counted as one.
        scheduler: refuses what is asked of the model if there is no room for it.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics,
        paths: set[str],
        scheduler: RequestScheduler,
    ) -> None:
        self.app, self.settings, self.metrics, self.paths = app, settings, metrics, paths
        self._scheduler = scheduler
        self._held = HeldBytes(settings.limits.bodies_mib * MIB)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        exchange = Exchange(scope, headers, send)
        limits = self.settings.limits
        # What is asked of the model needs a place; the explorer's own requests do not.
        asks_model = scope["path"].startswith("/v1/")
        scheduler = self._scheduler if asks_model else None
        body = Body(receive, exchange.client, limits, self._held, scheduler)
        try:
            self._check(scope["path"], headers)
            body.check_length(headers.get("content-length"))
            # Beyond its own deadline a request has a little time to say so; and to be read.
            async with asyncio.timeout(limits.seconds + limits.body_seconds) as whole:
                await self.app(scope, body.receive, exchange.send)
        except Exception as error:
            if isinstance(error, TimeoutError) and whole.expired():
                self.metrics.late.inc()
                error = ApiError(504, "this took too long", code="deadline")
            await exchange.refuse(from_exception(error, exchange.id))
        finally:
            body.release()
            self._log(scope, exchange)

    def _check(self, path: str, headers: Headers) -> None:
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy before the server may have believed the other one: what follows on the
            # connection is somebody else's.
            message = "a request has either Transfer-Encoding or Content-Length"
            raise ApiError(400, message, code="framing", headers={"Connection": "close"})
        name = host_name(headers.get("host", ""))
        if self.settings.hosts is not None and name not in self.settings.hosts:
            raise ApiError(403, f"this server is not {name[:60]!r}", code="host")
        is_open = path in OPEN or path.startswith(DOCS_ASSETS)
        if self.settings.api_key is not None and not is_open:
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

    def _log(self, scope: Scope, exchange: Exchange) -> None:
        seconds = now() - exchange.began
        path = scope["path"] if scope["path"] in self.paths else "other"
        status = str(exchange.status or CLIENT_GONE)
        self.metrics.requests.labels(path, status).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        LOG.info(
            "%s %s %s %s %.3fs %s",
            *(exchange.id, scope["method"], path, status, seconds, exchange.client),
        )


class Exchange:
    """One request, and what was answered so far."""

    def __init__(self, scope: Scope, headers: Headers, send: Send) -> None:
        proposed = headers.get("x-request-id", "")
        self.scope, self._send = scope, send
        self.id = proposed if _ID.fullmatch(proposed) else uuid4().hex
        self.client = (scope.get("client") or ("unknown",))[0]
        self.began = now()
        self.status = 0
        scope.setdefault("state", {}).update(id=self.id, client=self.client, began=self.began)

    async def send(self, message: Message) -> None:
        """Send a part of the answer; its head gets the id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self.id
            headers["X-Content-Type-Options"] = "nosniff"
        await self._send(message)

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error; after the head of an answer, only break the connection off."""

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        if not self.status:
            await error.response()(self.scope, receive, self.send)


class HeldBytes:
    """Counts the bytes of all requests that are held at once, by client.

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
        self._sizes -= Counter({client: size})  # which keeps no zeros


class Body:
    """A request's body, which is read once there is room for it, and counted while it comes.

    Args:
        receive: gives it.
        client: the client's address.
        limits: bytes, and seconds until all of it is there.
        held: counts the bytes of all requests.
        scheduler: says whether there is room for the client; None if none is needed.
    """

    def __init__(
        self,
        receive: Receive,
        client: str,
        limits: Limits,
        held: HeldBytes,
        scheduler: RequestScheduler | None,
    ) -> None:
        self._receive, self._client, self._held = receive, client, held
        self._scheduler = scheduler
        self._most, self._seconds = limits.body_mib * MIB, limits.body_seconds
        # Texts have commas, too, and given responses one for each token.
        self._values = PIECES + limits.characters + limits.best_of * limits.tokens
        self._pieces = PIECES
        self._size, self._whole = 0, False
        self._until = now() + limits.body_seconds

    def check_length(self, declared: str | None) -> None:
        """Raise ApiError if a body is too large by what its head says."""
        if declared is not None and declared.isdecimal() and int(declared[:18]) > self._most:
            raise self._too_large()

    async def receive(self) -> Message:
        """Return the next part; raise ApiError if it is too large or slow, or has no room."""
        if self._whole:  # what comes now is that the client went away
            return await self._receive()
        if self._scheduler is not None:
            self._scheduler.check_room((self._client, ""))  # the body names the user
            self._scheduler = None
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
            message = "the request has too many values, objects or lists"
            raise ApiError(400, message, code="too_many_values")

    def release(self) -> None:
        self._held.remove(self._client, self._size)

    def _too_large(self) -> ApiError:
        mib = self._most / MIB
        return ApiError(413, f"the request has more than {mib:g} MiB", code="too_large")


def require_json(request: Request) -> None:
    """Raise ApiError unless the body is JSON, which browsers send for no page of another site."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "send application/json", code="content_type")


def now() -> float:
    """Return the event loop's time, by which deadlines end."""
    return asyncio.get_running_loop().time()


BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120)


class Metrics:
    """What Prometheus reads at /metrics; no text of anybody is in it.

    Args:
        scheduler: knows how many wait and are at work.
        prefixes: the prompts that the engine keeps, if it keeps any.
    """

    def __init__(self, scheduler: RequestScheduler, prefixes: PrefixCounts | None = None) -> None:
        self.registry = prometheus.CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> prometheus.Counter:
            return prometheus.Counter(f"lookback_{name}", about, labels, registry=self.registry)

        def histogram(name: str, about: str, *labels: str) -> prometheus.Histogram:
            whole = f"lookback_{name}"
            return prometheus.Histogram(
                whole, about, labels, buckets=BUCKETS, registry=self.registry
            )

        def gauge(name: str, about: str, *labels: str) -> prometheus.Gauge:
            return prometheus.Gauge(f"lookback_{name}", about, labels, registry=self.registry)

        self.requests = counter("requests", "Requests that were answered", "path", "status")
        self.seconds = histogram("request_seconds", "From the request to its answer", "path")
        self.waited = histogram("queue_seconds", "In the line, until the work began")
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts")
        self.tokens = counter("tokens", "Tokens that were drawn, of all candidates")
        self.candidates = counter("candidates", "Candidates that were drawn")
        self.pruned = counter("candidates_pruned", "Candidates that were ended early")
        self.gone = counter("clients_gone", "Requests whose client went away")
        self.late = counter("deadlines", "Requests that took too long")
        gauge("queue", "Requests that wait").set_function(lambda: scheduler.waiting)
        gauge("in_flight", "Requests at work").set_function(lambda: scheduler.at_work)
        if prefixes is not None:
            about = "Prompts: kept ones asked again, begun as a kept one, or new"
            prompts = gauge("prompts", about, "kind")
            for kind in ("same", "continued", "new"):
                prompts.labels(kind).set_function(partial(getattr, prefixes, kind))
            about = "Tokens of prompts that did not go through the model"
            gauge("prompt_tokens_saved", about).set_function(lambda: prefixes.saved)

    def count_candidates(self, candidates: Candidates) -> None:
        self.prompt_tokens.inc(len(candidates.prompt_ids))
        self.tokens.inc(sum(len(candidate.tokens) for candidate in candidates))
        self.candidates.inc(len(candidates))
        self.pruned.inc(sum(candidate.finish == PRUNED for candidate in candidates))

    def text(self) -> tuple[bytes, str]:
        """Return the metrics in Prometheus' text format, and its media type."""
        return prometheus.generate_latest(self.registry), prometheus.CONTENT_TYPE_LATEST

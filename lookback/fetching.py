"""Bytes from a URL: who may be asked, for how long, and for how much.

Under the policy "public" only public addresses are asked: no loopback, private, link-local,
multicast or reserved ones, and none that carry an IPv4 address inside an IPv6 one. A name is looked
up once, all its addresses are checked, and the connection is made to one of those, so that a second
lookup cannot give another. Every redirect is checked like the first URL. No proxy is used: it would
do the lookup itself, out of sight.

Under "open", for the user's own machine, any address is asked, by way of the proxies that the
environment names (`http_proxy`, `https_proxy`, `no_proxy`).

Under both only http and https are spoken, and one deadline counts for everything.
"""

from __future__ import annotations

import http.client
import re
import urllib.parse

from lookback.connecting import (
    PORTS,
    Connection,
    Deadline,
    FetchError,
    Policy,
    Target,
    ascii_host,
    connect,
    get_policy,
    send,
    show_url,
)
from lookback.limits import FETCH_SECONDS, IMAGE_MIB, one_line

REDIRECTS = 5
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)  # of two letters: C:// is a disk
_SAFE = "%/:=&?~#+!$,;'@()*[]"  # in a path and a query; all else is written as %XX
_CHUNK = 2**16


def is_url(name: object) -> bool:
    """Whether a text is a URL of any scheme, and not a path."""
    return isinstance(name, str) and _SCHEME.match(name) is not None


def fetch(
    url: str,
    policy: Policy | None = None,
    *,
    seconds: float | None = None,
    most: int | None = None,
) -> bytes:
    """What is at a URL.

    Args:
        url: of http or https.
        policy: who may be asked, see the module; None for LOOKBACK_FETCH, else "open".
        seconds: for everything, from the lookup to the last byte; None for
            LOOKBACK_MAX_FETCH_SECONDS.
        most: bytes; None for LOOKBACK_MAX_IMAGE_MIB.

    Raises:
        FetchError: it cannot be had, or may not be.
        LimitError: it is too large, or takes too long.
    """
    policy = get_policy(policy)
    deadline = Deadline(FETCH_SECONDS.most if seconds is None else seconds)
    try:
        return _follow(url, policy, deadline, most)
    except TimeoutError:
        if seconds is None:
            raise FETCH_SECONDS.error(f"fetching {show_url(url)} takes longer") from None
        raise FetchError(f"fetching {show_url(url)} takes longer than {seconds:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        words = one_line(error) or type(error).__name__
        raise FetchError(f"cannot fetch {show_url(url)}: {words}") from error


def _follow(url: str, policy: Policy, deadline: Deadline, most: int | None) -> bytes:
    """The bytes at the end of all redirects."""
    here = url
    for _ in range(REDIRECTS + 1):
        target = _parse(here)
        connection = connect(target, policy, deadline)
        try:
            reply = _ask(connection, target, deadline)
            if reply.status in (301, 302, 303, 307, 308) and reply.headers.get("Location"):
                here = _join(here, reply.headers["Location"])
                continue
            if reply.status != 200:
                said = one_line(f"{reply.status} {reply.reason}")
                raise FetchError(f"cannot fetch {show_url(here)}: it answered {said}")
            return _read(reply, here, most)
        finally:
            connection.close()
    raise FetchError(f"cannot fetch {show_url(url)}: more than {REDIRECTS} redirects")


def _join(here: str, location: str) -> str:
    try:
        return urllib.parse.urljoin(here, location)
    except ValueError as error:
        raise FetchError(
            f"cannot fetch {show_url(here)}: it leads to {show_url(location)}, {error}"
        ) from None


def _parse(url: str) -> Target:
    """The parts of a URL that can be fetched.

    Raises:
        FetchError: it is of another scheme, or broken.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port
        user = parts.username
    except ValueError as error:  # a port that is no number, a broken IPv6 address
        raise FetchError(f"{show_url(url)} is no URL: {error}") from None
    if scheme not in PORTS:
        raise FetchError(
            f"{show_url(url)} cannot be fetched: only http and https are; a file is given by its "
            "path"
        )
    if not host or re.search(r"[\s%]", host):
        raise FetchError(f"{show_url(url)} is no URL: it has no host, or none that can be")
    if re.search(r"[\x00-\x1f\x7f]", url):
        raise FetchError(f"{show_url(url)} is no URL: it has control characters in it")
    if user is not None:
        raise FetchError(f"{show_url(url)} has a name or a password in it: leave them out")
    path = urllib.parse.quote(parts.path or "/", safe=_SAFE, errors="replace")
    query = urllib.parse.quote(parts.query, safe=_SAFE, errors="replace")
    path = path if path.startswith("/") else f"/{path}"
    wanted = PORTS[scheme] if port is None else port
    return Target(url, scheme, host, wanted, f"{path}?{query}" if query else path)


def _ask(connection: Connection, target: Target, deadline: Deadline) -> http.client.HTTPResponse:
    origin = ascii_host(target.origin)
    where = f"http://{origin}{target.path}" if connection.proxied else target.path
    request = [f"GET {where} HTTP/1.1", f"Host: {origin}", "User-Agent: lookback"]
    request += ["Accept: image/*, */*;q=0.5", "Accept-Encoding: identity", "Connection: close"]
    if connection.authorization:
        request.append(f"Proxy-Authorization: {connection.authorization}")
    return send(connection.socket, request, "GET", deadline)


def _read(reply: http.client.HTTPResponse, url: str, most: int | None) -> bytes:
    """The body, counted while it comes: what its head says of its length may lie."""
    declared = reply.length
    _check_size(declared or 0, url, most)
    chunks, total = [], 0
    while chunk := reply.read(_CHUNK):
        chunks.append(chunk)
        total += len(chunk)
        _check_size(total, url, most)
    if declared is not None and total < declared:
        raise FetchError(f"cannot fetch {show_url(url)}: {total} of {declared} bytes came")
    return b"".join(chunks)


def _check_size(size: int, url: str, most: int | None) -> None:
    if most is None:
        IMAGE_MIB.check(size, show_url(url))
    elif size > most:
        raise FetchError(f"{show_url(url)} has more than the {most:,} bytes that are allowed")

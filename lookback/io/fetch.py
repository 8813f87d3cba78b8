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

import base64
import http.client
import io
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from typing import Any, Literal, NamedTuple, cast, get_args

from lookback.errors import one_line
from lookback.io.limits import FETCH_SECONDS, IMAGE_MIB

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


Policy = Literal["open", "public"]
POLICY_VARIABLE = "LOOKBACK_FETCH"
"""The policy where none is given; "open" if it is not set."""
PORTS = {"http": 80, "https": 443}
_SHOWN = 200
"""Characters of a URL that messages show."""


class FetchError(ValueError):
    """A URL cannot be fetched, or may not be; the message names it."""


class Address(NamedTuple):
    """Where a connection goes, as `socket.getaddrinfo` gives it."""

    family: int
    sockaddr: tuple[Any, ...]

    @property
    def ip(self) -> str:
        """The IP address as text."""
        return str(self.sockaddr[0])


class Target(NamedTuple):
    """A URL in parts."""

    url: str
    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        """Host and port, as a header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


class Deadline:
    """The moment at which all has to be done."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until then.

        Raises:
            TimeoutError: it has passed.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def get_policy(given: str | None = None) -> Policy:
    """The policy that is given, or that the environment names.

    Raises:
        ValueError: there is no such policy.
    """
    policy = given if given is not None else os.environ.get(POLICY_VARIABLE) or "open"
    if policy not in get_args(Policy):
        named = "policy" if given is not None else POLICY_VARIABLE
        raise ValueError(f"{named} = {policy!r}: there are {', '.join(get_args(Policy))}")
    return cast(Policy, policy)


_GLOBAL_IPV6 = ipaddress.ip_network("2000::/3")
"""What is given out of IPv6; all else is special, local or not in use."""
_SPECIAL = [
    ipaddress.ip_network(block)
    for block in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24"),
        *("192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
]
"""IANA's special-purpose registries, and multicast. `ipaddress` knows them as they were when its
Python was released, so it is asked as well, but not alone."""
_ISATAP = 0x5EFE  # its host part is 0:5efe or 200:5efe, and then an IPv4 address


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet, and nothing in disguise."""
    ip = ipaddress.ip_address(address)
    if not ip.is_global or any(ip in block for block in _SPECIAL):
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return True
    return ip in _GLOBAL_IPV6 and (int(ip) >> 32) & 0xFDFFFFFF != _ISATAP


def show_url(url: str) -> str:
    """A URL for messages: without name and password, and not too long."""
    shown = re.sub(r"(?<=://)[^/?#]*@", "", url)
    return repr(shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "...")


def _addresses(host: str, port: int, deadline: Deadline) -> list[Address]:
    """All addresses of a host, looked up once; a lookup that hangs is left behind."""
    found: list[Address] = []
    failed: list[Exception] = []

    def look_up() -> None:
        try:
            for family, *_, sockaddr in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                found.append(Address(family, sockaddr))
        except (OSError, ValueError) as error:  # no such host; a name that no host can have
            failed.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(deadline.left())
    if thread.is_alive():
        raise TimeoutError
    if failed or not found:
        reason = failed[0] if failed else "no address"
        raise FetchError(f"the host {host!r:.80} is not found: {reason}") from None
    return found


def _checked(host: str, port: int, policy: Policy, deadline: Deadline) -> list[Address]:
    """The addresses of a host that may be asked: all that it has, or none.

    Raises:
        FetchError: one of them is not public, and the policy is.
    """
    found = _addresses(host, port, deadline)
    for address in found if policy == "public" else ():
        if not is_public(address.ip):
            raise FetchError(
                f"{host!r:.80} is at {address.ip}, which is not a public address: only such may be "
                f'fetched from here (policy "public")'
            )
    return found


class Connection(NamedTuple):
    """A socket to a host, and whether requests on it name the host (as a proxy needs it)."""

    socket: socket.socket
    proxied: bool = False
    authorization: str | None = None

    def close(self) -> None:
        """End it."""
        self.socket.close()


def connect(target: Target, policy: Policy, deadline: Deadline) -> Connection:
    """A connection to a target, or to the proxy that the environment names for it."""
    proxy = _proxy(target) if policy == "open" else None
    if proxy is None:
        raw = _open(_checked(target.host, target.port, policy, deadline), deadline)
        return Connection(_secured(raw, target, deadline))
    host, port, authorization = _proxy_parts(proxy)
    raw = _open(_addresses(host, port, deadline), deadline)
    if target.scheme == "http":
        return Connection(raw, True, authorization)
    try:
        _tunnel(raw, target, authorization, deadline)
    except BaseException:
        raw.close()
        raise
    return Connection(_secured(raw, target, deadline))


def _proxy(target: Target) -> str | None:
    if urllib.request.proxy_bypass(target.origin):
        return None
    return urllib.request.getproxies().get(target.scheme)


def _proxy_parts(proxy: str) -> tuple[str, int, str | None]:
    """Host, port and authorization of a proxy.

    Raises:
        FetchError: it is none that can be spoken to.
    """
    try:
        parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = parts.hostname, parts.port or PORTS["http"]
    except ValueError:
        host = None
    if not host or parts.scheme != "http":
        raise FetchError(f"the proxy {show_url(proxy)} of the environment: give http://HOST:PORT")
    return host, port, _basic(parts.username, parts.password) if parts.username else None


def _basic(user: str, password: str | None) -> str:
    pair = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"


def _open(addresses: list[Address], deadline: Deadline) -> socket.socket:
    """A socket to the first of these addresses that answers."""
    failure: OSError | None = None
    for address in addresses:
        try:
            return _open_one(address, deadline)
        except TimeoutError:
            raise
        except OSError as error:  # the next may answer, or be of a kind that there is here
            failure = error
    raise failure or OSError("no address")


def _open_one(address: Address, deadline: Deadline) -> socket.socket:
    raw = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        raw.settimeout(deadline.left())
        raw.connect(address.sockaddr)
    except BaseException:
        raw.close()
        raise
    return raw


def _secured(raw: socket.socket, target: Target, deadline: Deadline) -> socket.socket:
    """The socket itself, or TLS over it that knows the host by its name."""
    if target.scheme == "http":
        return raw
    try:
        raw.settimeout(deadline.left())
        return ssl.create_default_context().wrap_socket(raw, server_hostname=target.host)
    except BaseException:
        raw.close()
        raise


class _Reader(io.RawIOBase):
    """What comes from a socket, each read waiting no longer than the deadline."""

    def __init__(self, source: socket.socket, deadline: Deadline) -> None:
        self._source, self._deadline = source, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._source.settimeout(self._deadline.left())
        return self._source.recv_into(buffer)


class _Replies:
    """As much of a socket as `http.client.HTTPResponse` uses."""

    def __init__(self, source: socket.socket, deadline: Deadline) -> None:
        self._reader = _Reader(source, deadline)

    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(self._reader)


def send(
    source: socket.socket, request: list[str], method: str, deadline: Deadline
) -> http.client.HTTPResponse:
    """The reply to a request, read up to the end of its head."""
    source.settimeout(deadline.left())
    source.sendall("\r\n".join([*request, "", ""]).encode("ascii"))
    reply = http.client.HTTPResponse(cast(socket.socket, _Replies(source, deadline)), method=method)
    reply.begin()
    return reply


def _tunnel(
    raw: socket.socket, target: Target, authorization: str | None, deadline: Deadline
) -> None:
    """Have a proxy connect this socket to the target."""
    host = f"[{target.host}]" if ":" in target.host else ascii_host(target.host)
    request = [f"CONNECT {host}:{target.port} HTTP/1.1", f"Host: {host}:{target.port}"]
    if authorization:
        request.append(f"Proxy-Authorization: {authorization}")
    reply = send(raw, request, "CONNECT", deadline)
    if reply.status != 200:
        said = one_line(f"{reply.status} {reply.reason}")
        raise FetchError(f"cannot fetch {show_url(target.url)}: the proxy answered {said}")


def ascii_host(host: str) -> str:
    """A host as headers have it: letters beyond ASCII in the code of domain names.

    Raises:
        FetchError: no host can have that name.
    """
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise FetchError(f"the host {host!r:.80} is not found: {error}") from None

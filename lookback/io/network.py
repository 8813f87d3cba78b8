"""Connections that `fetch` makes: which addresses they reach, until when, and by which proxy.

This is the network layer below httpcore2, which speaks HTTP: it looks a name up once, checks all
its addresses and connects to one of them, while TLS and the Host header keep the name.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from typing import Any

import httpcore2

from lookback.io.fetch import FetchError, Policy, Target, show_url

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
    """Return whether an IP address is one of the public internet, and nothing in disguise."""
    ip = ipaddress.ip_address(address)
    if not ip.is_global or any(ip in block for block in _SPECIAL):
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return True
    return ip in _GLOBAL_IPV6 and (int(ip) >> 32) & 0xFDFFFFFF != _ISATAP


class Deadline:
    """The moment at which all has to be done."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds until then; raise TimeoutError if it has passed."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def connection_pool(target: Target, policy: Policy, deadline: Deadline) -> httpcore2.ConnectionPool:
    """Return what connects to a target, or to the proxy that the environment names for it."""
    context = ssl.create_default_context() if target.scheme == "https" else None
    network = _Network(policy, deadline)
    proxy = _find_proxy(target) if policy == "open" else None
    if proxy is None:
        return httpcore2.ConnectionPool(ssl_context=context, network_backend=network)
    parts = _parse_proxy(proxy)
    return httpcore2.HTTPProxy(
        httpcore2.URL(scheme="http", host=parts.hostname or "", port=parts.port, target="/"),
        proxy_auth=_credentials(parts) if parts.username else None,
        ssl_context=context,
        network_backend=network,
    )


def _find_proxy(target: Target) -> str | None:
    port = f":{target.port}" if target.port else ""
    if urllib.request.proxy_bypass(target.bracketed_host + port):
        return None
    return urllib.request.getproxies().get(target.scheme)


def _parse_proxy(proxy: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if parts.scheme == "http" and parts.hostname and parts.port != 0:
            return parts
    except ValueError:  # its port is no number, its IPv6 address is broken
        pass
    raise FetchError(f"the proxy {show_url(proxy)} of the environment: give http://HOST:PORT")


def _credentials(parts: urllib.parse.SplitResult) -> tuple[bytes, bytes]:
    unquote = urllib.parse.unquote_to_bytes
    return unquote(parts.username or ""), unquote(parts.password or "")


class _Network(httpcore2.NetworkBackend):
    """Connects to addresses that the policy allows, until the deadline."""

    def __init__(self, policy: Policy, deadline: Deadline) -> None:
        self._policy, self._deadline = policy, deadline

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.NetworkStream:
        addresses = _look_up(host.strip("[]"), port, self._deadline)
        for address in addresses if self._policy == "public" else ():
            if not is_public(address):
                raise FetchError(
                    f"{host!r:.80} is at {address}, which is not a public address: only such may "
                    'be fetched from here (policy "public")'
                )
        failure: Exception = OSError("no address")
        for address in addresses:
            try:
                stream = httpcore2.SyncBackend().connect_tcp(address, port, self._deadline.left())
                return _Stream(stream, self._deadline)
            except httpcore2.ConnectError as error:  # the next may answer
                failure = error
        raise failure


def _look_up(host: str, port: int, deadline: Deadline) -> list[str]:
    """Return all IP addresses of a host, looked up once; a lookup that hangs is left behind."""
    addresses: list[str] = []
    failures: list[object] = ["no address"]

    def look_up() -> None:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses.extend(str(sockaddr[0]) for *_, sockaddr in infos)
        except (OSError, ValueError) as error:  # no such host; a name that no host can have
            failures.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(deadline.left())
    if thread.is_alive():
        raise TimeoutError
    if not addresses:
        raise FetchError(f"the host {host!r:.80} is not infos: {failures[-1]}")
    return addresses


class _Stream(httpcore2.NetworkStream):
    """A connection of which no step takes longer than the deadline."""

    def __init__(self, stream: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> _Stream:
        left = self._deadline.left()
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

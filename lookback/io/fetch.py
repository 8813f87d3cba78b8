"""Fetch bytes from a URL, within limits of address, time and size.

Under the policy "public" only public addresses are reached: no loopback, private, link-local,
multicast or reserved ones, and none that carry an IPv4 address inside an IPv6 one. A name is looked
up once, all its addresses are checked, and the connection is made to one of those, so that a second
lookup cannot give another. Every redirect is checked like the first URL. No proxy is used: it would
do the lookup itself, out of sight.

Under "open", for the user's own machine, any address is reached, by way of the proxies that the
environment names (`http_proxy`, `https_proxy`, `no_proxy`).

Under both only http and https are spoken, and one deadline counts for everything.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

from lookback.errors import one_line
from lookback.io.files import read_chunks
from lookback.io.limits import FETCH_SECONDS, IMAGE_MIB

if TYPE_CHECKING:
    from httpcore2 import URL

    from lookback.io.network import Deadline

Policy = Literal["open", "public"]
POLICY_VARIABLE = "LOOKBACK_FETCH"
"""The policy where none is given; "open" if it is not set."""
REDIRECTS = 5
PORTS = {"http": 80, "https": 443}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)  # of two letters: C:// is a disk
_SAFE = "%/:=&?~#+!$,;'@()*[]"  # in a path and a query; all else is written as %XX
_HEADERS: dict[bytes | str, bytes | str] = {
    "User-Agent": "lookback",
    "Accept": "image/*, */*;q=0.5",
    "Accept-Encoding": "identity",
    "Connection": "close",
}
_SHOWN = 200
"""Characters of a URL that messages show."""


class FetchError(ValueError):
    """A URL cannot be fetched, or may not be; the message names it."""


def is_url(name: object) -> bool:
    """Return whether a text is a URL of any scheme, and not a path."""
    return isinstance(name, str) and _SCHEME.match(name) is not None


def show_url(url: str) -> str:
    """Return a URL for messages: without name and password, and not too long."""
    shown = re.sub(r"(?<=://)[^/?#]*@", "", url)
    return repr(shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "...")


def get_policy(policy: str | None = None) -> Policy:
    """Return the policy, or the one that the environment names.

    Raises:
        ValueError: there is no such policy.
    """
    name = "policy" if policy is not None else POLICY_VARIABLE
    policy = policy if policy is not None else os.environ.get(POLICY_VARIABLE) or "open"
    if policy not in get_args(Policy):
        raise ValueError(f"{name} = {policy!r}: there are {', '.join(get_args(Policy))}")
    return cast(Policy, policy)


def fetch(
    url: str,
    policy: Policy | None = None,
    *,
    seconds: float | None = None,
    most: int | None = None,
) -> bytes:
    """Return what is at a URL.

    Args:
        url: of http or https.
        policy: which addresses may be reached, see the module; None for LOOKBACK_FETCH, else
            "open".
        seconds: for everything, from the lookup to the last byte; None for
            LOOKBACK_MAX_FETCH_SECONDS.
        most: bytes; None for LOOKBACK_MAX_IMAGE_MIB.

    Raises:
        FetchError: it cannot be had, or may not be.
        LimitError: it is too large, or takes too long.
    """
    import httpcore2

    from lookback.io.network import Deadline

    policy = get_policy(policy)
    deadline = Deadline(FETCH_SECONDS.most if seconds is None else seconds)
    try:
        return _follow(url, policy, deadline, most)
    except (TimeoutError, httpcore2.TimeoutException):
        if seconds is None:
            raise FETCH_SECONDS.error(f"fetching {show_url(url)} takes longer") from None
        raise FetchError(f"fetching {show_url(url)} takes longer than {seconds:g} s") from None
    except httpcore2.ProxyError as error:
        reason = f"the proxy answered {one_line(error)}"
        raise FetchError(f"cannot fetch {show_url(url)}: {reason}") from error
    except (OSError, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        raise FetchError(f"cannot fetch {show_url(url)}: {one_line(error)}") from error


def _follow(url: str, policy: Policy, deadline: Deadline, most: int | None) -> bytes:
    """Return the bytes at the end of all redirects. Their bodies are not read."""
    from lookback.io.network import connection_pool

    here = url
    for _ in range(REDIRECTS + 1):
        target = _parse(here)
        tls = {"sni_hostname": target.host}  # without the brackets of an IPv6 address
        with (
            connection_pool(target, policy, deadline) as pool,
            pool.stream("GET", target.url, headers=_HEADERS, extensions=tls) as response,
        ):
            headers = {name.lower(): value for name, value in response.headers}
            location = headers.get(b"location", b"").decode("latin-1")
            if response.status in (301, 302, 303, 307, 308) and location:
                here = _join(here, location)
                continue
            if response.status != 200:
                reason = response.extensions["reason_phrase"].decode("latin-1")
                answer = one_line(f"{response.status} {reason}")
                raise FetchError(f"cannot fetch {show_url(here)}: it answered {answer}")
            check = partial(_check_size, here, most)
            check(int(headers.get(b"content-length", 0)))
            return read_chunks(response.iter_stream(), check)  # its length may be a false one
    raise FetchError(f"cannot fetch {show_url(url)}: more than {REDIRECTS} redirects")


def _join(here: str, location: str) -> str:
    try:
        return urllib.parse.urljoin(here, location)
    except ValueError as error:
        raise FetchError(
            f"cannot fetch {show_url(here)}: it leads to {show_url(location)}, {error}"
        ) from None


def _check_size(url: str, most: int | None, size: int) -> None:
    if most is None:
        IMAGE_MIB.check(size, show_url(url))
    elif size > most:
        raise FetchError(f"{show_url(url)} has more than the {most:,} bytes that are allowed")


class Target(NamedTuple):
    """The parts of a URL that can be fetched.

    Attributes:
        scheme: "http" or "https".
        host: in ASCII; an IPv6 address without brackets.
        port: None for the scheme's own.
        path: with the query, as it is sent.
    """

    scheme: str
    host: str
    port: int | None
    path: str

    @property
    def bracketed_host(self) -> str:
        """The host as URLs and headers have it."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def url(self) -> URL:
        """What is asked for."""
        from httpcore2 import URL

        return URL(scheme=self.scheme, host=self.bracketed_host, port=self.port, target=self.path)


def _parse(url: str) -> Target:
    """Return the parts of a URL; raise FetchError if it is broken, or of another scheme."""
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port
        if port == 0:
            raise ValueError("port 0")
    except ValueError as error:  # a port that is no number, a broken IPv6 address
        raise FetchError(f"{show_url(url)} is an invalid URL: {error}") from None
    if scheme not in PORTS:
        raise FetchError(
            f"{show_url(url)} cannot be fetched: only http and https are; a file is given by its "
            "path"
        )
    if not host or re.search(r"[\s%]", host):
        raise FetchError(f"{show_url(url)} is an invalid URL: missing or invalid host")
    if re.search(r"[\x00-\x1f\x7f]", url):
        raise FetchError(f"{show_url(url)} is an invalid URL: it has control characters in it")
    if parts.username is not None:
        raise FetchError(f"{show_url(url)} has a name or a password in it: leave them out")
    try:
        ascii_host = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise FetchError(f"the host {host!r:.80} is not found: {error}") from None
    path = urllib.parse.quote(parts.path or "/", safe=_SAFE, errors="replace")
    query = urllib.parse.quote(parts.query, safe=_SAFE, errors="replace")
    own_port = None if port == PORTS[scheme] else port
    return Target(scheme, ascii_host, own_port, f"{path}?{query}" if query else path)

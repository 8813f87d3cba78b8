"""What the project's servers share: names of this machine, and what is said of a port."""

from __future__ import annotations

import ipaddress
import re

LOCAL = ("127.0.0.1", "localhost", "::1")
"""What this very machine is called.

A server that listens here alone answers to these names only: another site's page must not reach it
under a name of that site's own.
"""


def host_name(header: str) -> str:
    """Return the name in a request's `Host`, without port and brackets."""
    return re.sub(r"^(\[[^]]*\]|[^:]*):\d+$", r"\1", header).strip("[]").lower()


def check_host(host: str) -> None:
    """Raise ValueError if no address is given: an empty one would let every machine in."""
    if not host.strip():
        raise ValueError(
            f"--host must not be empty (got {host!r}): give {LOCAL[0]} for this machine alone, or "
            "0.0.0.0 for all"
        )


def own_names(host: str, address: str) -> tuple[str, ...] | None:
    """Return the names that a server answers to; None for any, if other machines reach it.

    Args:
        host: where it was told to listen, in any of the ways to write that.
        address: the IP address that it has.
    """
    ip = ipaddress.ip_address(address)
    mapped = getattr(ip, "ipv4_mapped", None)
    return (*LOCAL, host.lower(), address) if (mapped or ip).is_loopback else None


def cannot_serve(host: str, port: int, error: Exception) -> OSError:
    """Return the error of a server that cannot have its address."""
    return OSError(f"cannot serve at {host}:{port} ({error}): give another --port")

"""What the project's servers share: names of this machine, and what is said of a port."""

from __future__ import annotations

import re

LOCAL = ("127.0.0.1", "localhost", "::1")
"""What this very machine is called.

A server that listens here alone answers to these names only: another site's page must not reach it
under a name of that site's own.
"""


def host_name(header: str) -> str:
    """The name in a request's `Host`, without port and brackets."""
    return re.sub(r":\d+$", "", header).strip("[]").lower()


def cannot_serve(host: str, port: int, error: Exception) -> OSError:
    """The error of a server that cannot have its address."""
    return OSError(f"cannot serve at {host}:{port} ({error}): give another --port")

"""The page on which a rater compares two answers per case; it does not know who picked which."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lookback.annotation.cases import Cases
from lookback.annotation.votes import VoteFile, rater_code, set_of
from lookback.io.hosts import LOCAL, cannot_serve, check_host, host_name, own_names
from lookback.pages import render

TITLE = "Which answer is truer to the picture?"


def served_page() -> str:
    """Return the page of `lookback annotate`: cases come from its server, votes go there."""
    return _render({"served": True})


def file_page(cases: Cases, set_: int | None = None, raters: Sequence[str] | None = None) -> str:
    """Return the page as a file: it carries its cases, and the browser keeps the votes.

    Args:
        cases: of the study.
        set_: the only set to include; by default all.
        raters: who may vote, sets in turn; by default anybody, who chooses a set if there are
            several.

    Raises:
        ValueError: there is no such set.
    """
    if set_ is not None and set_ not in cases.sets:
        there = ", ".join(map(str, cases.sets))
        raise ValueError(f"set {set_}: these cases have the sets {there}")
    sets = cases.sets if set_ is None else [set_]
    codes = None if raters is None else list(dict.fromkeys(map(rater_code, raters)))
    places = None if codes is None else {code: set_of(code, codes, sets) for code in codes}
    shown = [case.to_dict() for case in cases.cases if case.set in sets]
    return _render({"served": False, "study": cases.study, "raters": places, "cases": shown})


def _render(data: dict[str, Any]) -> str:
    return render("annotate/page.html", title=TITLE, data=data)


MOST = 10_000
"""Bytes of a request's body: a vote has about a hundred."""


class Server(ThreadingHTTPServer):
    """A server that is ready to `serve_forever`.

    Args:
        votes: what it asks and keeps.
        host, port: where; port 0 takes one that is free.

    Raises:
        OSError: it cannot have the port.
        ValueError: the host is empty.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, votes: VoteFile, host: str = LOCAL[0], port: int = 0) -> None:
        check_host(host)
        self.votes, self.page = votes, served_page().encode()
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise cannot_serve(host, port, error) from None
        self.names = own_names(host, str(self.server_address[0]))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of an error of ours; a client that went away is none."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = 60
    server_version = "lookback"

    def do_GET(self) -> None:
        """Send the page; there is nothing else."""
        if not self._has_own_host():
            return
        if self.path == "/":
            self._send(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "There is only one page here: /")

    def do_POST(self) -> None:
        """Handle one of three requests; an error becomes a message for the rater."""
        if not self._has_own_host():
            return
        handlers = {"/enter": self._enter, "/vote": self._vote, "/undo": self._undo}
        if self.path not in handlers:
            self._refuse(HTTPStatus.NOT_FOUND, f"no such question: {self.path[:60]}")
            return
        try:
            reply = handlers[self.path](self._body())
        except PermissionError as error:
            self._refuse(HTTPStatus.FORBIDDEN, str(error))
        except (ValueError, RecursionError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        else:
            self._send(HTTPStatus.OK, json.dumps(reply).encode())

    def _enter(self, body: dict[str, Any]) -> dict[str, Any]:
        votes = self.server.votes
        rater, set_ = votes.enter(_text(body, "rater"))
        return {
            "rater": rater,
            "set": set_,
            "study": votes.cases.study,
            "cases": [case.to_dict() for case in votes.cases.of(set_)],
            "votes": [{"case": vote.case, "choice": vote.choice} for vote in votes.of(rater)],
        }

    def _vote(self, body: dict[str, Any]) -> dict[str, Any]:
        self.server.votes.put(*_place(body), _text(body, "choice"))
        return {}

    def _undo(self, body: dict[str, Any]) -> dict[str, Any]:
        self.server.votes.undo(*_place(body))
        return {}

    def _has_own_host(self) -> bool:
        """Whether the request is for one of this server's own host names."""
        name = host_name(self.headers.get("Host", ""))
        if self.server.names is not None and name not in self.server.names:
            self._refuse(HTTPStatus.FORBIDDEN, f"this server is not {name[:60]!r}")
            return False
        return True

    def _body(self) -> dict[str, Any]:
        # Of this kind, browsers send it for no page of another site.
        if self.headers.get_content_type() != "application/json":
            raise ValueError("send application/json")
        size = self.headers.get("Content-Length", "")
        if not (size.isascii() and size.isdecimal() and len(size) < 9 and int(size) <= MOST):
            raise ValueError(f"send a Content-Length of at most {MOST}")
        body = json.loads(self.rfile.read(int(size)))
        if not isinstance(body, dict):
            raise ValueError("send a JSON object")
        return body

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self._send(status, json.dumps({"error": message}).encode())

    def _send(self, status: HTTPStatus, data: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(data))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Log nothing: who votes when is private."""


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r:.40}: send text")
    return value


def _place(body: dict[str, Any]) -> tuple[str, int, int]:
    numbers = []
    for name in ("set", "case"):
        value = body.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} is {value!r:.40}: send a whole number")
        numbers.append(value)
    return _text(body, "rater"), numbers[0], numbers[1]

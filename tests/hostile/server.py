"""A server on this machine that misbehaves: the first word of the path says how."""

import io
import itertools
import os
import socket
import threading
import time

OK = b"HTTP/1.1 200 OK\r\n"
LONGEST = 30
"""Seconds after which a reply ends that would not otherwise."""


def start():
    """A process that serves until its parent is gone; its address."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    parent = os.getpid()
    if os.fork():
        listener.close()
        return url
    threading.Thread(target=_accept, args=(listener, url), daemon=True).start()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def _accept(listener, url):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection, url), daemon=True).start()


def _answer(connection, url):
    with connection:
        try:
            head = b""
            while b"\r\n\r\n" not in head and (more := connection.recv(4096)):
                head += more
            path = head.split(b" ")[1].decode("latin-1") if b" " in head else "/"
            word = path.strip("/").partition("/")[0]
            for piece in BEHAVIOURS.get(word, missing)(url):
                connection.sendall(piece)
        except OSError:  # nobody listens any more
            pass


def picture():
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (16, 16), (0, 90, 200)).save(out, "PNG")
    return out.getvalue()


def body(data, length=None):
    return OK + b"Content-Length: %d\r\n\r\n" % (len(data) if length is None else length) + data


def missing(url):
    yield b"HTTP/1.1 404 Not \x1b[31mFound\r\nContent-Length: 0\r\n\r\n"


def redirect(to, status=302):
    head = f"HTTP/1.1 {status} Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"
    return lambda url: [head.format(url=url).encode()]


def says(*pieces):
    return lambda url: pieces


def forever(first, piece, pause=0.0):
    def reply(url):
        yield first
        began = time.monotonic()
        for _ in itertools.takewhile(
            lambda _: time.monotonic() - began < LONGEST, itertools.count()
        ):
            yield piece
            time.sleep(pause)

    return reply


BEHAVIOURS = {
    "sound": lambda url: [body(picture())],
    "loop": redirect("{url}/loop"),
    "far": redirect("{url}/loop", 308),
    "to-file": redirect("file:///etc/passwd"),
    "to-ftp": redirect("ftp://127.0.0.1/x"),
    "to-nothing": redirect(""),
    "to-broken": redirect("http://[::1"),
    "to-port": redirect("http://a:port/"),
    "drip": forever(OK + b"Content-Length: 100000\r\n\r\n", b"x", 0.05),
    "drip-head": forever(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.05),
    "silence": forever(b"", b"", 0.1),
    "endless": forever(OK + b"\r\n", bytes(2**16)),
    "endless-head": forever(OK, b"X: y\r\n", 0.001),
    "endless-chunks": forever(
        OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + bytes(2**16) + b"\r\n"
    ),
    "huge": says(OK + b"Content-Length: 99999999999\r\n\r\n"),
    "short": lambda url: [body(picture(), 100_000)],
    "long": lambda url: [body(picture(), 10)],
    "negative": lambda url: [body(picture(), -5)],
    "no-number": says(OK + b"Content-Length: x\r\n\r\nabc"),
    "two-lengths": says(OK + b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde"),
    "bad-chunk": says(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "cut-chunk": says(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"),
    "packed": says(OK + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
    "nothing": says(b""),
    "blank": says(b"\r\n\r\n"),
    "no-http": says(b"hello\r\n\r\n"),
    "no-status": says(b"HTTP/1.1 abc\r\n\r\n"),
    "odd-status": says(b"HTTP/1.1 999 \xff\xfe\r\n\r\n"),
    "long-line": says(OK + b"a" * 100_000 + b"\r\n\r\n"),
    "many-heads": says(OK + b"a: b\r\n" * 500 + b"\r\n"),
    "continue": says(b"HTTP/1.1 100 Continue\r\n\r\n" * 200),
    "switch": says(b"HTTP/1.1 101 Switching\r\n\r\n"),
    "empty": says(body(b"")),
    "page": says(body(b"<!doctype html><title>no</title>")),
    "refused": says(b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"),
    "broken": says(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"),
}

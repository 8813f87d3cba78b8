"""Images at addresses: only if they may be, and then public ones only."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from server.serving import asked, chat, serving
from toy_engine import ToyEngine

from lookback.server.settings import Settings


@pytest.fixture(scope="module")
def fetching():
    with serving(ToyEngine(), Settings(allow_urls=True)) as client:
        yield client


@pytest.fixture
def private():
    """A server of this machine, which nobody may reach through ours."""
    asked_for = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked_for.append(self.path)
            self.send_error(500)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], asked_for
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:{port}/x.png",
        "http://localhost:{port}/x.png",
        "http://[::1]:{port}/x.png",
        "http://[::ffff:127.0.0.1]:{port}/x.png",
        "http://2130706433:{port}/x.png",
        "HTTP://127.0.0.1:{port}/x.png",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/x.png",
    ],
)
def test_private_addresses_are_not_asked(fetching, private, address):
    port, asked_for = private
    answer = chat(fetching, **asked("?", address.format(port=port)))
    assert answer.status_code == 400
    assert "messages[0].content[0]" in answer.json()["error"]["message"]
    assert asked_for == []


@pytest.mark.parametrize("address", ["ftp://example.org/x.png", "s3://bucket/x.png", "gopher://x"])
def test_other_schemes_are_not_asked(fetching, address):
    answer = chat(fetching, **asked("?", address))
    assert answer.status_code == 400
    assert "data URI" in answer.json()["error"]["message"]

"""Connections: how long a client may take, and how many it may have."""

import asyncio
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from unittest.mock import Mock

import pytest
from server.clock import pass_time, run, turns
from server.held_engine import HeldEngine, until
from server.serving import asked, connected, serving
from timeouts import HANG_SECONDS
from uvicorn import Config
from uvicorn.server import ServerState

from lookback.server import process
from lookback.server.process import CHUNKS, Connection
from lookback.server.settings import Limits, Settings

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def engine():
    return HeldEngine()


def serve(engine, **limits):
    return serving(engine, Settings(limits=Limits(**limits)))


@contextmanager
def connection(client, address="127.0.0.1"):
    place = (client.base_url.host, client.base_url.port)
    with socket.create_connection(place, HANG_SECONDS, source_address=(address, 0)) as found:
        yield found


def ended(found):
    """Whether the server ended the connection; waits until it says something."""
    try:
        return found.recv(65536) == b""
    except ConnectionResetError:
        return True


def health(found):
    """The status of a request on a connection."""
    found.sendall(HEALTH)
    head = found.recv(65536)
    if b"\r\n\r\n" in head and not head.endswith(b"}") and b"text/plain" not in head:
        head += found.recv(65536)
    return int(head.split()[1])


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", HEALTH[:-2]])
def test_a_connection_without_a_whole_head_is_ended(engine, sent):
    with serve(engine, body_seconds=0.1) as client, connection(client) as found:
        with suppress(ConnectionError):  # on a slow machine it has ended by then
            found.sendall(sent)
        assert ended(found)


def test_answers_that_nobody_takes_end_the_connection(engine, monkeypatch):
    lost, forget = threading.Event(), Connection.connection_lost
    monkeypatch.setattr(Connection, "connection_lost", lambda *a: (forget(*a), lost.set()))
    with serve(engine, seconds=0.1, body_seconds=0.1) as client, connection(client) as found:
        with suppress(ConnectionError):  # on a slow machine it has ended by then
            found.sendall(HEALTH.replace(b"/health", b"/openapi.json") * 1000)
        assert lost.wait(HANG_SECONDS)


def timed(app=None):
    """A connection that was just made, and its transport; 30 s for a head."""
    transport = Mock()
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False
    made = Connection(
        limits=Limits(body_seconds=30, seconds=120),
        clients={},
        config=Config(app, timeout_keep_alive=30, log_config=None),
        server_state=ServerState(),
        app_state={},
        _loop=asyncio.get_running_loop(),
    )
    made.connection_made(transport)
    return made, transport


def test_a_head_in_drops_does_not_buy_time():
    async def drip():
        made, transport = timed()
        for drop in HEALTH[:29]:
            await pass_time(1)
            made.data_received(bytes([drop]))
        transport.abort.assert_not_called()
        await pass_time(1)
        transport.abort.assert_called_once()

    run(drip())


def test_a_request_has_its_deadline_and_the_next_a_time_for_its_head():
    async def ask():
        begun, go = asyncio.Event(), asyncio.Event()

        async def app(scope, receive, send):
            begun.set()
            await go.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body"})

        made, transport = timed(app)
        made.data_received(HEALTH)
        await begun.wait()
        await pass_time(150)  # the deadline, and as long again as a body may take
        transport.abort.assert_not_called()
        go.set()
        await asyncio.gather(*made.tasks)
        await pass_time(29)
        made.data_received(HEALTH[:10])
        transport.abort.assert_not_called()
        await pass_time(1)
        transport.abort.assert_called_once()

    run(ask())


def test_a_request_that_never_ends_is_ended():
    async def app(scope, receive, send):
        await asyncio.Event().wait()

    async def ask():
        made, transport = timed(app)
        made.data_received(HEALTH)
        await turns()
        await pass_time(179)
        transport.abort.assert_not_called()
        await pass_time(1)
        transport.abort.assert_called_once()
        for task in made.tasks:
            task.cancel()

    run(ask())


@pytest.mark.parametrize(
    ("spare", "hosts"), [(2, [1, 1, 1, 1]), (0, [1, 2, 3, 4])], ids=["one address", "many"]
)
def test_one_connection_too_many_ends_the_one_that_has_waited_for_longest(
    engine, monkeypatch, spare, hosts
):
    monkeypatch.setattr(process, "SPARE", spare)
    monkeypatch.setattr(process, "MOST", 3)
    with serve(engine, in_flight=1, queue=0) as client, ExitStack() as stack:
        first, *others = (
            stack.enter_context(connection(client, f"127.0.0.{host}")) for host in hosts
        )
        assert ended(first)
        for found in others:
            assert health(found) == 200


def test_requests_at_work_are_not_ended_for_another(engine, monkeypatch):
    monkeypatch.setattr(process, "SPARE", -1)
    with serve(engine, in_flight=2, queue=1) as client, ExitStack() as stack:
        for name in "ab":
            stack.enter_context(connected(client, asked(name)))
        until(lambda: sorted(engine.begun) == ["a", "b"])
        assert health(stack.enter_context(connection(client))) == 503
        assert health(stack.enter_context(connection(client, "127.0.0.2"))) == 200
        engine.go.set()
        until(lambda: sorted(engine.ended) == ["a", "b"])


def test_answers_are_sent_at_once(engine):
    """Nagle's algorithm holds the second part of an answer back for 40 ms."""
    with serve(engine) as client:
        assert client.get("/health").status_code == 200
        (kept,) = client.server.server_state.connections
        option = kept.transport.get_extra_info("socket")
        assert option.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_request_of_two_lengths_ends_the_connection(engine):
    with serve(engine) as client, connection(client) as found:
        found.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 6\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nG" + HEALTH
        )
        answers = b"".join(iter(lambda: found.recv(65536), b""))
        assert answers.startswith(b"HTTP/1.1 400")
        assert answers.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("extra", [0, 1])
def test_a_body_has_only_so_many_chunks(engine, extra):
    with serve(engine) as client, connection(client) as found:
        found.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\nx\r\n" * (CHUNKS + extra)
            + b"0\r\n\r\n"
        )
        status = 400 if extra else 415
        assert found.recv(12) == b"HTTP/1.1 %d" % status

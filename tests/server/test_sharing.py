"""Many at a time: queues, deadlines, clients that go away, the end of a server."""

import json
import socket
import threading

import httpx
import pytest
from server.held_engine import HeldEngine, until
from server.serving import asked, chat, connected, serving

from lookback.server.settings import Limits, Settings


@pytest.fixture
def engine():
    return HeldEngine()


def serve(engine, **limits):
    return serving(engine, Settings(limits=Limits(**{"in_flight": 2, "queue": 3, **limits})))


def in_threads(client, names, **more):
    """Ask from threads; gives the answers' statuses by name as they come."""
    found = {}

    def ask(name):
        with httpx.Client(base_url=client.base_url, timeout=60) as own:
            found[name] = chat(own, **asked(name, **more))

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    return found, threads


def desk(client):
    return client.app.state.desk


def test_a_full_queue_refuses_and_the_others_are_answered(engine):
    with serve(engine) as client:
        found, threads = in_threads(client, "abcde")
        for thread in threads:
            thread.start()
        until(lambda: desk(client).waiting == 3)
        refused = chat(client, **asked("f"))
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        engine.go.set()
        for thread in threads:
            thread.join()
        assert {name: answer.status_code for name, answer in found.items()} == dict.fromkeys(
            "abcde", 200
        )
        assert engine.most_at_once == 2
        until(lambda: desk(client).at_work == 0)
        assert 'lookback_requests_total{path="/v1/chat/completions",status="429"} 1.0' in (
            client.get("/metrics").text
        )


def test_work_stops_when_its_client_goes_away(engine):
    with serve(engine) as client:
        with connected(client, asked("gone")):
            until(lambda: engine.begun == ["gone"])
        until(lambda: engine.given_up == ["gone"])
        until(lambda: desk(client).at_work == 0)
        assert "lookback_clients_gone_total 1.0" in client.get("/metrics").text


def test_a_stream_stops_when_its_client_goes_away(engine):
    with serve(engine) as client:
        with client.stream("POST", "/v1/chat/completions", json=asked("gone", stream=True)) as s:
            until(lambda: engine.begun == ["gone"])
            assert next(s.iter_lines()).startswith(": lookback ")
        until(lambda: engine.given_up == ["gone"])
        until(lambda: desk(client).at_work == 0)


def test_who_waits_and_goes_away_leaves_the_line(engine):
    with serve(engine) as client:
        found, threads = in_threads(client, "ab")
        for thread in threads:
            thread.start()
        until(lambda: desk(client).at_work == 2)
        with connected(client, asked("c")):
            until(lambda: desk(client).waiting == 1)
        until(lambda: desk(client).waiting == 0)
        engine.go.set()
        for thread in threads:
            thread.join()
        assert sorted(engine.begun) == ["a", "b"]
        assert {answer.status_code for answer in found.values()} == {200}


def test_a_deadline_ends_the_work(engine):
    with serve(engine, seconds=1) as client:
        answer = chat(client, **asked("late"))
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "deadline"
        until(lambda: engine.given_up == ["late"])
        answer = chat(client, **asked("late stream", stream=True))
        assert answer.status_code == 200  # its head was out
        last = [line for line in answer.text.splitlines() if line.startswith("data: ")][-1]
        assert json.loads(last[6:])["error"]["code"] == "deadline"
        assert "[DONE]" not in answer.text
        until(lambda: len(engine.given_up) == 2)
        engine.go.set()
        assert chat(client, **asked("in time")).status_code == 200


def test_a_request_that_comes_too_slowly(engine):
    with serve(engine, body_seconds=0.3) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
            )
            answer = connection.recv(65536)
        assert b" 408 " in answer.split(b"\r\n")[0]


def test_an_end_finishes_what_is_at_work_and_sends_the_others_away(engine):
    with serve(engine) as client:
        found, threads = in_threads(client, "abcd")
        for thread in threads:
            thread.start()
        until(lambda: desk(client).waiting == 2)
        client.server.should_exit = True
        until(lambda: desk(client).closed)
        until(lambda: len(found) == 2)
        assert {answer.status_code for answer in found.values()} == {503}
        engine.go.set()
        for thread in threads:
            thread.join()
    statuses = [answer.status_code for answer in found.values()]
    assert sorted(statuses) == [200, 200, 503, 503]
    assert len(engine.ended) == 2


def test_an_end_gives_up_what_takes_too_long(engine):
    with serve(engine, grace=1) as client:
        found, threads = in_threads(client, "a")
        threads[0].start()
        until(lambda: engine.begun == ["a"])
        client.server.should_exit = True
        client.thread.join(30)
        assert not client.thread.is_alive()
        until(lambda: engine.given_up == ["a"])
        threads[0].join()
    assert not found or found["a"].status_code >= 500


def test_ready_and_health(engine):
    with serve(engine) as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").json() == {"status": "ready"}
        desk(client).close()
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200


def test_nothing_that_is_asked_is_logged(engine, caplog):
    from lookback.server.log import LOG

    engine.go.set()
    LOG.propagate = True
    with caplog.at_level("INFO"), serve(engine) as client:
        given = {"x-request-id": "my-own-id"}
        body = asked("a secret question")
        answer = client.post("/v1/chat/completions", json=body, headers=given)
        assert answer.headers["x-request-id"] == "my-own-id"
        assert answer.json()["id"] == "chatcmpl-my-own-id"
        odd = client.get("/secret-path?secret=1", headers={"x-request-id": "a\tb" * 50})
        assert len(odd.headers["x-request-id"]) == 32
    said = [r.getMessage() for r in caplog.records if not r.name.startswith("httpx")]
    assert any("my-own-id POST /v1/chat/completions 200" in line for line in said)
    assert not any("secret" in line for line in said)


def test_other_origins_ask_only_if_they_may():
    engine = HeldEngine()
    ask = {"origin": "https://a.example", "access-control-request-method": "POST"}
    with serving(engine) as client:
        answer = client.options("/v1/chat/completions", headers=ask)
        assert "access-control-allow-origin" not in answer.headers
    with serving(engine, Settings(origins=("https://a.example",))) as client:
        answer = client.options("/v1/chat/completions", headers=ask)
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        other = client.get("/health", headers={"origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


def test_another_question_about_an_image_goes_on_from_it():
    from server.serving import embedded

    questions = ("What is in the picture?", "Describe the picture.", "What is in the picture?")
    more = {"seed": 3, "max_tokens": 12, "lookback": {"best_of": 3, "signals": True}}
    told = {}
    for kept in (0, 4):
        with serving(embedded(), Settings(prefixes=kept)) as client:
            for _ in range(2):
                answers = [chat(client, **asked(one, **more)).json() for one in questions]
            told[kept] = [one["choices"][0] for one in answers]
            metrics = client.get("/metrics").text
            counts = [
                float(x.split()[1])
                for x in metrics.splitlines()
                if x.startswith("lookback_prompts{")
            ]
            assert sum(counts) == (6 if kept else 0)
    embedded().keep_prefixes(0)
    assert counts[2] <= 2  # same, continued, new: two questions, one of them compared
    for plain, again in zip(told[0], told[4], strict=True):
        assert plain["message"] == again["message"]
        assert plain["lookback"]["log_prob"] == pytest.approx(
            again["lookback"]["log_prob"], abs=1e-4
        )

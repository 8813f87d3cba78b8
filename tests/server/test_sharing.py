"""Many at a time: queues, deadlines, clients that go away, the end of a server."""

import asyncio
import json
import socket
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import httpx
import pytest
from PIL import Image
from server.clock import pass_time, run
from server.held_engine import HeldEngine, happens, until
from server.serving import asked, chat, connected, data_uri, scene_uri, serving
from timeouts import HANG_SECONDS

from lookback.server import requests
from lookback.server.app import make_app
from lookback.server.dispatch import READERS, SHARE, GivenUp, Job, Service
from lookback.server.errors import ApiError
from lookback.server.guard import Metrics
from lookback.server.scheduler import RequestScheduler
from lookback.server.schema import ChatRequest
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
        with httpx.Client(base_url=client.base_url, timeout=HANG_SECONDS) as own:
            found[name] = chat(own, **asked(name, **more))

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    return found, threads


def scheduler(client):
    return client.app.state.scheduler


def test_a_full_queue_refuses_and_the_others_are_answered(engine):
    with serve(engine) as client:
        found, threads = in_threads(client, "abcde")
        for thread in threads:
            thread.start()
        until(lambda: scheduler(client).waiting == 3)
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
        until(lambda: scheduler(client).at_work == 0)
        assert 'lookback_requests_total{path="/v1/chat/completions",status="429"} 1.0' in (
            client.get("/metrics").text
        )


def test_work_stops_when_its_client_goes_away(engine):
    with serve(engine) as client:
        with connected(client, asked("gone")):
            until(lambda: engine.begun == ["gone"])
        until(lambda: engine.given_up == ["gone"])
        until(lambda: scheduler(client).at_work == 0)
        assert "lookback_clients_gone_total 1.0" in client.get("/metrics").text


def test_a_stream_stops_when_its_client_goes_away(engine):
    with serve(engine) as client:
        with client.stream("POST", "/v1/chat/completions", json=asked("gone", stream=True)) as s:
            until(lambda: engine.begun == ["gone"])
            assert next(s.iter_lines()).startswith(": lookback ")
        until(lambda: engine.given_up == ["gone"])
        until(lambda: scheduler(client).at_work == 0)


def test_who_waits_and_goes_away_leaves_the_line(engine):
    with serve(engine) as client:
        found, threads = in_threads(client, "ab")
        for thread in threads:
            thread.start()
        until(lambda: scheduler(client).at_work == 2)
        with connected(client, asked("c")):
            until(lambda: scheduler(client).waiting == 1)
        until(lambda: scheduler(client).waiting == 0)
        engine.go.set()
        for thread in threads:
            thread.join()
        assert sorted(engine.begun) == ["a", "b"]
        assert {answer.status_code for answer in found.values()} == {200}


def test_a_deadline_ends_the_work(engine):
    async def work():
        crowd = Crowd(engine, seconds=100)
        for name, stream in (("late", False), ("late stream", True)):
            await crowd.ask(name, lambda name=name: name in engine.begun, stream=stream)
            await pass_time(99)
            assert not crowd.asked[name].done()
            await pass_time(1)
            await happens(lambda name=name: name in engine.given_up)
        engine.go.set()
        await crowd.ask("in time", lambda: "in time" in engine.ended)
        # The head of the stream was out.
        assert await crowd.statuses() == {"late": 504, "late stream": 200, "in time": 200}
        assert crowd.asked["late"].result().json()["error"]["code"] == "deadline"
        text = crowd.asked["late stream"].result().text
        last = [line for line in text.splitlines() if line.startswith("data: ")][-1]
        assert json.loads(last[6:])["error"]["code"] == "deadline"
        assert "[DONE]" not in text

    run(work())


def test_a_request_that_comes_too_slowly(engine):
    async def work():
        sent = [{"type": "http.request", "body": b"{", "more_body": True}]
        slow = asyncio.ensure_future(answered(engine, sent, Limits(body_seconds=30)))
        await happens(lambda: not sent)
        await pass_time(29)
        assert not slow.done()
        await pass_time(1)
        await happens(slow.done)
        head, *_ = slow.result()
        assert head["status"] == 408

    run(work())


async def answered(engine, sent, limits, after=None):
    """What is answered to the parts of a body; then comes something else, or nothing more."""
    app, found = make_app(engine, Settings(limits=limits)), []

    async def receive():
        if not sent and after is None:
            await asyncio.Event().wait()
        return sent.pop(0) if sent else after

    async def send(message):
        found.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions"}
    scope |= {"headers": [(b"host", b"localhost"), (b"content-type", b"application/json")]}
    scope |= {"query_string": b"", "client": ("10.0.0.1", 1)}
    await app(scope, receive, send)
    await happens(lambda: app.state.scheduler.at_work == 0)
    return found


def test_a_full_queue_refuses_before_the_body_is_sent(engine):
    with serve(engine, in_flight=1, queue=0) as client, connected(client, asked("a")):
        until(lambda: engine.begun == ["a"])
        with socket.create_connection(
            (client.base_url.host, client.base_url.port), HANG_SECONDS
        ) as other:
            other.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
            )
            assert other.recv(12) == b"HTTP/1.1 429"
        scene = client.get("/explorer/scene?seed=3").json()
        things = [
            {k: one[k] for k in ("category", "color", "size", "cell", "look")}
            for one in scene["things"]
        ]
        edited = client.post("/explorer/scene", json={"seed": 3, "things": things})
        assert edited.status_code == 200


def test_the_bytes_of_all_requests_have_a_limit_and_a_client_has_half(engine):
    noise = data_uri(Image.effect_noise((800, 800), 100))
    assert 2**19 < len(noise) < 2**20 - 2**15

    def ask(name, client_address, image=noise):
        there = {"x-forwarded-for": client_address}  # as a proxy on this machine says
        body = asked(name, image)
        answers[name] = client.post("/v1/chat/completions", json=body, headers=there)
        return answers[name].status_code

    answers = {}
    with serve(engine, body_mib=1, bodies_mib=2, in_flight=9) as client:
        threads = [threading.Thread(target=ask, args=(name, name)) for name in ("::1", "::2")]
        for thread in threads:
            thread.start()
        until(lambda: sorted(engine.begun) == ["::1", "::2"])
        assert ask("too much for one", "::1") == 429
        assert ask("too much for all", "::3") == 429
        assert answers["too much for all"].json()["error"]["code"] == "bodies_full"
        assert answers["too much for all"].headers["retry-after"]
        engine.go.set()
        assert ask("a small one", "::1", scene_uri()) == 200
        for thread in threads:
            thread.join()
        assert ask("now", "::1") == 200


def test_an_end_finishes_what_is_at_work_and_sends_the_others_away(engine):
    with serve(engine, grace=HANG_SECONDS) as client:
        found, threads = in_threads(client, "abcd")
        for thread in threads:
            thread.start()
        until(lambda: scheduler(client).waiting == 2)
        client.server.should_exit = True
        until(lambda: scheduler(client).closed)
        until(lambda: len(found) == 2)
        assert {answer.status_code for answer in found.values()} == {503}
        engine.go.set()
        for thread in threads:
            thread.join()
    statuses = [answer.status_code for answer in found.values()]
    assert sorted(statuses) == [200, 200, 503, 503]
    assert len(engine.ended) == 2


def test_an_end_gives_up_what_takes_too_long(engine):
    with serve(engine, grace=1) as client:  # a slow machine takes more, and gives up all the same
        found, threads = in_threads(client, "a")
        threads[0].start()
        until(lambda: engine.begun == ["a"])
        client.server.should_exit = True
        client.thread.join(HANG_SECONDS)
        assert not client.thread.is_alive()
        until(lambda: engine.given_up == ["a"])
        threads[0].join()
    assert not found or found["a"].status_code >= 500


def test_ready_and_health(engine):
    with serve(engine) as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").json() == {"status": "ready"}
        scheduler(client).close()
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200


def test_nothing_that_is_asked_is_logged(engine, caplog):
    from lookback.server.errors import LOG

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


class SlowImages:
    """Images of a test's server that take as long as the test lets them."""

    def __init__(self, monkeypatch):
        self.go, self.begun = threading.Event(), []
        self._read = requests.stored_image
        monkeypatch.setattr(requests, "stored_image", self.read)

    def read(self, address, policy):
        if address == scene_uri(1):
            self.begun.append(address)
            assert self.go.wait(HANG_SECONDS)
        return self._read(address, policy)


def test_the_slow_images_of_one_client_leave_room_for_others(engine, monkeypatch):
    images = SlowImages(monkeypatch)
    engine.go.set()
    slow = asked("slow", scene_uri(1))
    with serve(engine, queue=30) as client, ExitStack() as stack:
        for _ in range(READERS):
            stack.enter_context(connected(client, slow))
        until(lambda: len(images.begun) == SHARE)
        other = {"x-forwarded-for": "192.0.2.1"}  # as a proxy on this machine says
        answer = client.post("/v1/chat/completions", json=asked("quick"), headers=other)
        assert answer.status_code == 200
        assert len(images.begun) == SHARE
        images.go.set()
        until(lambda: engine.ended.count("slow") == READERS)


def test_a_deadline_ends_the_reading_of_images(engine, monkeypatch):
    images = SlowImages(monkeypatch)

    async def work():
        crowd = Crowd(engine, seconds=100)
        await crowd.ask("slow", lambda: images.begun == [scene_uri(1)], image=scene_uri(1))
        await pass_time(100)
        assert await crowd.statuses() == {"slow": 504}
        images.go.set()

    run(work())
    assert engine.begun == []


def test_nothing_more_is_read_once_nobody_waits():
    left = 1

    def check():
        nonlocal left
        left -= 1
        if left < 0:
            raise GivenUp

    body = ChatRequest.model_validate(asked("?", scene_uri(1), "data:,no image"))
    with pytest.raises(GivenUp):
        requests.read_messages(body.messages, check)


class Crowd:
    """Clients with addresses of their own, who ask an application without a network between."""

    def __init__(self, engine, **limits):
        settings = Settings(limits=Limits(**{"in_flight": 1, "queue": 2, **limits}))
        self.app, self.asked = make_app(engine, settings), {}
        self.scheduler = self.app.state.scheduler

    async def ask(self, name, until, address="10.0.0.1", image=None, **more):
        """Ask, and go on once something is so."""
        images = [image] if image else []
        transport = httpx.ASGITransport(self.app, client=(address, 1))
        http = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        self.asked[name] = asyncio.ensure_future(chat(http, **asked(name, *images, **more)))
        await happens(until)

    def refused(self):
        """Those who were told to come again."""
        found = {name: one.result() for name, one in self.asked.items() if one.done()}
        return {name for name, one in found.items() if one.status_code == 429}

    async def statuses(self):
        """Of all, once they are answered."""
        found = await asyncio.gather(*self.asked.values())
        return {name: one.status_code for name, one in zip(self.asked, found, strict=True)}


@pytest.mark.parametrize("stream", [False, True])
def test_one_client_does_not_fill_the_queue_for_the_others(engine, stream):
    async def work():
        crowd = Crowd(engine)
        await crowd.ask("a0", lambda: engine.begun == ["a0"], stream=stream)
        await crowd.ask("a1", lambda: crowd.scheduler.waiting == 1, stream=stream)
        await crowd.ask("a2", lambda: crowd.scheduler.waiting == 2, stream=stream)
        await crowd.ask("a3", lambda: crowd.refused() == {"a3"}, stream=stream)
        await crowd.ask(
            "b1", lambda: crowd.refused() == {"a3", "a2"}, address="10.0.0.2", stream=stream
        )
        for name in ("a2", "a3"):
            assert crowd.asked[name].result().headers["retry-after"] == "2"
        engine.go.set()
        assert await crowd.statuses() == {"a0": 200, "a1": 200, "a2": 429, "a3": 429, "b1": 200}
        assert engine.ended == ["a0", "a1", "b1"]

    asyncio.run(work())


def test_places_go_round_clients_first_and_then_their_users(engine):
    async def work():
        crowd = Crowd(engine, queue=9)
        await crowd.ask("first", lambda: engine.begun == ["first"])
        await crowd.ask("a/x", lambda: crowd.scheduler.waiting == 1, user="x")
        await crowd.ask("a/y", lambda: crowd.scheduler.waiting == 2, user="y")
        await crowd.ask("b/x", lambda: crowd.scheduler.waiting == 3, address="10.0.0.2", user="x")
        engine.go.set()
        await crowd.statuses()
        assert engine.ended == ["first", "a/x", "b/x", "a/y"]

    asyncio.run(work())


def test_a_stream_that_waits_has_no_status_yet(engine):
    async def work():
        crowd = Crowd(engine)
        await crowd.ask("at work", lambda: engine.begun == ["at work"], stream=True)
        await crowd.ask("waits", lambda: crowd.scheduler.waiting == 1, stream=True)
        crowd.scheduler.close()
        engine.go.set()
        assert await crowd.statuses() == {"at work": 200, "waits": 503}

    asyncio.run(work())


def test_a_stream_that_waits_too_long_has_a_status(engine):
    async def work():
        crowd = Crowd(engine, seconds=100)
        crowd.scheduler.places = 0  # nobody ever gets a place
        await crowd.ask("late", lambda: crowd.scheduler.waiting == 1, stream=True)
        await pass_time(100)
        assert await crowd.statuses() == {"late": 504}
        assert crowd.scheduler.waiting == 0

    run(work())


def test_a_watched_stream_hears_that_it_waits_and_that_it_lost_its_place(engine):
    async def work():
        crowd, watch = Crowd(engine, queue=1), {"watch": True, "best_of": 2}
        await crowd.ask("a0", lambda: engine.begun == ["a0"])
        await crowd.ask("a1", lambda: crowd.scheduler.waiting == 1, stream=True, lookback=watch)
        await crowd.ask("a2", lambda: crowd.refused() == {"a2"}, stream=True, lookback=watch)
        await crowd.ask("b1", lambda: crowd.asked["a1"].done(), address="10.0.0.2")
        answer = crowd.asked["a1"].result()
        assert answer.status_code == 200  # its head was out
        queued, error = answer.text.strip().split("\n\n")
        assert json.loads(queued.removeprefix(": lookback "))["event"] == "queued"
        told = json.loads(error.removeprefix("data: "))["error"]
        assert (told["type"], told["code"]) == ("rate_limit_error", "queue_full")
        engine.go.set()
        assert (await crowd.statuses())["b1"] == 200

    asyncio.run(work())


def test_a_stream_whose_client_left_before_its_first_event_is_given_up(engine):
    """Neither its place nor its work outlives it."""
    body = json.dumps(asked("gone", stream=True, lookback={"watch": True, "best_of": 2})).encode()
    sent = [{"type": "http.request", "body": body, "more_body": False}]
    gone = {"type": "http.disconnect"}
    asyncio.run(answered(engine, sent, Limits(in_flight=1), after=gone))
    assert engine.ended == []


def test_the_time_that_a_request_has_used_counts(engine):
    """Whoever took 101 of its 100 seconds to arrive has none left, however short the work."""
    engine.go.set()
    settings = Settings(limits=Limits(seconds=100))
    scheduler = RequestScheduler(1, 1)
    service = Service(engine, settings, scheduler, Metrics(scheduler))

    async def receive():
        await asyncio.Event().wait()

    async def work(used):
        state = SimpleNamespace(client="10.0.0.1", began=-used)  # it is 0 now
        request = SimpleNamespace(state=state, receive=receive)
        return await Job(service, request, None).answer(lambda: "answered")

    assert run(work(99)) == "answered"
    with pytest.raises(ApiError) as late:
        run(work(101))
    assert late.value.status == 504

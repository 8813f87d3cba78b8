"""What is wrong with a request is said in OpenAI's shape, with the part that it is about."""

import base64

import httpx
import pytest
from PIL import Image
from server.serving import asked, chat, data_uri, embedded, scene_uri, serving

from lookback.server.settings import Limits, Settings

BROKEN = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"no" * 50).decode()
CASES = {
    "tools": ({"tools": [{"type": "function"}]}, 400, "tools"),
    "functions": ({"functions": [{"name": "f"}]}, 400, "functions"),
    "audio": ({"audio": {"voice": "x"}}, 400, "audio"),
    "json": ({"response_format": {"type": "json_object"}}, 400, "response_format"),
    "penalty": ({"presence_penalty": 0.5}, 400, "presence_penalty"),
    "bias": ({"logit_bias": {"5": 1}}, 400, "logit_bias"),
    "unknown": ({"foo": 1}, 400, "foo"),
    "unknown of lookback": ({"lookback": {"foo": 1}}, 400, "lookback.foo"),
    "model": ({"model": "gpt-4o"}, 404, "model"),
    "n": ({"n": 0}, 400, "n"),
    "n of another kind": ({"n": "3"}, 400, "n"),
    "n of no kind": ({"n": 2.5}, 400, "n"),
    "n above best_of": ({"n": 5, "lookback": {"best_of": 2}}, 400, "n"),
    "too many": ({"lookback": {"best_of": 1000}}, 400, "lookback.best_of"),
    "too long": ({"max_tokens": 100_000}, 400, "max_tokens"),
    "longer": ({"max_completion_tokens": 100_000}, 400, "max_completion_tokens"),
    "temperature": ({"temperature": 3}, 400, "temperature"),
    "top_p": ({"top_p": 0}, 400, "top_p"),
    "top_logprobs": ({"top_logprobs": 3}, 400, "top_logprobs"),
    "stop": ({"stop": ""}, 400, "stop"),
    "stops": ({"stop": ["a"] * 5}, 400, None),
    "scorer": ({"lookback": {"scorer": "lokback"}}, 400, "lookback.scorer"),
    "oracle": ({"lookback": {"scorer": "oracle"}}, 400, "lookback.scorer"),
    "setting": ({"lookback": {"scorer": "entropy", "alpha": 1}}, 400, "lookback.alpha"),
    "alpha": ({"lookback": {"alpha": -1}}, 400, "lookback.alpha"),
    "prune": ({"lookback": {"prune": "third"}}, 400, None),
    "schedule": ({"lookback": {"prune": [[8, 4], [4, 2]]}}, 400, "lookback.prune"),
    "source": ({"lookback": {"source": "image:3"}}, 400, "messages"),
    "no messages": ({"messages": []}, 400, "messages"),
    "no turn": ({"messages": [{"role": "assistant", "content": "hi"}]}, 400, "messages"),
    "too many words": ({"messages": [{"role": "user", "content": "x " * 60_000}]}, 400, "messages"),
    "role": ({"messages": [{"role": "tool", "content": "hi"}]}, 400, None),
    "lone surrogate": ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, None),
}


def parts(*content):
    return {"messages": [{"role": "user", "content": [*content, {"type": "text", "text": "?"}]}]}


IMAGES = {
    "a file": (parts({"type": "image_url", "image_url": "/etc/passwd"}), 400, "data URI"),
    "a file's address": (parts({"type": "image_url", "image_url": "file:///etc/passwd"}), 400, ""),
    "an address": (
        parts({"type": "image_url", "image_url": "http://example.org/x.png"}),
        400,
        "--allow-urls",
    ),
    "no image": (parts({"type": "image_url", "image_url": "data:image/png;base64,eA=="}), 400, ""),
    "a broken one": (parts({"type": "image_url", "image_url": BROKEN}), 400, "messages[0]"),
    "audio": (parts({"type": "input_audio", "input_audio": {"data": ""}}), 400, "audio"),
    "a video": (parts({"type": "video_url", "video_url": {"url": ""}}), 400, "videos"),
    "a part of no kind": (parts({"type": "thing"}), 400, ""),
    "words alone": ({"messages": [{"role": "user", "content": "hi"}]}, 400, "no source"),
}


def refused(answer, status):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert len(error["message"]) <= 610
    assert answer.headers["x-request-id"]
    return error


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_named(client, name):
    changes, status, param = CASES[name]
    if name == "lone surrogate":
        body = r'{"messages": [{"role": "user", "content": "\ud800"}]}'
        headers = {"content-type": "application/json"}
        answer = client.post("/v1/chat/completions", content=body, headers=headers)
    else:
        answer = chat(client, **(asked() | changes))
    error = refused(answer, status)
    assert param is None or error["param"] == param


@pytest.mark.parametrize("name", IMAGES)
def test_images_that_cannot_be_read(client, name):
    body, status, words = IMAGES[name]
    assert words in refused(chat(client, **body), status)["message"]


@pytest.mark.parametrize("body", ["", "{", "[1]", "NaN", '{"messages": NaN}', "[" * 5000])
def test_what_is_no_json(client, body):
    headers = {"content-type": "application/json"}
    refused(client.post("/v1/chat/completions", content=body, headers=headers), 400)


def test_another_type_of_content(client):
    headers = {"content-type": "text/plain"}
    refused(client.post("/v1/chat/completions", content="{}", headers=headers), 415)


def test_a_path_and_a_method_that_are_not_there(client):
    refused(client.get("/nothing"), 404)
    refused(client.get("/v1/chat/completions"), 405)


def test_another_sites_name(client):
    refused(client.get("/v1/models", headers={"host": "evil.example"}), 403)
    assert client.get("/v1/models", headers={"host": "localhost:1"}).status_code == 200


def test_errors_in_a_stream_come_before_its_head(client):
    refused(chat(client, **asked(stream=True, tools=[1])), 400)
    refused(chat(client, **IMAGES["a broken one"][0], stream=True), 400)


@pytest.fixture(scope="module")
def strict():
    limits = Limits(body_mib=1, images=1, best_of=3, tokens=5)
    with serving(embedded(), Settings(limits=limits, api_key="sécret")) as found:
        found.headers = httpx.Headers({"authorization": "Bearer sécret".encode()})
        yield found


def test_a_key_is_needed(strict):
    for key in ("", "Bearer x", "Bearer sécre"):
        answer = strict.get("/v1/models", headers={"authorization": key.encode()})
        assert refused(answer, 401)["code"] == "invalid_api_key"
    assert strict.get("/v1/models").status_code == 200
    for path in ("/health", "/ready"):
        assert strict.get(path, headers={"authorization": ""}).status_code == 200


def test_limits(strict):
    refused(chat(strict, **asked("?", scene_uri(), scene_uri(1))), 400)
    refused(chat(strict, **asked(max_tokens=6)), 400)
    assert "--" not in refused(chat(strict, **asked(n=4)), 400)["message"]
    big = data_uri(Image.effect_noise((900, 900), 100).convert("RGB"))
    assert refused(chat(strict, **asked("?", big)), 413)["code"] == "too_large"

    def endless():
        yield b'{"messages": "'
        for _ in range(64):
            yield b"x" * 2**16

    headers = {"content-type": "application/json"}
    answer = strict.post("/v1/chat/completions", content=endless(), headers=headers)
    refused(answer, 413)


def test_pictures_of_too_many_pixels(client, monkeypatch):
    monkeypatch.setenv("LOOKBACK_MAX_IMAGE_PIXELS", "10000")
    body = asked("?", data_uri(Image.new("RGB", (101, 100))))
    assert "101 x 100" in refused(chat(client, **body), 413)["message"]

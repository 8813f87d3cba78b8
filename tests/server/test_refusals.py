"""What is wrong with a request is said in OpenAI's shape, with the part that it is about."""

import base64
import json

import httpx
import pytest
from PIL import Image
from pydantic import ValidationError
from server.serving import asked, chat, data_uri, embedded, scene_uri, serving
from toy_engine import ToyEngine

from lookback.server.schema import ChatRequest
from lookback.server.settings import Defaults, Limits, Settings

BROKEN = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"no" * 50).decode()
WORDS = [{"role": "user", "content": "hi"}]


def spoken(**more):
    """A conversation in which the assistant has said more than words."""
    return {"messages": [{"role": "assistant", "content": "Hm."} | more, *asked()["messages"]]}


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
    "stops": ({"stop": ["a"] * 5}, 400, "stop"),
    "an empty stop": ({"stop": ["a", ""]}, 400, "stop[1]"),
    "scorer": ({"lookback": {"scorer": "lokback"}}, 400, "lookback.scorer"),
    "oracle": ({"lookback": {"scorer": "oracle"}}, 400, "lookback.scorer"),
    "setting": ({"lookback": {"scorer": "entropy", "alpha": 1}}, 400, "lookback.alpha"),
    "alpha": ({"lookback": {"alpha": -1}}, 400, "lookback.alpha"),
    "prune": ({"lookback": {"prune": "third"}}, 400, "lookback.prune"),
    "schedule": ({"lookback": {"prune": [[8, 4], [4, 2]]}}, 400, "lookback.prune"),
    "source": ({"lookback": {"source": "image:3"}}, 400, "messages"),
    "no messages": ({"messages": []}, 400, "messages"),
    "no turn": ({"messages": [{"role": "assistant", "content": "hi"}]}, 400, "messages"),
    "too many words": ({"messages": [{"role": "user", "content": "x " * 60_000}]}, 400, "messages"),
    "no image for a scorer that needs one": (
        {"messages": WORDS, "lookback": {"scorer": "lookback"}},
        400,
        "lookback.scorer",
    ),
    "no image for a setting that needs one": (
        {"messages": WORDS, "lookback": {"alpha": 0.5}},
        400,
        "lookback.scorer",
    ),
    "no image for a source": (
        {"messages": WORDS, "lookback": {"source": "image:0"}},
        400,
        "messages",
    ),
    "no image for a scorer that is none": (
        {"messages": WORDS, "lookback": {"scorer": "lokback"}},
        400,
        "lookback.scorer",
    ),
    "tools that were called": (spoken(tool_calls=[{"id": "c"}]), 400, "messages[0].tool_calls"),
    "a function that was called": (
        spoken(function_call={"name": "f"}),
        400,
        "messages[0].function_call",
    ),
    "audio that was said": (spoken(audio={"id": "a"}), 400, "messages[0].audio"),
    "a refusal": (spoken(refusal="No."), 400, "messages[0].refusal"),
    "scorer of many letters": ({"lookback": {"scorer": "x" * 1001}}, 400, "lookback.scorer"),
    "user of many letters": ({"user": "x" * 1001}, 400, "user"),
    "model of many letters": ({"model": "x" * 1001}, 400, "model"),
    "role": ({"messages": [{"role": "tool", "content": "hi"}]}, 400, None),
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
    error = refused(chat(client, **(asked() | changes)), status)
    assert param is None or error["param"] == param


@pytest.mark.parametrize("name", IMAGES)
def test_images_that_cannot_be_read(client, name):
    body, status, words = IMAGES[name]
    assert words in refused(chat(client, **body), status)["message"]


@pytest.mark.parametrize(
    ("content", "param"),
    [
        ({"a": 1}, "messages[0].content"),
        ([{"type": "thing"}], "messages[0].content[0]"),
        ([{"type": "text", "text": 5}], "messages[0].content[0].text"),
        ([{"type": "text"}], "messages[0].content[0].text"),
        ([{"type": "image_url", "image_url": {}}], "messages[0].content[0].image_url.url"),
        ([{"type": "text", "text": "hi", "b": 1}], "messages[0].content[0].b"),
    ],
)
def test_places_have_no_names_of_types(client, content, param):
    body = {"messages": [{"role": "user", "content": content}]}
    assert refused(chat(client, **body), 400)["param"] == param


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
    with serving(embedded(), Settings(limits=limits, api_key="s3cret")) as found:
        found.headers = httpx.Headers({"authorization": "Bearer s3cret"})
        yield found


def test_a_key_is_needed(strict):
    for key in ("", "Bearer x", "Bearer s3cre", "Bearer sécret", "Basic s3cret", "s3cret"):
        answer = strict.get("/v1/models", headers={"authorization": key.encode()})
        assert refused(answer, 401)["code"] == "invalid_api_key"
    for key in ("Bearer s3cret", "bearer s3cret", "BEARER  s3cret"):
        answer = strict.get("/v1/models", headers={"authorization": key})
        assert answer.status_code == 200
    for path in ("/health", "/ready", "/docs", "/docs/assets/swagger-ui.css"):
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


@pytest.mark.parametrize("piece", [b"{},", b"[],", b"1,", b'"",'])
def test_a_request_of_too_many_values_is_not_read(client, piece):
    body = b'{"messages": [' + piece * 200_000
    headers = {"content-type": "application/json"}
    answer = client.post("/v1/chat/completions", content=body, headers=headers)
    assert refused(answer, 400)["code"] == "too_many_values"


def test_a_request_is_read_to_its_first_error():
    many, part = [1] * 1000, {"role": "user", "content": [1] * 1000}
    lists = [
        {"messages": many},
        {"messages": [part] * 10},
        asked() | {"lookback": {"signals": many}},
        asked() | {"lookback": {"prune": many}},
        asked() | {"lookback": {"source": many}},
        {f"key {i}": 1 for i in range(1000)},
    ]
    for body in lists:
        with pytest.raises(ValidationError) as error:
            ChatRequest.model_validate(body)
        assert error.value.error_count() < 5


def test_pictures_of_too_many_pixels(client, monkeypatch):
    monkeypatch.setenv("LOOKBACK_MAX_IMAGE_PIXELS", "10000")
    body = asked("?", data_uri(Image.new("RGB", (101, 100))))
    assert "101 x 100" in refused(chat(client, **body), 413)["message"]


def places(data, where=""):
    """The place of every text in a body, and the body with half a character there."""
    inside = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in list(inside):
        name = f"{where}[{key}]" if isinstance(key, int) else f"{where}.{key}".lstrip(".")
        if isinstance(value, str):
            data[key] = value + "\ud800"
            yield name
            data[key] = value
        elif isinstance(value, (dict, list)):
            yield from places(value, name)


RANKED = {"scorer": "lookback", "source": "image:0", "signals": ["log_prob"]}
EVERYTHING = {
    "/v1/chat/completions": {"model": "lookback", "user": "me", "stop": ["a", "b"]}
    | {"lookback": RANKED | {"prune": "half"}, "response_format": {"type": "text"}},
    "/v1/score": {"responses": ["A red cup.", "A dog."], "user": "me", "lookback": RANKED},
    "/v1/look": {"response": "A dog.", "source": ["image:0"], "relative_to": "What?", "user": "me"},
}


@pytest.mark.parametrize("path", EVERYTHING)
def test_half_a_character_is_refused_with_its_place(client, path):
    body = asked() | EVERYTHING[path]
    count = 0
    for where in places(body):
        # The client's own JSON would refuse to send it.
        headers, sent = {"content-type": "application/json"}, json.dumps(body)
        error = refused(client.post(path, content=sent, headers=headers), 400)
        assert error["param"] == where
        assert "\\ud800" in error["message"]
        count += 1
    assert count >= 8


def test_half_a_character_in_a_name(client):
    for body in (asked() | {"a\ud800": 1}, asked() | {"lookback": {"a\ud800": 1}}):
        headers, sent = {"content-type": "application/json"}, json.dumps(body)
        answer = client.post("/v1/chat/completions", content=sent, headers=headers)
        assert "\\ud800" in refused(answer, 400)["message"]


def test_a_body_that_is_deeply_nested(client):
    deep = "[" * 900 + "]" * 900
    for name in ("stop", "metadata", "lookback", "foo"):
        sent = json.dumps(asked() | {name: "DEEP"}).replace('"DEEP"', deep)
        headers = {"content-type": "application/json"}
        answer = client.post("/v1/chat/completions", content=sent, headers=headers)
        assert answer.status_code == (200 if name == "metadata" else 400), answer.text


SMALL = Limits(body_mib=1, images=2, characters=30, tokens=5, best_of=3)
FEW = {"max_tokens": 1, "lookback": {"best_of": 1}}
AT_LIMITS = {
    "best_of": [asked("?", lookback={"best_of": count}) for count in (3, 4)],
    "n": [asked("?", n=count, temperature=0) for count in (3, 4)],
    "max_tokens": [asked("?", max_tokens=count) for count in (5, 6)],
    "max_completion_tokens": [asked("?", max_completion_tokens=count) for count in (5, 6)],
    "images": [asked("?", *[scene_uri()] * count, **FEW) for count in (2, 3)],
    "characters": [asked("?" * count, **FEW) for count in (30, 31)],
    "temperature": [asked("?", **FEW, temperature=value) for value in (2, 2.001)],
    "no temperature": [asked("?", **FEW, temperature=value) for value in (0, -0.001)],
    "top_p": [asked("?", **FEW, top_p=value) for value in (1, 1.001)],
    "top_logprobs": [asked("?", **FEW, logprobs=True, top_logprobs=i) for i in (9, 21)],
    "stop": [asked("?", **FEW, stop=["x"] * count) for count in (4, 5)],
    "responses": [asked("?", responses=["red"] * count) for count in (3, 4)],
    "characters of a response": [asked("?", responses=["r" * count]) for count in (80, 81)],
    "tokens of a response": [asked("?", responses=[[1] * count]) for count in (5, 6)],
    "characters to look at": [asked("?", response="r" * count) for count in (80, 81)],
    "tokens to look at": [asked("?", response=[1] * count) for count in (5, 6)],
}


@pytest.fixture(scope="module")
def small():
    with serving(ToyEngine(), Settings(limits=SMALL, defaults=Defaults(best_of=1))) as found:
        yield found


@pytest.mark.parametrize("name", AT_LIMITS)
def test_what_is_at_a_limit_is_allowed_and_what_is_beyond_is_not(small, name):
    within, beyond = AT_LIMITS[name]
    path = "/v1/score" if "responses" in within else "/v1/look"
    path = path if {"responses", "response"} & set(within) else "/v1/chat/completions"
    answer = small.post(path, json=within)
    assert answer.status_code == 200, answer.text
    refused(small.post(path, json=beyond), 400)


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_at_its_limit_is_allowed_and_a_byte_more_is_not(small, declared):
    headers = {"content-type": "application/json"}
    for size, status in ((2**20, 200), (2**20 + 1, 413)):
        sent = json.dumps(asked("?", **FEW)).encode().ljust(size)
        content = sent if declared else iter([sent[:1000], sent[1000:]])
        answer = small.post("/v1/chat/completions", content=content, headers=headers)
        assert answer.status_code == status, answer.text

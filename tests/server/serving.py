"""A real server in a thread of the tests' process, and what is asked of it."""

import base64
import io
import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import httpx
from timeouts import HANG_SECONDS

import lookback
from lookback.scenes.render import render
from lookback.scenes.scene import sample_scene
from lookback.server.app import make_app
from lookback.server.process import address, listen, make_server
from lookback.server.settings import Limits, Settings


@cache
def embedded():
    return lookback.load()


def patient(settings):
    """The same, but deadlines that nobody set are long: a slow machine makes no request late."""
    usual, limits = Limits(), settings.limits
    unset = [n for n in ("seconds", "body_seconds") if getattr(limits, n) == getattr(usual, n)]
    return replace(settings, limits=replace(limits, **dict.fromkeys(unset, HANG_SECONDS)))


@contextmanager
def serving(engine, settings=None):
    """Serve an engine; gives a client for its address, and ends the server."""
    settings = patient(settings or Settings())
    app = make_app(engine, settings)
    bound, server = listen("127.0.0.1", 0), make_server(app, settings)
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    with httpx.Client(base_url=address(bound), timeout=HANG_SECONDS) as client:
        client.app, client.server, client.thread = app, server, thread
        try:
            yield client
        finally:
            server.should_exit = True
            thread.join(HANG_SECONDS)
            assert not thread.is_alive()


def data_uri(image, kind="PNG"):
    held = io.BytesIO()
    image.save(held, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(held.getvalue()).decode()}"


@cache
def scene_uri(seed=5):
    return data_uri(render(sample_scene(seed)))


def asked(question="What is in the picture?", *images, **more):
    """A request's body about pictures; by default one scene."""
    shown = [{"type": "image_url", "image_url": {"url": one}} for one in images or (scene_uri(),)]
    return {
        "messages": [{"role": "user", "content": [*shown, {"type": "text", "text": question}]}]
    } | more


def chat(client, **body):
    return client.post("/v1/chat/completions", json=body)


@contextmanager
def connected(client, body):
    """A request whose client is there until the block's end, and then is gone."""
    sent = json.dumps(body).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
    )
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.sendall(head.encode() + sent)
        yield connection


def plain(question="What is in the picture?", seed=5):
    """The same messages as an engine takes them."""
    return [
        {
            "role": "user",
            "content": [
                {"type": "image", "image": render(sample_scene(seed))},
                {"type": "text", "text": question},
            ],
        }
    ]

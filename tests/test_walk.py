"""How many files of the package a newcomer walks through: a question in Python, a chat request."""

import asyncio
import inspect
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from PIL import Image
from server.serving import asked, chat, embedded

import lookback
from lookback.server.app import make_app
from lookback.server.settings import Settings

ROOT = Path(lookback.__file__).parent
SAMPLE_FILES = 34
CHAT_FILES = 40
SERVER_FILES = 7
"""Of a chat request, those of the server; without `process`, as there is no network here."""


@contextmanager
def files_called():
    """The files of the package whose functions are called, in this thread or in new ones."""
    names = set()

    def note(frame, event, _):
        function = event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED
        path = Path(frame.f_code.co_filename)
        if function and path.is_relative_to(ROOT):  # no module or class body
            names.add(str(path.relative_to(ROOT)))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def test_from_a_question_to_the_best_answer():
    load, image = lookback.load, Image.new("RGB", (64, 64))

    def walk():
        load().sample(image, "What is red?", n=3, seed=1).best("lookback")

    walk()  # imports and what is tried once per process are no part of it
    with files_called() as files:
        walk()
    assert "engines/base.py" in files
    assert len(files) <= SAMPLE_FILES, sorted(files)


async def ask(engine, **more):
    app = make_app(engine, Settings())  # with threads of its own
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with files_called() as files:
            body = asked(seed=1, max_tokens=4, lookback={"best_of": 2}, **more)
            answer = await chat(client, **body)
    assert answer.status_code == 200
    return files


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_request(stream):
    asyncio.run(ask(embedded(), stream=stream))  # what is imported at the first request is no step
    files = asyncio.run(ask(embedded(), stream=stream))
    assert len([name for name in files if name.startswith("server/")]) <= SERVER_FILES
    assert len(files) <= CHAT_FILES, sorted(files)

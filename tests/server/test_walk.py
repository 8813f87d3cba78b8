"""One chat request touches few files of the package: those that a newcomer reads to follow it."""

import asyncio
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from server.serving import asked, chat, embedded

import lookback
from lookback.server.app import make_app
from lookback.server.settings import Settings

PACKAGE = str(Path(lookback.__file__).parent)
SERVER_FILES = 7
"""Of the server's own, without `process`: there is no network here."""
ALL_FILES = 47
"""Of the whole package, with the embedded model."""


@contextmanager
def files_called():
    """The files of the package in which functions are called, in this thread or in new ones."""
    found = set()

    def note(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            found.add(name.removeprefix(f"{PACKAGE}/"))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def ask(engine, **more):
    app = make_app(engine, Settings())  # with threads of its own
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with files_called() as found:
            body = asked(seed=1, max_tokens=4, lookback={"best_of": 2}, **more)
            answer = await chat(client, **body)
    assert answer.status_code == 200
    return found


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_request_touches_few_files(stream):
    asyncio.run(ask(embedded(), stream=stream))  # what is imported at the first request is no step
    found = asyncio.run(ask(embedded(), stream=stream))
    assert len([name for name in found if name.startswith("server/")]) <= SERVER_FILES
    assert len(found) <= ALL_FILES, sorted(found)

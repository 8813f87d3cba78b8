"""stdin in place of a file: once, never from a terminal, up to the limits."""

import io
import json
import os
import subprocess
import sys

import pytest
from PIL import Image
from timeouts import HANG_SECONDS

NO_MODEL = ("--model", "/no/such/model")
"""Loaded, it would fail in other words."""


class Endless(io.RawIOBase):
    """A stream without an end, which counts what is read of it."""

    def __init__(self):
        self.taken = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        self.taken += len(buffer)
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def read(self, *_):
        raise AssertionError("somebody would have to type")


@pytest.fixture
def stdin(monkeypatch):
    def give(data):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def picture(size=(80, 80), kind="PNG"):
    out = io.BytesIO()
    Image.new("RGB", size, "red").save(out, kind)
    return out.getvalue()


def shown(out):
    return json.loads(out)["messages"][0]["content"][0]["image"]


def test_an_image_from_stdin_is_the_image_of_the_file(command, stdin, tmp_path):
    (tmp_path / "a.png").write_bytes(picture())
    settings = ("what?", "-n", "2", "--max-new-tokens", "3", "--json")
    _, from_file, _ = command("ask", tmp_path / "a.png", *settings)
    stdin(picture())
    status, from_stdin, _ = command("ask", "-", *settings)
    assert (status, from_stdin) == (0, from_file)
    stdin(picture((80, 80), "BMP"))
    status, scored, err = command("score", "-", "what?", "a dog", "--json")
    assert status == 0, err
    assert shown(scored) == shown(from_file)


def test_answers_from_stdin(command, stdin, tmp_path):
    (tmp_path / "a.png").write_bytes(picture())
    stdin("\ufeffa dog\n\na café\n".encode())
    status, out, err = command("score", tmp_path / "a.png", "what?", "--file", "-", "--json")
    assert status == 0, err
    assert {c["text"] for c in json.loads(out)["candidates"]} == {"a dog", "a café"}


def test_a_question_from_stdin(command, stdin, tmp_path):
    (tmp_path / "a.png").write_bytes(picture())
    stdin("How many cafés?\n".encode())
    few = ("-n", "1", "--max-new-tokens", "2")
    status, out, err = command("ask", tmp_path / "a.png", "-", *few, "--json")
    assert status == 0, err
    assert json.loads(out)["question"] == "How many cafés?"
    stdin(b"How many?")
    status, out, err = command("score", tmp_path / "a.png", "-", "two", "--json")
    assert status == 0, err
    assert json.loads(out)["question"] == "How many?"
    stdin(b" \n")
    status, _, err = command("ask", tmp_path / "a.png", "-", *NO_MODEL)
    assert (status, "the question is empty" in err) == (1, True)


def test_texts_that_are_too_long_are_refused_before_a_model_loads(
    command, stdin, tmp_path, monkeypatch
):
    monkeypatch.setenv("LOOKBACK_MAX_TEXT_CHARACTERS", "100")
    (tmp_path / "a.png").write_bytes(picture())
    long, image = "a" * 101, tmp_path / "a.png"
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": long}))
    for arguments in (
        ("ask", image, long),
        ("ask", image, "-"),
        ("ask", "--questions", tmp_path / "q.jsonl"),
        ("score", image, long, "a"),
        ("score", image, "-", "a"),
        ("score", image, "what?", "a", long),
        ("score", image, "what?", "-"),
        ("look", image, "what?", long),
        ("look", image, "what?", "-"),
        ("look", image, long, "a"),
    ):
        stdin(long.encode())
        status, out, err = command(*arguments, *NO_MODEL)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert "LOOKBACK_MAX_TEXT_CHARACTERS" in err, arguments


def test_answers_from_stdin_among_the_arguments(command, stdin, tmp_path):
    (tmp_path / "a.png").write_bytes(picture())
    stdin(b"a dog\n\na cat\n")
    status, out, err = command("score", tmp_path / "a.png", "what?", "a cow", "-", "--json")
    assert status == 0, err
    texts = {c["index"]: c["text"] for c in json.loads(out)["candidates"]}
    assert texts == {0: "a cow", 1: "a dog", 2: "a cat"}


def test_responses_from_stdin(command, stdin, tmp_path):
    data = tmp_path / "own.jsonl"
    data.write_text(json.dumps({"id": 1, "question": "Is it?", "answers": "yes"}))
    stdin(b'{"id": 1, "response": "yes"}\n')
    status, out, err = command("evaluate", "own", "--data", data, "--responses", "-", "--json")
    assert status == 0, err
    assert json.loads(out)["metrics"]["quality"] == 100
    stdin(b'{"id": 2, "response": "yes"}\n')
    status, _, err = command("evaluate", "own", "--data", data, "--responses", "-")
    assert status == 1
    assert "no response in <29 bytes> is to an item" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", "-", "what?", *NO_MODEL),
        ("ask", "{p}", "what?", "--image", "-", *NO_MODEL),
        ("ask", "--questions", "-", *NO_MODEL),
        ("score", "-", "what?", "a", *NO_MODEL),
        ("score", "{p}", "what?", "--file", "-", *NO_MODEL),
        ("score", "{p}", "what?", "-", *NO_MODEL),
        ("score", "{p}", "-", "a", *NO_MODEL),
        ("ask", "{p}", "-", *NO_MODEL),
        ("evaluate", "scenes-vqa", "--responses", "-"),
    ],
)
def test_a_terminal_is_refused_at_once(command, monkeypatch, tmp_path, arguments):
    (tmp_path / "a.png").write_bytes(picture())
    monkeypatch.setattr("sys.stdin", Terminal())
    status, out, err = command(*(a.format(p=tmp_path / "a.png") for a in arguments))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "is -, and stdin is a terminal: send a file there (< FILE), or name one" in err
    monkeypatch.setattr("sys.stdin", None)
    status, _, err = command(*(a.format(p=tmp_path / "a.png") for a in arguments))
    assert status == 1
    assert "there is no stdin" in err


@pytest.mark.parametrize(
    ("arguments", "users"),
    [
        (("ask", "-", "what?", "--image", "-"), "IMAGE and --image"),
        (("ask", "-", "-", "what?"), "IMAGE and IMAGE"),
        (("score", "-", "what?", "--file", "-"), "IMAGE and --file"),
        (("score", "a.png", "-", "-"), "QUESTION and RESPONSES"),
        (("ask", "-", "-"), "IMAGE and QUESTION"),
        (("score", "-", "what?", "a", "--image", "-"), "IMAGE and --image"),
    ],
)
def test_stdin_is_read_once(command, stdin, arguments, users):
    stdin(picture())
    status, out, err = command(*arguments, *NO_MODEL)
    assert (status, out) == (1, "")
    assert f"{users} are both -: stdin can be read once" in err


@pytest.mark.parametrize(
    ("option", "variable", "arguments"),
    [
        ("image", "LOOKBACK_MAX_IMAGE_MIB", ("ask", "-", "what?", *NO_MODEL)),
        ("questions", "LOOKBACK_MAX_DATA_MIB", ("ask", "--questions", "-", *NO_MODEL)),
        ("responses", "LOOKBACK_MAX_DATA_MIB", ("evaluate", "scenes-vqa", "--responses", "-")),
    ],
)
def test_a_stream_without_end_is_read_up_to_the_limit(
    command, monkeypatch, option, variable, arguments
):
    endless = Endless()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(endless)))
    monkeypatch.setenv(variable, "3")
    status, _, err = command(*arguments)
    assert status == 1
    assert "stdin is too large" in err
    assert variable in err
    assert endless.taken <= 5 * 2**20


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--data", "-"),
        ("run", "--benchmark", "scenes-vqa", "--candidates", "-"),
        ("evaluate", "own", "--data", "-", "--responses", "x"),
        ("evaluate", "chair", "--synonyms", "-", "--responses", "x"),
    ],
)
def test_what_cannot_be_stdin_says_why(command, stdin, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    stdin(b"{}")
    status, _, err = command(*arguments)
    assert (status, err.count("\n")) == (1, 1)
    assert "cannot be read from stdin, as " in err
    assert "save it to a file" in err


def test_what_is_no_image_is_named(command, stdin):
    stdin(b"no image")
    status, _, err = command("ask", "-", "what?", *NO_MODEL)
    assert status == 1
    assert "stdin: <8 bytes> is not an image" in err


def test_a_pipe_of_a_shell(tmp_path):
    """As a shell has it, without a file: the bytes come as they come."""
    command = [sys.executable, "-m", "lookback.cli", "ask", "-", "what?", *NO_MODEL]
    done = subprocess.run(command, input=b"no image", capture_output=True, timeout=HANG_SECONDS)
    assert (done.returncode, b"stdin: <8 bytes> is not an image" in done.stderr) == (1, True)
    closed = "exec <&-; exec " + " ".join(map(str, command)).replace("what?", "'what?'")
    done = subprocess.run(
        ["sh", "-c", closed], capture_output=True, timeout=HANG_SECONDS, env=os.environ
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)

"""`lookback serve` as a process: it starts, answers, and ends when it is told to."""

import os
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from server.serving import asked

from lookback.cli.serve import image_limits
from lookback.limits import IMAGE_MIB, IMAGE_PIXELS

TOY = ["--plugin", "tests/toy_engine.py", "--engine", "toy"]


def start(*options):
    """A server's process, and its address once it listens."""
    command = [sys.executable, "-m", "lookback.cli", "serve", "--port", "0", *options]
    path = os.pathsep.join(["tests", os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=os.environ | {"PYTHONPATH": path},
    )
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_and_ends(end):
    process, address = start(*TOY, "--best-of", "3", "--most-best-of", "4", "--max-tokens", "5")
    try:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
        found = httpx.post(f"{address}/v1/chat/completions", json=asked("a secret"), timeout=30)
        assert found.json()["lookback"]["best_of"] == 3
        refused = httpx.post(f"{address}/v1/chat/completions", json=asked(n=5), timeout=30)
        assert refused.status_code == 400
    finally:
        process.send_signal(end)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode in (0, -end, 128 + end)
    assert "base_url=" in stderr
    assert "POST /v1/chat/completions 200" in stderr
    assert "secret" not in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_the_engine_ends_with_it(end, tmp_path):
    """vLLM has processes of its own, which would stay."""
    plugin = tmp_path / "closing.py"
    plugin.write_text(
        "import sys\nimport lookback.engines\nfrom toy_engine import ToyEngine\n"
        "class Closing(ToyEngine):\n"
        "    def close(self):\n        print('closed', file=sys.stderr)\n"
        "@lookback.engines.engine('closing')\n"
        "def load(model=None, processor=None):\n    return Closing()\n"
    )
    process, address = start("--plugin", str(plugin), "--engine", "closing")
    assert httpx.get(f"{address}/ready").status_code == 200
    process.send_signal(end)
    _, stderr = process.communicate(timeout=60)
    assert stderr.splitlines()[-1] == "closed"


def test_what_it_asks_for_by_default_is_checked(command):
    for options, words in (
        (["--best-of", "65"], "--most-best-of"),
        (["--temperature", "-1"], "temperature"),
        (["--prune", "third"], "--prune"),
        (["--engine", "nothing"], "nothing"),
        (["--scorer", "lokback"], "lokback"),
        (["--scorer", "oracle"], "truth"),
    ):
        status, out, err = command("serve", "--port", "0", *options)
        assert status == 1, err
        assert words in err.splitlines()[-1]
        assert out == ""


def test_a_port_that_is_taken_is_said_before_the_model_is_loaded(command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = command("serve", "--port", port, "--model", "no/such-model")
    assert status == 1
    assert "another --port" in err


def test_what_is_missing_is_named(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    status, _, err = command("serve", "--port", "0")
    assert status == 1
    assert "pip install 'lookback-vlm[serve]'" in err


def test_questions_are_logged_if_asked_for():
    process, address = start(*TOY, "--log-text")
    httpx.post(f"{address}/v1/chat/completions", json=asked("a question"), timeout=30)
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert "asks: 'a question'" in stderr
    assert "PNG" not in stderr
    assert "data:image" not in stderr


def test_limits_of_images_hold_while_it_serves(monkeypatch):
    monkeypatch.setenv(IMAGE_MIB.variable, "7")
    monkeypatch.delenv(IMAGE_PIXELS.variable, raising=False)
    with image_limits(20, 5000):
        assert IMAGE_MIB.units == 7  # the environment comes first
        assert IMAGE_PIXELS.units == 5000
    assert IMAGE_PIXELS.units == IMAGE_PIXELS.default

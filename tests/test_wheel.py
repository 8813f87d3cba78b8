"""What users install: the wheel, built from a clean copy, in an environment with nothing else.

Takes minutes (torch is installed once more), so it is in the last tier (`make test-rest`).
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest
from timeouts import HANG_SECONDS

import lookback
from lookback.benchmarks.base import get_benchmark

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info")
TORCH = "torch==2.13.0"  # by its exact version: a range would pull a build with all of CUDA


def call(*command, cwd=None):
    """What a command says, run as if this checkout were not there."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [str(part) for part in command]
    done = subprocess.run(line, env=env, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # From a copy: what an earlier build left behind in the checkout must not be packed.
    shutil.copytree(ROOT, folder / "source", ignore=LEFT_OUT)
    call(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, folder / "source")
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """The folder of commands of a virtual environment that has the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", folder)
    bin_ = folder / ("Scripts" if os.name == "nt" else "bin")
    install = (bin_ / "python", "-m", "pip", "install", "--constraint", ROOT / "constraints.txt")
    call(*install, TORCH)
    call(*install, wheel)
    return bin_


@pytest.fixture(scope="module")
def server(environment, wheel, tmp_path_factory):
    """The address of `lookback serve` in that environment, with the extra for it."""
    python = environment / "python"
    refused = subprocess.run([environment / "lookback", "serve"], capture_output=True, text=True)
    assert "pip install 'lookback-vlm[serve]'" in refused.stderr
    call(python, "-m", "pip", "install", "-c", ROOT / "constraints.txt", f"{wheel}[serve]")
    process = subprocess.Popen(
        [environment / "lookback", "serve", "--port", "0", "--quiet"],
        cwd=tmp_path_factory.mktemp("served"),
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(HANG_SECONDS)


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "lookback").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == package  # so neither tools nor tests
    for needed in ("py.typed", "embedded/lvlm/model.safetensors", "embedded/clip/tokenizer.json"):
        assert f"lookback/{needed}" in packed
    assert any(name.endswith(".html") for name in packed)
    assert not any("training" in name for name in packed)


def test_the_wheel_says_which_version_it_is(wheel):
    assert wheel.name.startswith(f"lookback_vlm-{lookback.__version__}-")


def test_the_installed_command_answers(environment, tmp_path):
    item = get_benchmark("scenes-vqa").items("test")[0]
    item.image.save(tmp_path / "scene.png")
    code = "import lookback; print(lookback.__file__)"
    assert str(ROOT) not in call(environment / "python", "-c", code, cwd=tmp_path)
    said = call(environment / "lookback", "--version", cwd=tmp_path)
    assert said.split() == ["lookback", lookback.__version__]
    ask = ("ask", "scene.png", item.question, "-n", "4", "--json")
    said = call(environment / "lookback", *ask, cwd=tmp_path)
    candidates = json.loads(said)["candidates"]
    assert len(candidates) == 4
    assert all(c["text"] and 0 < max(c["visual_lookback"]) <= 1 for c in candidates)


def test_the_installed_demo_needs_nothing_else(environment, tmp_path):
    """Stands before the test whose fixture adds the extra of the server."""
    said = call(environment / "lookback", "demo", cwd=tmp_path)
    assert "LookBack picks:" in said
    assert "data:image/png;base64," in (tmp_path / "demo.html").read_text(encoding="utf-8")


def test_the_installed_command_serves(server, tmp_path):
    item = get_benchmark("scenes-vqa").items("test")[0]
    item.image.save(tmp_path / "scene.png")
    image = base64.b64encode((tmp_path / "scene.png").read_bytes()).decode()
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
        {"type": "text", "text": item.question},
    ]
    asked = {"messages": [{"role": "user", "content": content}], "lookback": {"best_of": 4}}
    request = urllib.request.Request(
        f"{server}/v1/chat/completions",
        json.dumps(asked).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        (choice,) = json.load(answer)["choices"]
    assert choice["message"]["content"]
    assert choice["lookback"]["of"] == 4
    with urllib.request.urlopen(f"{server}/") as page:
        assert "LookBack" in page.read().decode()

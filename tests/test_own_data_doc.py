"""docs/own-data.md: its files are written, its commands run in its order, its Python executed."""

import re
import shlex
from pathlib import Path

from engines.reference import noise
from toy_engine import ToyEngine

from lookback.benchmarks.metrics import METRICS
from lookback.runs import Run
from lookback.runs.plan import Plan

PAGE = (Path(__file__).parents[1] / "docs" / "own-data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+) ?([\w.]*)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    line for kind, _, text in BLOCKS if kind == "bash" for line in text.strip().splitlines()
]
FILES = {name: text for _, name, text in BLOCKS if name}


def test_the_page_runs(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Plan, "load_engine", lambda plan: ToyEngine())
    monkeypatch.setattr(METRICS, "entries", dict(METRICS.all()))
    monkeypatch.setenv("LOOKBACK_PLUGINS", "")
    Path("photos").mkdir()
    for number, name in enumerate(("cat", "cup")):
        noise(seed=number).save(f"photos/{name}.jpg")
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    assert len(COMMANDS) == 9
    said = {}
    for line in COMMANDS:
        status, out, err = command(*shlex.split(line)[1:])
        assert status == 0, (line, err)
        said[line] = out
    (evaluated,) = [out for line, out in said.items() if "evaluate" in line]
    assert re.search(r"quality +50\.00", evaluated)
    assert Run("runs/chats").manifest.settings["benchmark"] == "own:chats"
    names = {}
    (python,) = [text for kind, name, text in BLOCKS if kind == "python" and not name]
    exec(python, names)
    assert names["mine"].score(names["mine"].items()[0], "It is a cat.") == 1


def test_the_page_lists_every_metric():
    section = PAGE[PAGE.index("## Metrics") :]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == list(METRICS.builtin)

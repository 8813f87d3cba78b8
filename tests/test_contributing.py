"""The five walks of CONTRIBUTING.md as they stand, and that the other papers keep up."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from helpers import make_candidates
from made_runs import make_run

import lookback
from lookback.benchmarks.base import BENCHMARKS, get_benchmark
from lookback.engines import ENGINES
from lookback.families import FAMILIES, family_of
from lookback.registry import load_plugin
from lookback.scores.base import SCORERS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WALKS = dict(re.findall(r"### (.*?)\n\n```python\n(.*?)```", TEXT, re.DOTALL))


@pytest.fixture
def walk(tmp_path, monkeypatch):
    """Loads the example under a heading as a plugin, and forgets it after the test."""
    for registry in (SCORERS, BENCHMARKS, ENGINES):
        monkeypatch.setattr(registry, "entries", dict(registry.entries))
    known = dict(FAMILIES)

    def load(heading):
        path = tmp_path / "walk.py"
        path.write_text(WALKS[heading], encoding="utf-8")
        load_plugin(str(path))

    yield load
    FAMILIES.clear()
    FAMILIES.update(known)


def test_there_are_five():
    headings = ["A scorer", "A benchmark", "A study", "A family", "An engine"]
    assert list(WALKS) == headings


def test_a_scorer(walk):
    walk("A scorer")
    cands = make_candidates()
    ranked = cands.rank("cautious")
    by_hand = [(c.log_prob - c.entropy).mean() for c in cands]
    assert [c.score for c in ranked] == pytest.approx(sorted(by_hand, reverse=True))
    assert SCORERS.get("cautious").title == "Cautious"


def test_a_benchmark(walk):
    walk("A benchmark")
    benchmark = get_benchmark("colors")
    items = benchmark.items(limit=2)
    assert items[1].image.getpixel((0, 0)) == (0, 0, 255)
    assert benchmark.aggregate(items, ["It is red.", "green"]) == {"accuracy": 50.0}
    assert benchmark.title == "Colours"


def test_a_study(tmp_path):
    run = make_run(tmp_path / "made", items=3, n=4)
    code = "import json, lookback\nrun = lookback.open_run('made')\n" + WALKS["A study"]
    code += "\nprint(json.dumps(lengths([run]).rows))\n"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    mean = sum(run.lengths.tolist()) / 12
    assert json.loads(done.stdout) == [{"run": "made", "tokens": pytest.approx(mean)}]


def test_a_family(walk):
    walk("A family")
    assert family_of(SimpleNamespace(model_type="my_vl")).defaults == {"alpha": 0.5, "lam": 1.25}


def test_an_engine(walk):
    walk("An engine")
    engine = lookback.load(engine="parrot")
    assert engine.generate(None, ["a", "b"]) == ["a", "b"]
    with pytest.raises(lookback.AbilityError, match=r"'parrot'.*it can generate"):
        engine.sample("x.png", "what?")


def test_the_files_it_names_are_there():
    names = set(re.findall(r"`((?:lookback|tests|docs|tools)/[\w/.]+)`", TEXT))
    assert len(names) > 10
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


def test_before_a_commit_the_same_is_checked_as_in_ci():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lint, types = (
        re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
        for target in ("lint", "types")
    )
    commands = [line.replace("$(BIN)", ".venv/bin").strip() for line in (lint + types).splitlines()]
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert [hook["entry"] for hook in hooks] == commands
    assert not any(hook["pass_filenames"] for hook in hooks)


def test_this_version_is_cited_and_has_its_changes():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == lookback.__version__
    assert len(citation["preferred-citation"]["authors"]) == 4
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.*?)\]", changes, re.MULTILINE)[0] == lookback.__version__

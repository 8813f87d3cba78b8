"""Another package's scorer, benchmark, study and engine, found by their names from the shell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from timeouts import HANG_SECONDS

ROOT = Path(__file__).parents[1]
TOY = Path(__file__).parent / "toy_package"


def lookback(*arguments, paths=(TOY,)):
    path = os.pathsep.join(map(str, [*paths, ROOT]))
    env = os.environ | {"PYTHONPATH": path, "LOOKBACK_PLUGINS": ""}
    command = [sys.executable, "-m", "lookback.cli", *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_SECONDS)


def listed(*arguments, **settings):
    done = lookback(*arguments, "--json", **settings)
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "toy"
    few = ("-n", 3, "--limit", 2, "--max-new-tokens", 8)
    done = lookback("run", "--benchmark", "toy-benchmark", *few, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_they_are_listed():
    scorers = listed("scorers")
    assert scorers["toy-scorer"]["about"] == "How many tokens a response has."
    assert "lookback" in scorers
    assert listed("benchmarks")["toy-benchmark"]["source"] == "made up"
    assert listed("engines")["toy-engine"]["about"] == "The embedded model, by another name."


def test_without_the_package_they_are_not():
    assert "toy-scorer" not in listed("scorers", paths=())


def test_its_benchmark_is_run_and_its_scorer_is_in_the_papers_table(toy_run, tmp_path):
    done = lookback("study", "main", toy_run, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    own = [row for row in rows if row["method"] == "toy-scorer"]
    assert "toy-benchmark" in {row["benchmark"] for row in own}


def test_its_study_is_a_study(toy_run, tmp_path):
    assert "toy-study" in listed("studies")
    done = lookback("study", "toy-study", toy_run, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == [{"benchmark": "toy-benchmark", "candidates": 6}]


def test_a_broken_package_is_named_and_others_still_work(tmp_path):
    info = tmp_path / "broken_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lookback.scorers]\nbroken = broken_package:gone\n")
    done = lookback("scorers", "--json", paths=(TOY, tmp_path))
    assert done.returncode == 0, done.stderr
    assert "the scorer 'broken' (broken_package:gone) cannot be loaded" in done.stderr
    names = [one["name"] for one in json.loads(done.stdout)]
    assert "toy-scorer" in names
    assert "broken" not in names
    done = lookback("ask", "no.png", "?", "--scorer", "broken", paths=(tmp_path,))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "broken_package" in done.stderr


def test_a_folder_of_the_same_name_does_not_hide_the_installed_package(tmp_path):
    """A clone is a folder called lookback: from its parent, the package inside is what counts."""
    (tmp_path / "lookback").mkdir()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", "import lookback; print(lookback.__file__)"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert Path(done.stdout.strip()).name == "__init__.py", (done.stdout, done.stderr)

"""The releases that were tested, and that what is private in them is touched in one file."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from lookback.embedded import LVLM

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
COMPAT = ROOT / "lookback" / "engines" / "common" / "compat.py"


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_the_installed_release_is_in_the_tested_range(package):
    stated = {r.name: r.specifier for r in map(Requirement, PROJECT["dependencies"])}
    assert version(package) in stated[package], f"{package}{stated[package]}"


def private_names(path):
    """What a module takes of torch and transformers that they do not offer to everybody."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            top, _, below = (node.module or "").partition(".")
            if top == "transformers" and below:
                yield f"line {node.lineno}: from {node.module}"
            if top in ("torch", "transformers"):
                named = [*below.split("."), *(alias.name for alias in node.names)]
                yield from (f"line {node.lineno}: {n}" for n in named if n.startswith("_"))
        if isinstance(node, ast.Attribute):
            named = ast.unparse(node)
            if named.startswith("torch.ops") or "config._" in named:
                yield f"line {node.lineno}: {named}"


def test_private_names_are_in_one_file():
    files = sorted((ROOT / "lookback").rglob("*.py"))
    found = {str(path.relative_to(ROOT)): list(private_names(path)) for path in files}
    private = found.pop(str(COMPAT.relative_to(ROOT)))
    assert {name: names for name, names in found.items() if names} == {}
    assert len(private) > 5  # the check itself sees them


def test_a_model_of_the_hub_says_which_commit_answered(tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--someone--tiny"
    shutil.copytree(LVLM, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    code = "import lookback; print(lookback.load('someone/tiny', quiet=True).identity().revision)"
    env = os.environ | {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    env["PYTHONPATH"] = str(ROOT)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == commit, done.stderr

"""Packages of npm for tests: fetched once into build/node, at these versions.

Without npm the tests that need them are skipped, unless CI_NODE=1.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

VERSIONS = {"openai": "6.49.0", "axe-core": "4.14.0"}
FOLDER = Path(__file__).parents[1] / "build" / "node"
needs_node = pytest.mark.skipif(
    shutil.which("npm") is None and os.environ.get("CI_NODE") != "1", reason="no npm"
)


@cache
def packages():
    """The folder in which `node_modules` is."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = [f"{name}@{version}" for name, version in VERSIONS.items()]
    with FileLock(FOLDER / "lock"):
        if not all((FOLDER / "node_modules" / name / "package.json").exists() for name in VERSIONS):
            quiet = ["--no-audit", "--no-fund", "--silent", "--prefix", str(FOLDER)]
            subprocess.run(["npm", "install", *quiet, *names], check=True, timeout=300)
    return FOLDER

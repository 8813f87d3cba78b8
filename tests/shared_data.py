"""Real benchmark files beside the project, for the tests that need them."""

import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("LOOKBACK_SHARED_DATA", ROOT.parent / "shared" / "data"))


def shared(name):
    """A folder of real files; skips the test where there is none."""
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"no real {name} files: set LOOKBACK_SHARED_DATA to a folder that has {name}/")
    return folder


def json_lines(path):
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

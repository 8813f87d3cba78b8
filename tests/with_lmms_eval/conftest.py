"""lmms-eval has an environment of its own (`make test-lmms-eval`); elsewhere there is none."""

import importlib.util

import pytest

if importlib.util.find_spec("lmms_eval") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def lb():
    import lookback

    return lookback.load()

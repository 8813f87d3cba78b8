"""TRL has an environment of its own (`make test-trl`); elsewhere nothing here can be tested."""

import importlib.util

if importlib.util.find_spec("trl") is None:
    collect_ignore_glob = ["test_*.py"]

"""vLLM has an environment of its own (`make test-vllm`); elsewhere nothing here can be tested."""

import importlib.util
import os

import pytest

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


@pytest.fixture(scope="session")
def embedded():
    """The embedded model on the engine that everything is compared with."""
    import lookback

    return lookback.load()


@pytest.fixture(scope="session")
def inside():
    """The embedded model inside vLLM."""
    import lookback

    engine = lookback.load(engine="vllm", max_num_seqs=64)
    yield engine
    engine.close()

"""Settings for all tests: one thread per process, no hub, no random surprises."""

import math
import os
import signal
import threading

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
if threading.current_thread() is threading.main_thread():
    # A shell's background job ignores Ctrl-C, which some tests send, and so would all it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from chromium import start
from hypothesis import HealthCheck, settings

settings.register_profile(
    "lookback",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # it fails on a busy machine
    derandomize=True,
    max_examples=60,
)
settings.load_profile("lookback")
pytest_plugins = ["tiers"]


@pytest.fixture
def command(monkeypatch, capsys):
    """`lookback ...` in this process: a function from arguments to (status, stdout, stderr)."""
    from lookback import cli
    from lookback.cli import terminal

    # However slow the machine, stderr has no line that says how far a command has come.
    monkeypatch.setattr(terminal, "LINE_SECONDS", math.inf)

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["lookback", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def s3_server():
    """One for all tests of a process: s3fs keeps its connections."""
    from s3_server import serve

    with serve() as settings:
        yield settings

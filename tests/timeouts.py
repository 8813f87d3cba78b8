"""How long tests wait: only a hang lasts so long, so a slow machine turns no test red."""

import time

HANG_SECONDS = 600
"""Seconds after which something hangs: far more than anything takes on a busy machine."""

# Of the real clock, also while a test has a false one.
_now, _sleep = time.monotonic, time.sleep


def wait_until(condition):
    """Return as soon as a condition holds that another thread or process brings about."""
    end = _now() + HANG_SECONDS
    while not condition():
        assert _now() < end, f"nothing came of it in {HANG_SECONDS} s"
        _sleep(0.001)

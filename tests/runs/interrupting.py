"""Writes that are interrupted: each file takes its place by `os.replace`, and one of them fails."""

import os
from contextlib import contextmanager
from itertools import count

import pytest


@contextmanager
def interrupted(monkeypatch, stop, after):
    """Ctrl-C at the write number `stop`, before or after it took effect; what is inside ends so."""
    real, numbers = os.replace, count()

    def failing(*paths):
        now = next(numbers) == stop
        if now and not after:
            raise KeyboardInterrupt
        real(*paths)
        if now:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        with pytest.raises(KeyboardInterrupt):
            yield

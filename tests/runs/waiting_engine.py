"""A plugin: an engine that says when it is asked, and never answers."""

import os
import sys
import threading

from toy_engine import ToyEngine

import lookback


class Waiting(ToyEngine):
    def sample(self, *given, **settings):
        print("asked", os.getpid(), file=sys.stderr, flush=True)
        threading.Event().wait()


@lookback.engine("waiting")
def load(model=None, processor=None):
    """For tests."""
    return Waiting()

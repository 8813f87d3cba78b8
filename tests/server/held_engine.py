"""A toy engine whose work takes as long as a test lets it, and which remembers how it ended."""

import asyncio
import threading
import time

from timeouts import HANG_SECONDS
from toy_engine import ToyEngine


class HeldEngine(ToyEngine):
    """Draws once `go` is set; until then it takes steps, as a slow model does."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()
        self.begun = []
        self.ended = []
        self.given_up = []
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()

    def sample(self, *arguments, messages=None, progress=None, listen=None, **settings):
        name = messages[-1]["content"][-1]["text"]
        with self._lock:
            self.begun.append(name)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            while not self.go.is_set():
                progress(0, 1)
                time.sleep(0.005)
            found = super().sample(
                *arguments, messages=messages, progress=progress, listen=listen, **settings
            )
            self.ended.append(name)
            return found
        except BaseException:
            self.given_up.append(name)
            raise
        finally:
            with self._lock:
                self.at_once -= 1


def until(condition):
    """Wait for something that another thread does."""
    end = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


async def happens(condition):
    """The same for something that the event loop does; its own time may stand still."""
    end = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)
        await asyncio.sleep(0)

"""Asynchronous work for a caller who waits: one event loop per process, in a thread of its own.

The caller's thread only waits, so it hears Ctrl-C at once; and it may have an event loop already,
as in a notebook. The thread is a daemon: nobody waits for what is under way when a program ends.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """The work's result; whatever interrupts the caller ends the work too."""
    future = asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))
    try:
        return future.result()
    finally:
        future.cancel()  # does nothing to work that is done


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """The loop of a process; a forked child has none of its parent's threads."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=f"lookback-{process}", daemon=True).start()
    return loop

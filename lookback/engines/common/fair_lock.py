"""A fair lock per model: threads that share a model run in turn, first come, first served.

The holder may yield between steps; waiters run first and the holder is requeued. So a long request
does not hold up a short one. A thread that holds the lock may take it again (a `progress` callback
that calls the engine): what it began before is then not interrupted.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

LEAST = 0.03
"""Seconds that a turn lasts at least: handing a model over takes a few milliseconds."""


def _closed() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False)
class _Ticket:
    """A waiting thread, and the depth at which it will hold the lock."""

    thread: int
    depth: int
    granted: threading.Lock = field(default_factory=_closed)


class FairLock:
    """A re-entrant lock that is granted in order and can be yielded.

    Attributes:
        lent: how many sessions of its holder have prepared the model for decoding.
        undo: restores the model to what it was before the first of them.
        least: seconds that a turn lasts at least, if there is so much to do.
    """

    def __init__(self, least: float | None = None) -> None:
        self.least = LEAST if least is None else least
        self.lent = 0
        self.undo: Callable[[], None] = lambda: None
        self._mutex = threading.Lock()  # held for moments
        self._waiting: deque[_Ticket] = deque()  # empty if the lock is free
        self._holder: int | None = None
        self._depth = 0
        self._since = 0.0  # when the lock was granted
        self._lost: dict[int, int] = {}  # threads that were interrupted while others held the lock

    @property
    def mine(self) -> bool:
        """Whether this thread holds the lock."""
        return self._holder == threading.get_ident()

    @property
    def wanted(self) -> bool:
        """Whether a thread waits and the holder's turn has lasted long enough."""
        return bool(self._waiting) and time.monotonic() - self._since >= self.least

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock and return True; False if it is taken and `blocking` is False."""
        me = threading.get_ident()
        if self._holder == me:  # only the holder can change that
            self._depth += 1
            return True
        with self._mutex:
            if self._holder is None:
                self._begin(_Ticket(me, 1))
                return True
            if not blocking:
                return False
            ticket = _Ticket(me, 1)
            self._waiting.append(ticket)
        self._wait(ticket)
        return True

    def release(self) -> None:
        """Release once; the last release passes the lock to the next waiter.

        Raises:
            RuntimeError: this thread does not hold it.
        """
        me = threading.get_ident()
        if self._holder == me:
            self._depth -= 1
            if not self._depth:
                with self._mutex:
                    self._hand_on()
        elif me in self._lost:
            self._lost[me] -= 1
            if not self._lost[me]:
                del self._lost[me]
        else:
            raise RuntimeError("release() of a model's lock by a thread that does not hold it")

    def offer(self) -> None:
        """Yield to all waiters, then hold the lock again at the same depth.

        If the wait is interrupted, the lock is lost; `release` then only counts down.
        """
        me = threading.get_ident()
        with self._mutex:
            if not self._waiting or self._holder != me:
                return
            ticket = _Ticket(me, self._depth)
            self._waiting.append(ticket)
            self._hand_on()
        try:
            self._wait(ticket)
        except BaseException:
            self._lost[me] = ticket.depth
            raise

    def after_fork(self) -> None:
        """Forget the threads of the parent process: only this one exists in the child.

        If another one held the lock, restore the model in its place.
        """
        self._mutex = threading.Lock()
        self._waiting.clear()
        self._lost.clear()
        if not self.mine:
            if self.lent:
                self.undo()
            self._holder, self._depth, self.lent = None, 0, 0

    def _wait(self, ticket: _Ticket) -> None:
        try:
            ticket.granted.acquire()
        except BaseException:  # Ctrl-C: leave the queue
            with self._mutex:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                else:
                    self._hand_on()
            raise

    def _hand_on(self) -> None:
        if not self._waiting:
            self._holder, self._depth = None, 0
            return
        ticket = self._waiting.popleft()
        self._begin(ticket)
        ticket.granted.release()

    def _begin(self, ticket: _Ticket) -> None:
        self._holder, self._depth = ticket.thread, ticket.depth
        self._since = time.monotonic()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


_LOCKS: WeakKeyDictionary[torch.nn.Module, FairLock] = WeakKeyDictionary()
_LOCKS_MUTEX = threading.Lock()


def lock_for(model: torch.nn.Module) -> FairLock:
    """Return the lock of a model, the same one for all its users."""
    with _LOCKS_MUTEX:
        return _LOCKS.setdefault(model, FairLock())


def _after_fork() -> None:
    for lock in _LOCKS.values():
        lock.after_fork()


def survive_forks(lock: Any) -> None:
    """Free a lock in processes that are forked while another thread holds it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)


survive_forks(_LOCKS_MUTEX)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

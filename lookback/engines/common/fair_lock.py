"""Whose turn it is with a model: many threads share one, first come first served.

Whoever has the turn can offer it between two steps: those that wait go first, and he comes after
them. So a short question is not held up by a long one. A thread that has the turn may take it again
(a `progress` that asks the engine something): what it began before is not interrupted then.
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
"""Seconds that a turn lasts at least: to hand a model over as it was takes a few thousandths."""


def _closed() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False)
class _Ticket:
    """A thread that waits, and how often it will then hold the turn."""

    thread: int
    depth: int
    granted: threading.Lock = field(default_factory=_closed)


class Turns:
    """A lock that one thread can hold several times, that is handed on in order, and offered.

    Attributes:
        lent: how often its holder has borrowed the model, see `state.borrowed`.
        undo: makes the model what it was before its holder borrowed it.
        least: seconds that a turn lasts at least, if there is so much to do.
    """

    def __init__(self, least: float | None = None) -> None:
        self.least = LEAST if least is None else least
        self.lent = 0
        self.undo: Callable[[], None] = lambda: None
        self._mutex = threading.Lock()  # held for moments
        self._waiting: deque[_Ticket] = deque()  # empty if nobody has the turn
        self._holder: int | None = None
        self._depth = 0
        self._since = 0.0  # when the turn was taken
        self._lost: dict[int, int] = {}  # threads that were interrupted while others had the turn

    @property
    def mine(self) -> bool:
        """Whether this thread has the turn."""
        return self._holder == threading.get_ident()

    @property
    def wanted(self) -> bool:
        """Whether somebody waits, and it has lasted long enough."""
        return bool(self._waiting) and time.monotonic() - self._since >= self.least

    def acquire(self, blocking: bool = True) -> bool:
        """Take the turn, when it comes; whether it was taken."""
        me = threading.get_ident()
        if self._holder == me:  # which nobody else can change
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
        """Give it up as often as it was taken, and the next is served.

        Raises:
            RuntimeError: this thread does not have it.
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
            raise RuntimeError("a turn was given up by a thread that does not have it")

    def offer(self) -> None:
        """Let those that wait go first; then hold the turn as often as before.

        If the wait is interrupted, the turn is lost, which `release` then knows of.
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
        """Forget the threads of the parent process, of which this one alone goes on in the child.

        Whoever had the turn is not there to give the model back.
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
        except BaseException:  # Ctrl-C: nobody is to wait for us
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


_TURNS: WeakKeyDictionary[torch.nn.Module, Turns] = WeakKeyDictionary()
_TURNS_LOCK = threading.Lock()


def turns_of(model: torch.nn.Module) -> Turns:
    """The turns of a model: one for all that use it."""
    with _TURNS_LOCK:
        return _TURNS.setdefault(model, Turns())


def _after_fork() -> None:
    for turns in _TURNS.values():
        turns.after_fork()


def survive_forks(lock: Any) -> None:
    """Free a lock in processes that are forked while another thread holds it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)


survive_forks(_TURNS_LOCK)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

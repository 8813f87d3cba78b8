"""Which request is served when: a limited number at a time, in turns by client and user.

A client that asks a hundred times does not keep another from its turn: turns go round the
clients, and for each client round its users. So nobody waits for ever. Nor does it keep another
out of a full queue: whoever has the most requests in it loses the last of them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from lookback.server.errors import ApiError

T = TypeVar("T")
Caller = tuple[str, str]
"""A client's address, and the user that it names."""
Ticket = asyncio.Future[None]
"""A place in the queue, done when its turn has come."""
NEWEST_WEIGHT = 0.2
"""How much the newest request counts in the mean of how long one takes."""


class FairQueue:
    """Waiting requests, in the order in which they are served."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, OrderedDict[str, deque[Ticket]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.tickets())

    def join(self, caller: Caller, ticket: Ticket) -> None:
        """Add a ticket behind those of the same client and user."""
        client, user = caller
        self._clients.setdefault(client, OrderedDict()).setdefault(user, deque()).append(ticket)

    def leave(self, caller: Caller, ticket: Ticket) -> None:
        """Remove a ticket, if it still waits."""
        client, user = caller
        users = self._clients.get(client, OrderedDict())
        if ticket in users.get(user, ()):
            users[user].remove(ticket)
            self._remove_empty(client, user)

    def next(self) -> Ticket | None:
        """Remove the ticket whose turn it is; next comes another client, or user of this one."""
        if not self._clients:
            return None
        client, users = next(iter(self._clients.items()))
        user, tickets = next(iter(users.items()))
        ticket = tickets.popleft()
        users.move_to_end(user)
        self._clients.move_to_end(client)
        self._remove_empty(client, user)
        return ticket

    def tickets(self) -> list[Ticket]:
        return [t for users in self._clients.values() for line in users.values() for t in line]

    def find_displaced(
        self, newcomer: Caller, running: Mapping[Caller, int]
    ) -> tuple[Caller, Ticket] | None:
        """Return who gives way to a newcomer if the queue is full, and its last ticket.

        It is the client with the most requests, and of its users the one with the most, the
        newcomer counted; of equals the one with more at work, then the newcomer, then whose turn
        is the last. Return None if that is the newcomer itself.
        """
        loads = {caller: (0, count) for caller, count in running.items()}
        for client, users in self._clients.items():
            for user, tickets in users.items():
                _, busy = loads.pop((client, user), (0, 0))
                loads[client, user] = len(tickets), busy
        waiting, busy = loads.pop(newcomer, (0, 0))
        loads[newcomer] = waiting + 1, busy
        client = _most_loaded((caller[0], load) for caller, load in loads.items())
        user = _most_loaded((c[1], load) for c, load in loads.items() if c[0] == client)
        if (client, user) == newcomer:
            return None
        return (client, user), self._clients[client][user][-1]

    def _remove_empty(self, client: str, user: str) -> None:
        users = self._clients[client]
        if not users[user]:
            del users[user]
        if not users:
            del self._clients[client]


def _most_loaded(loads: Iterable[tuple[str, tuple[int, int]]]) -> str:
    """Return the name with the most requests (waiting, then at work); of equals the last."""
    sums: dict[str, tuple[int, int]] = {}
    for name, (waiting, busy) in loads:
        before = sums.pop(name, (0, 0))
        sums[name] = before[0] + waiting, before[1] + busy
    return max(reversed(sums), key=sums.__getitem__)


class RequestScheduler:
    """Runs the work of a limited number of requests at a time, each in a thread.

    Args:
        places: how many.
        queue: how many may wait.

    Attributes:
        at_work: how many run.
        seconds: how long one takes, about.
        closed: whether no new request is let in.
    """

    def __init__(self, places: int, queue: int) -> None:
        self.places, self.queue = places, queue
        self.at_work = 0
        self.seconds = 1.0
        self.closed = False
        self._queue = FairQueue()
        self._running: Counter[Caller] = Counter()
        self._threads = ThreadPoolExecutor(places, "lookback-work")

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

    def check_room(self, caller: Caller) -> None:
        """Raise ApiError if there is no room: the queue is full (429), or the server ends (503)."""
        if self.closed:
            raise _shutting_down()
        if self._is_full() and self._queue.find_displaced(caller, self._running) is None:
            raise self._queue_full()

    def _is_full(self) -> bool:
        return self.at_work >= self.places and self.waiting >= self.queue

    def _queue_full(self) -> ApiError:
        return ApiError(
            429,
            f"the queue is full ({self.waiting} requests wait): try again later",
            code="queue_full",
            headers=_retry_after(self.waiting * self.seconds / self.places),
        )

    async def run(
        self,
        caller: Caller,
        work: Callable[[], T],
        give_up: Callable[[], None],
        on_start: Callable[[], None],
    ) -> T:
        """Wait for a turn, and return what the work gives.

        If this is cancelled, the caller leaves the queue, or the work is told to end; its place is
        free once the thread has noticed.

        Args:
            caller: for whom it is done.
            work: called in a thread.
            give_up: called if nobody waits for the work any more: it should end.
            on_start: called when its turn has come.

        Raises:
            ApiError: there is no room, or another client took the place in the queue.
        """
        self.check_room(caller)
        await self._wait_for_turn(caller)
        start = time.monotonic()
        self._running[caller] += 1
        try:
            on_start()
            thread = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:
            self._leave(caller)
            raise
        thread.add_done_callback(lambda _: self._done(caller, start))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            give_up()
            thread.add_done_callback(ignore_result)
            raise

    async def _wait_for_turn(self, caller: Caller) -> None:
        if self.at_work < self.places:  # then nobody waits
            self.at_work += 1
            return
        if self._is_full():
            self._displace(caller)
        ticket: Ticket = asyncio.get_running_loop().create_future()
        self._queue.join(caller, ticket)
        try:
            await ticket
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled() and ticket.exception() is None:
                self._free_place()  # its turn had just come
            self._queue.leave(caller, ticket)
            raise

    def _displace(self, newcomer: Caller) -> None:
        """Make room in a full queue for a newcomer that `check_room` let in."""
        displaced = self._queue.find_displaced(newcomer, self._running)
        assert displaced is not None
        caller, ticket = displaced
        if not ticket.done():  # it may have been cancelled, and not have left yet
            ticket.set_exception(self._queue_full())
        self._queue.leave(caller, ticket)

    def _done(self, caller: Caller, start: float) -> None:
        self.seconds += NEWEST_WEIGHT * (time.monotonic() - start - self.seconds)
        self._leave(caller)

    def _leave(self, caller: Caller) -> None:
        self._running -= Counter([caller])  # which keeps no zeros
        self._free_place()

    def _free_place(self) -> None:
        """Give a place to the next in the queue."""
        while (ticket := self._queue.next()) is not None:
            if not ticket.done():
                ticket.set_result(None)
                return
        self.at_work -= 1

    def close(self) -> None:
        """Refuse new requests and those that wait; those at work go on."""
        self.closed = True
        for ticket in self._queue.tickets():
            if not ticket.done():
                ticket.set_exception(_shutting_down())
        self._queue = FairQueue()
        self._threads.shutdown(wait=False)


def ignore_result(future: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a future for which nobody waits, so that none is logged."""
    if not future.cancelled():
        future.exception()


def _shutting_down() -> ApiError:
    headers = _retry_after(5)
    return ApiError(503, "the server is shutting down", code="shutting_down", headers=headers)


def _retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, min(600, math.ceil(seconds))))}

"""Who is served when: so many at a time, the others wait, in turns by client and by user.

A client that asks a hundred times does not keep another from its turn: places go round the
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
Who = tuple[str, str]
"""A client's address, and the user that it names."""
REMEMBERED = 0.2
"""How much the newest piece of work counts in the mean of how long one takes."""


class Line:
    """Those who wait, in the order in which they are served."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, OrderedDict[str, deque[asyncio.Future[None]]]]
        self._clients = OrderedDict()

    def __len__(self) -> int:
        return sum(len(line) for users in self._clients.values() for line in users.values())

    def join(self, who: Who, place: asyncio.Future[None]) -> None:
        """Wait, behind those of the same client and user."""
        client, user = who
        self._clients.setdefault(client, OrderedDict()).setdefault(user, deque()).append(place)

    def leave(self, who: Who, place: asyncio.Future[None]) -> None:
        """Wait no longer."""
        client, user = who
        users = self._clients.get(client, OrderedDict())
        if place in users.get(user, ()):
            users[user].remove(place)
            self._tidy(client, user)

    def next(self) -> asyncio.Future[None] | None:
        """Whose turn it is; the next turn is another client's, and of this one another user's."""
        if not self._clients:
            return None
        client, users = next(iter(self._clients.items()))
        user, line = next(iter(users.items()))
        place = line.popleft()
        users.move_to_end(user)
        self._clients.move_to_end(client)
        self._tidy(client, user)
        return place

    def all(self) -> list[asyncio.Future[None]]:
        """Everybody who waits."""
        return [one for users in self._clients.values() for line in users.values() for one in line]

    def find_displaced(
        self, newcomer: Who, at_work: Mapping[Who, int]
    ) -> tuple[Who, asyncio.Future[None]] | None:
        """Return who gives way to a newcomer if the queue is full, and its last place there.

        It is the client with the most requests, and of its users the one with the most, the
        newcomer counted; of equals the one with more at work, then the newcomer, then whose turn
        is the last. Return None if that is the newcomer itself.
        """
        loads = {who: (0, count) for who, count in at_work.items()}
        for client, users in self._clients.items():
            for user, line in users.items():
                _, busy = loads.pop((client, user), (0, 0))
                loads[client, user] = len(line), busy
        waiting, busy = loads.pop(newcomer, (0, 0))
        loads[newcomer] = waiting + 1, busy
        client = _most_loaded((who[0], load) for who, load in loads.items())
        user = _most_loaded((who[1], load) for who, load in loads.items() if who[0] == client)
        if (client, user) == newcomer:
            return None
        return (client, user), self._clients[client][user][-1]

    def _tidy(self, client: str, user: str) -> None:
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


class Desk:
    """Lets so many pieces of work go on at a time, each in a thread.

    Args:
        places: how many.
        queue: how many may wait.

    Attributes:
        at_work: how many go on.
        seconds: what one takes, about.
        closed: whether nobody new is let in.
    """

    def __init__(self, places: int, queue: int) -> None:
        self.places, self.queue = places, queue
        self.at_work = 0
        self.seconds = 1.0
        self.closed = False
        self._line = Line()
        self._working: Counter[Who] = Counter()
        self._threads = ThreadPoolExecutor(places, "lookback-work")

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._line)

    def check_room(self, who: Who) -> None:
        """Raise ApiError if there is no room: the queue is full (429), or the server ends (503)."""
        if self.closed:
            raise _ending()
        if self._is_full() and self._line.find_displaced(who, self._working) is None:
            raise self._full()

    def _is_full(self) -> bool:
        return self.at_work >= self.places and self.waiting >= self.queue

    def _full(self) -> ApiError:
        return ApiError(
            429,
            f"the queue is full ({self.waiting} requests wait): try again later",
            code="queue_full",
            headers=_retry(self.waiting * self.seconds / self.places),
        )

    async def run(
        self,
        who: Who,
        work: Callable[[], T],
        give_up: Callable[[], None],
        began: Callable[[], None],
    ) -> T:
        """Wait for a place, and do the work in a thread.

        Whoever is cancelled leaves the line, or gives up the work; its place is free once the
        thread has noticed.

        Args:
            who: is served.
            work: for a thread.
            give_up: called if nobody waits for the work any more: it should end.
            began: called when it has a place.

        Raises:
            ApiError: there is no room, or another client took the place in the queue.
        """
        self.check_room(who)
        await self._place(who)
        start = time.monotonic()
        self._working[who] += 1
        try:
            began()
            thread = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:
            self._leave(who)
            raise
        thread.add_done_callback(lambda _: self._done(who, start))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            give_up()
            thread.add_done_callback(seen)
            raise

    async def _place(self, who: Who) -> None:
        if self.at_work < self.places:  # then nobody waits
            self.at_work += 1
            return
        if self._is_full():
            self._displace(who)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.join(who, place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._free()  # it had just been given
            self._line.leave(who, place)
            raise

    def _displace(self, newcomer: Who) -> None:
        """Make room in a full queue for a newcomer that `check_room` let in."""
        found = self._line.find_displaced(newcomer, self._working)
        assert found is not None
        who, place = found
        if not place.done():  # it may have gone away, and not have left yet
            place.set_exception(self._full())
        self._line.leave(who, place)

    def _done(self, who: Who, start: float) -> None:
        self.seconds += REMEMBERED * (time.monotonic() - start - self.seconds)
        self._leave(who)

    def _leave(self, who: Who) -> None:
        self._working -= Counter([who])  # which keeps no zeros
        self._free()

    def _free(self) -> None:
        """Hand a place on to whoever is next."""
        while (place := self._line.next()) is not None:
            if not place.done():
                place.set_result(None)
                return
        self.at_work -= 1

    def close(self) -> None:
        """Let nobody in any more, and send away those who wait; who is at work goes on."""
        self.closed = True
        for place in self._line.all():
            if not place.done():
                place.set_exception(_ending())
        self._line = Line()
        self._threads.shutdown(wait=False)


def seen(thread: asyncio.Future[Any]) -> None:
    """Nobody waits for it: what it says at its end is not for anybody."""
    if not thread.cancelled():
        thread.exception()


def _ending() -> ApiError:
    return ApiError(503, "the server is shutting down", code="shutting_down", headers=_retry(5))


def _retry(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, min(600, math.ceil(seconds))))}

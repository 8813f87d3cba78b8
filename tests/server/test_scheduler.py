"""Whose turn it is: by client, then by user, and nobody waits for ever."""

import asyncio
import threading

import pytest
from server.clock import turns
from server.held_engine import happens
from timeouts import HANG_SECONDS

from lookback.server.errors import ApiError
from lookback.server.scheduler import FairQueue, RequestScheduler


def test_places_go_round_clients_and_their_users():
    async def order():
        queue, names = FairQueue(), {}
        for name in ("a/x 1", "a/x 2", "a/x 3", "a/y 1", "b/x 1", "b/x 2", "c/ 1"):
            place = asyncio.get_running_loop().create_future()
            names[place] = name
            client, _, user = name.split()[0].partition("/")
            queue.join((client, user), place)
        assert len(queue) == 7
        found = []
        while (place := queue.next()) is not None:
            found.append(names[place])
        assert len(queue) == 0
        return found

    wanted = ["a/x 1", "b/x 1", "c/ 1", "a/y 1", "b/x 2", "a/x 2", "a/x 3"]
    assert asyncio.run(order()) == wanted


def test_a_client_that_asks_often_does_not_keep_another_waiting():
    async def order():
        scheduler, done = RequestScheduler(1, 100), []

        async def ask(name, who):
            await scheduler.run((who, ""), lambda: done.append(name), lambda: None, lambda: None)

        first = threading.Event()
        hold = asyncio.ensure_future(
            scheduler.run(("z", ""), lambda: first.wait(HANG_SECONDS), print, lambda: None)
        )
        await turns()
        many = [asyncio.ensure_future(ask(f"many {i}", "a")) for i in range(20)]
        await turns()
        one = asyncio.ensure_future(ask("one", "b"))
        await turns()
        first.set()
        await asyncio.gather(hold, one, *many)
        return done

    assert asyncio.run(order()).index("one") == 1


def test_who_goes_away_leaves_the_line_and_frees_the_place():
    async def work():
        scheduler = RequestScheduler(1, 10)
        stop = threading.Event()
        hold = asyncio.ensure_future(
            scheduler.run(("a", ""), lambda: stop.wait(HANG_SECONDS), stop.set, lambda: None)
        )
        await turns()
        waits = [
            asyncio.ensure_future(scheduler.run(("b", ""), lambda: 1, lambda: None, lambda: None))
            for _ in range(3)
        ]
        await turns()
        assert (scheduler.at_work, scheduler.waiting) == (1, 3)
        waits[1].cancel()
        await turns()
        assert scheduler.waiting == 2
        hold.cancel()  # it is told to give up, and its place is free once it has
        assert await asyncio.gather(*waits, return_exceptions=True) != []
        assert waits[0].result() == waits[2].result() == 1
        assert (scheduler.at_work, scheduler.waiting) == (0, 0)

    asyncio.run(work())


def test_a_place_that_is_given_to_who_has_just_gone_is_handed_on():
    async def work():
        scheduler = RequestScheduler(1, 10)
        stop = threading.Event()
        hold = asyncio.ensure_future(
            scheduler.run(("a", ""), lambda: stop.wait(HANG_SECONDS), print, lambda: None)
        )
        await turns()
        gone = asyncio.ensure_future(scheduler.run(("b", ""), lambda: 1, print, lambda: None))
        other = asyncio.ensure_future(scheduler.run(("c", ""), lambda: 2, print, lambda: None))
        await turns()
        stop.set()
        await happens(lambda: scheduler.waiting == 1)  # b has the place, and has not noticed
        gone.cancel()
        assert await other == 2
        await hold
        await turns()
        assert (scheduler.at_work, scheduler.waiting) == (0, 0)

    asyncio.run(work())


def test_an_error_of_the_work_is_the_callers_and_frees_the_place():
    async def work():
        scheduler = RequestScheduler(1, 0)

        def fail():
            raise ValueError("no")

        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await scheduler.run(("a", ""), fail, print, lambda: None)
        assert scheduler.at_work == 0

    asyncio.run(work())


def test_a_full_line_and_an_end():
    async def work():
        scheduler = RequestScheduler(1, 1)
        stop = threading.Event()
        hold = asyncio.ensure_future(
            scheduler.run(("a", ""), lambda: stop.wait(HANG_SECONDS), print, lambda: None)
        )
        await turns()
        waits = asyncio.ensure_future(scheduler.run(("b", ""), lambda: 1, print, lambda: None))
        await turns()
        with pytest.raises(ApiError) as full:
            await scheduler.run(("c", ""), lambda: 1, print, lambda: None)
        assert full.value.status == 429
        assert int(full.value.headers["Retry-After"]) >= 1
        scheduler.close()
        with pytest.raises(ApiError) as ended:
            await waits
        assert ended.value.status == 503
        with pytest.raises(ApiError) as late:
            await scheduler.run(("c", ""), lambda: 1, print, lambda: None)
        assert late.value.status == 503
        stop.set()
        assert await hold is True  # who is at work goes on

    asyncio.run(work())


class HeldScheduler(RequestScheduler):
    """A scheduler with one place, which somebody holds until `go` is set; it keeps all who came."""

    def __init__(self, queue):
        super().__init__(1, queue)
        self.go, self.done, self.asked = threading.Event(), [], {}

    async def ask(self, *names):
        """Requests "client/user number", one after another; the statuses of those refused."""
        for name in names:
            who = tuple(name.split()[0].split("/"))
            work = (
                (lambda: self.go.wait(HANG_SECONDS))
                if not self.asked
                else lambda name=name: self.done.append(name)
            )
            waiting = self.run(who, work, lambda: None, lambda: None)
            self.asked[name] = asyncio.ensure_future(waiting)
            await turns()
        return {
            name: task.exception().status
            for name, task in self.asked.items()
            if task.done() and not task.cancelled() and task.exception()
        }

    async def end(self):
        """The order in which those were served who were not refused."""
        self.go.set()
        await asyncio.gather(*self.asked.values(), return_exceptions=True)
        assert (self.at_work, self.waiting) == (0, 0)
        return self.done


def test_a_newcomer_takes_the_last_place_of_the_client_that_has_the_most():
    async def work():
        scheduler = HeldScheduler(4)
        assert await scheduler.ask("z/ 0", "a/ 1", "a/ 2", "a/ 3", "a/ 4") == {}
        assert await scheduler.ask("a/ 5") == {"a/ 5": 429}
        assert await scheduler.ask("b/ 1") == {"a/ 5": 429, "a/ 4": 429}
        assert await scheduler.ask("b/ 2") == {"a/ 5": 429, "a/ 4": 429, "a/ 3": 429}
        # Both have two: whoever comes now would have the most.
        assert set(await scheduler.ask("b/ 3", "a/ 6")) == {"a/ 3", "a/ 4", "a/ 5", "b/ 3", "a/ 6"}
        assert scheduler.waiting == 4
        assert scheduler.asked["a/ 4"].exception().headers["Retry-After"] == "4"
        assert await scheduler.end() == ["a/ 1", "b/ 1", "a/ 2", "b/ 2"]

    asyncio.run(work())


def test_within_a_client_the_same_holds_for_its_users():
    async def work():
        scheduler = HeldScheduler(3)
        await scheduler.ask("z/ 0", "a/x 1", "a/x 2", "a/x 3")
        assert set(await scheduler.ask("a/y 1")) == {"a/x 3"}
        assert set(await scheduler.ask("a/x 4", "a/y 2")) == {"a/x 3", "a/x 4", "a/y 2"}
        assert set(await scheduler.ask("b/x 1")) == {"a/x 3", "a/x 4", "a/y 2", "a/x 2"}
        assert await scheduler.end() == ["a/x 1", "b/x 1", "a/y 1"]

    asyncio.run(work())


def test_of_clients_that_wait_alike_the_one_at_work_gives_way():
    async def work():
        scheduler = HeldScheduler(1)
        await scheduler.ask("a/ 0", "a/ 1")
        assert set(await scheduler.ask("b/ 1")) == {"a/ 1"}
        assert set(await scheduler.ask("a/ 2", "c/ 1")) == {"a/ 1", "a/ 2", "c/ 1"}
        assert await scheduler.end() == ["b/ 1"]

    asyncio.run(work())


@pytest.mark.parametrize(("seconds", "wanted"), [(3.0, "6"), (3.1, "7"), (0.0, "1"), (1e6, "600")])
def test_who_is_refused_hears_when_those_who_wait_will_have_been_served(seconds, wanted):
    async def work():
        scheduler, stop = RequestScheduler(2, 4), threading.Event()
        scheduler.seconds = seconds
        tasks = [
            asyncio.ensure_future(
                scheduler.run(("a", ""), lambda: stop.wait(HANG_SECONDS), print, lambda: None)
            )
            for _ in range(6)
        ]
        await turns()
        with pytest.raises(ApiError) as full:
            await scheduler.run(("a", ""), print, print, lambda: None)
        assert full.value.headers["Retry-After"] == wanted
        stop.set()
        await asyncio.gather(*tasks)

    asyncio.run(work())


def test_work_that_is_done_counts_no_more():
    async def work():
        scheduler = HeldScheduler(1)
        await scheduler.run(("a", ""), lambda: None, print, lambda: None)
        await scheduler.ask("z/ 0", "a/ 1")
        assert set(await scheduler.ask("b/ 1")) == {"b/ 1"}  # neither has anything at work
        assert await scheduler.end() == ["a/ 1"]

    asyncio.run(work())


def test_a_place_in_the_queue_of_who_has_just_gone_is_taken_first():
    async def work():
        scheduler = HeldScheduler(2)
        await scheduler.ask("z/ 0", "a/ 1", "a/ 2")
        asking = asyncio.ensure_future(scheduler.ask("b/ 1"))
        await asyncio.sleep(0)  # it comes next
        scheduler.asked["a/ 2"].cancel()
        assert await asking == {}
        assert scheduler.waiting == 2
        assert await scheduler.end() == ["a/ 1", "b/ 1"]

    asyncio.run(work())

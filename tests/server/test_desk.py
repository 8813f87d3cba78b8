"""Whose turn it is: by client, then by user, and nobody waits for ever."""

import asyncio
import threading

import pytest

from lookback.server.desk import Desk, Line
from lookback.server.errors import ApiError


def test_places_go_round_clients_and_their_users():
    async def order():
        line, names = Line(), {}
        for name in ("a/x 1", "a/x 2", "a/x 3", "a/y 1", "b/x 1", "b/x 2", "c/ 1"):
            place = asyncio.get_running_loop().create_future()
            names[place] = name
            client, _, user = name.split()[0].partition("/")
            line.join((client, user), place)
        assert len(line) == 7
        found = []
        while (place := line.next()) is not None:
            found.append(names[place])
        assert len(line) == 0
        return found

    wanted = ["a/x 1", "b/x 1", "c/ 1", "a/y 1", "b/x 2", "a/x 2", "a/x 3"]
    assert asyncio.run(order()) == wanted


def test_a_client_that_asks_often_does_not_keep_another_waiting():
    async def order():
        desk, done = Desk(1, 100), []

        async def ask(name, who):
            await desk.run((who, ""), lambda: done.append(name), lambda: None, lambda: None)

        first = threading.Event()
        hold = asyncio.ensure_future(desk.run(("z", ""), first.wait, print, lambda: None))
        await asyncio.sleep(0.01)
        many = [asyncio.ensure_future(ask(f"many {i}", "a")) for i in range(20)]
        await asyncio.sleep(0.01)
        one = asyncio.ensure_future(ask("one", "b"))
        await asyncio.sleep(0.01)
        first.set()
        await asyncio.gather(hold, one, *many)
        return done

    assert asyncio.run(order()).index("one") == 1


def test_who_goes_away_leaves_the_line_and_frees_the_place():
    async def work():
        desk = Desk(1, 10)
        stop = threading.Event()
        hold = asyncio.ensure_future(desk.run(("a", ""), stop.wait, stop.set, lambda: None))
        await asyncio.sleep(0.01)
        waits = [
            asyncio.ensure_future(desk.run(("b", ""), lambda: 1, lambda: None, lambda: None))
            for _ in range(3)
        ]
        await asyncio.sleep(0.01)
        assert (desk.at_work, desk.waiting) == (1, 3)
        waits[1].cancel()
        await asyncio.sleep(0.01)
        assert desk.waiting == 2
        hold.cancel()  # it is told to give up, and its place is free once it has
        assert await asyncio.gather(*waits, return_exceptions=True) != []
        assert waits[0].result() == waits[2].result() == 1
        assert (desk.at_work, desk.waiting) == (0, 0)

    asyncio.run(work())


def test_a_place_that_is_given_to_who_has_just_gone_is_handed_on():
    async def work():
        desk = Desk(1, 10)
        stop = threading.Event()
        hold = asyncio.ensure_future(desk.run(("a", ""), stop.wait, print, lambda: None))
        await asyncio.sleep(0.01)
        gone = asyncio.ensure_future(desk.run(("b", ""), lambda: 1, print, lambda: None))
        other = asyncio.ensure_future(desk.run(("c", ""), lambda: 2, print, lambda: None))
        await asyncio.sleep(0.01)
        desk._free()  # b has the place, and has not noticed
        desk.at_work += 1
        gone.cancel()
        stop.set()
        assert await other == 2
        await hold
        await asyncio.sleep(0.01)
        assert desk.waiting == 0

    asyncio.run(work())


def test_an_error_of_the_work_is_the_callers_and_frees_the_place():
    async def work():
        desk = Desk(1, 0)

        def fail():
            raise ValueError("no")

        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await desk.run(("a", ""), fail, print, lambda: None)
        assert desk.at_work == 0

    asyncio.run(work())


def test_a_full_line_and_an_end():
    async def work():
        desk = Desk(1, 1)
        stop = threading.Event()
        hold = asyncio.ensure_future(desk.run(("a", ""), stop.wait, print, lambda: None))
        await asyncio.sleep(0.01)
        waits = asyncio.ensure_future(desk.run(("b", ""), lambda: 1, print, lambda: None))
        await asyncio.sleep(0.01)
        with pytest.raises(ApiError) as full:
            await desk.run(("c", ""), lambda: 1, print, lambda: None)
        assert full.value.status == 429
        assert int(full.value.headers["Retry-After"]) >= 1
        desk.close()
        with pytest.raises(ApiError) as ended:
            await waits
        assert ended.value.status == 503
        with pytest.raises(ApiError) as late:
            await desk.run(("c", ""), lambda: 1, print, lambda: None)
        assert late.value.status == 503
        stop.set()
        assert await hold is True  # who is at work goes on

    asyncio.run(work())

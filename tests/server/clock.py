"""An event loop whose time passes by hand: no deadline comes because a machine is slow."""

import asyncio


class StoppedClock(asyncio.SelectorEventLoop):
    """Its time stands still until a test adds to `now`."""

    now = 0.0

    def time(self):
        return self.now


def run(main):
    """Run a coroutine on such a loop."""
    with asyncio.Runner(loop_factory=StoppedClock) as runner:
        return runner.run(main)


async def pass_time(seconds):
    """Let time pass, and everything happen that is due then."""
    asyncio.get_running_loop().now += seconds
    await turns()


async def turns(count=20):
    """Let everything that is due on the event loop happen."""
    for _ in range(count):
        await asyncio.sleep(0)
